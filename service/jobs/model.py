"""Jobs and their documents, apart from where jobs are kept and which process runs them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from service.problems import Problem

__all__ = ["Answer", "Job", "NewJob", "State", "job_document", "new_id"]


class State(StrEnum):
    """``queued`` ──► ``running`` ──► one of the others, for good; ``queued`` again if its worker dies."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self not in (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be. `task` is what the caller calls it, `work` what the worker does.

    `request` is the body of the synchronous route; where `graph` is the digest of a stored graph, the
    request lacks it, and both are put together when the job runs.
    """

    tenant: str
    subject: str
    task: str
    work: str
    request: bytes
    graph: str | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is now. Times are seconds since 1970; `revision` grows with each change of the rest.

    `progress` has ``stage`` and ``seconds``, and where they are known ``done``, ``peak_bytes`` and
    ``bound_bytes``. `error` holds the facts of a `service.problems.Problem`.
    """

    id: str
    tenant: str
    task: str
    state: State
    revision: int
    created: float
    started: float | None = None
    finished: float | None = None
    expires: float | None = None
    attempts: int = 0
    progress: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    result: str | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a job: the bytes that the synchronous route would have answered.

    Of what has a digest, `facts` have the ``name``, collection and digest, and whether it is ``kept``; of an
    imported model the ``notes``, as `service.jobs.query` writes them.
    """

    body: bytes
    facts: Mapping[str, Any] = field(default_factory=dict)


def new_id(now: float | None = None) -> str:
    """32 hexadecimal digits, of which the first twelve are the time in milliseconds and the rest random."""
    moment = time.time() if now is None else now
    return f"{int(moment * 1000):012x}{secrets.token_hex(10)}"


def _moment(seconds: float | None) -> str | None:
    """A time as RFC 3339 writes it, in UTC, with milliseconds."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def job_document(job: Job, root: str = "") -> dict[str, Any]:
    """The document that callers get of a job; links are paths below `root`."""
    here = f"{root}/v1/jobs/{job.id}"
    return {
        "id": job.id,
        "task": job.task,
        "state": str(job.state),
        "created": _moment(job.created),
        "started": _moment(job.started),
        "finished": _moment(job.finished),
        "attempts": job.attempts,
        "progress": None if job.progress is None else dict(job.progress),
        "error": None if job.error is None else Problem(**job.error).document(),
        "links": {"self": here, "result": f"{here}/result", "events": f"{here}/events"},
    }
