"""Jobs as callers see them."""

from __future__ import annotations

import datetime
from typing import Any

from service.jobs.model import Job
from service.problems import Problem

__all__ = ["job_document"]


def _moment(seconds: float | None) -> str | None:
    """RFC 3339, in UTC, with milliseconds."""
    if seconds is None:
        return None
    there = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return there.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def job_document(job: Job, root: str = "") -> dict[str, Any]:
    """The document of a job; links are paths below `root`."""
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
