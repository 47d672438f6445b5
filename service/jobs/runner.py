"""Runs jobs that were claimed, in the pool, and keeps the table informed.

The worker's death is the only way in which an attempt ends early: whoever wants that kills the worker and
leaves word why. So a job that is said to be over is worked on by nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Final

import structlog

from service.jobs.blobs import Results
from service.jobs.frames import Frame
from service.jobs.model import State
from service.jobs.pool import Worker
from service.jobs.protocol import Limits, converse
from service.jobs.requests import with_graph
from service.jobs.table import LEASE_SECONDS, Claim, JobTable
from service.problems import Problem
from service.telemetry import tracing
from service.telemetry.metrics import Metrics

__all__ = ["JobLimits", "Runner"]

_log = structlog.get_logger("service.jobs")

#: How often the table is asked who wants to cancel, and told how far jobs are.
TICK_SECONDS: Final = 0.25
#: Leases are renewed so often that one renewal may fail.
RENEW_SECONDS: Final = LEASE_SECONDS / 4
#: Pauses between attempts to write down the end of a job where the database is away.
LONGEST_PAUSE_SECONDS: Final = 2.0

#: Under which collection the answers of a task are served again.
_COLLECTIONS: Final[Mapping[str, str]] = {
    "plan": "plans", "model": "plans", "program": "plans", "layout": "layouts",
}  # fmt: skip


class _End(Enum):
    """Why a worker was killed by us."""

    CANCELLED = auto()  # its job was cancelled
    LOST = auto()  # another process has the job
    STOPPING = auto()  # this process ends


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits that a worker must keep (`head`), and the time in which it must answer."""

    head: Mapping[str, Any]
    answer: Limits


@dataclass(slots=True, eq=False)
class _Run:
    """An attempt that is going on here."""

    claim: Claim
    worker: Worker
    end: _End | None = None
    progress: Mapping[str, Any] | None = None
    # Only until the worker has answered: then the pool may lend it to another task.
    working: bool = True
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, why: _End) -> None:
        if self.working:
            self.end = self.end or why
            self.worker.kill()


class Runner:
    """Attempts at jobs, as many at a time as there are workers lent to it."""

    def __init__(
        self, table: JobTable, results: Results, limits: JobLimits, metrics: Metrics | None = None
    ) -> None:
        self.owner: Final = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.table: Final = table
        self._results = results
        self._limits = limits
        self._metrics = metrics or Metrics()
        self._changed: Callable[[str], None] = lambda _job: None
        self._runs: dict[str, _Run] = {}
        self._closing = False
        self._keeper: asyncio.Task[None] | None = None

    @property
    def jobs(self) -> list[str]:
        """Jobs that run here."""
        return list(self._runs)

    def start(self, changed: Callable[[str], None]) -> None:
        """Begin to keep leases; `changed` hears of each change of a job that runs here."""
        self._changed = changed
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Give back all jobs; returns when the table says so, or cannot be reached."""
        self._closing = True
        runs = list(self._runs.values())
        for run in runs:
            run.stop(_End.STOPPING)
        await asyncio.gather(*(run.done.wait() for run in runs))
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def cancel(self, job: str) -> None:
        """End a job that runs here, at once."""
        if run := self._runs.get(job):
            run.stop(_End.CANCELLED)

    async def claim(self, job: str | None = None) -> Claim | None:
        """As `JobTable.claim`, for `run`. Who is cancelled meanwhile leaves no claim behind."""
        claiming = asyncio.ensure_future(self.table.claim(self.owner, job))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if (claim := await claiming) is not None:
                await self.table.give_back(claim)
            raise

    async def look(self, job: str) -> None:
        """Ask at once whether a job that runs here is to be cancelled. May raise `Problem`."""
        if (run := self._runs.get(job)) and await self.table.asked_to_end([run.claim]):
            run.stop(_End.CANCELLED)

    async def run(self, claim: Claim, worker: Worker) -> bool:
        """Make one attempt at a job with a leased worker, and write down what it has come to.

        Whether the job waits for another attempt.
        """
        if self._closing:
            return await self.table.give_back(claim)
        worker.charged_to = claim.job.tenant
        run = self._runs[claim.job.id] = _Run(claim, worker)
        self._changed(claim.job.id)
        carried = {"traceparent": claim.job.trace or ""}
        facts = {"arenaplan.job": claim.job.id, "arenaplan.attempt": claim.job.attempts}
        try:
            with tracing.span(f"job {claim.job.task}", carried, kind="CONSUMER", **facts) as span:
                known = {"job": claim.job.id, "tenant": claim.job.tenant}
                known |= {"trace_id": span.trace_id} if span.trace_id else {}
                with structlog.contextvars.bound_contextvars(**known):
                    return await self._attempt(run)
        finally:
            del self._runs[claim.job.id]
            run.done.set()
            self._changed(claim.job.id)

    async def _attempt(self, run: _Run) -> bool:
        claim, answers = run.claim, list[tuple[str, bytes]]()

        async def known(key: str) -> bool:
            with contextlib.suppress(Problem):  # without the database, the answer is made once more
                if answer := await self._results.by_key(claim.job.tenant, f"{claim.work}:{key}"):
                    answers.append(answer)
            return bool(answers)

        def note(facts: Mapping[str, Any]) -> None:
            run.progress = facts

        head = {**self._limits.head, "progress": True}
        try:
            body = with_graph(claim.work, claim.request, claim.graph)
            try:
                frame = await converse(run.worker, claim.work, head, body, self._limits.answer, known, note)
            finally:
                run.working = False
        except Problem as problem:
            return await self._record(partial(self._failed, run, problem))
        else:
            return await self._record(
                partial(self._succeeded, claim, frame, answers[-1] if answers else None)
            )

    async def _succeeded(self, claim: Claim, frame: Frame, known: tuple[str, bytes] | None) -> bool:
        facts = dict(frame.head)
        notes = {"notes": facts["notes"]} if "notes" in facts else {}
        collection = _COLLECTIONS.get(claim.work)
        if known is not None:
            name, body = known
            await self.table.succeed(claim, body, {"name": name, "kept": True, **notes}, name=name)
        elif collection is None:
            await self.table.succeed(claim, frame.body, notes)
        else:
            name, kept = f"{collection}/{facts['digest']}", bool(facts["deterministic"])
            summary = {"name": name, "kept": kept, **notes}
            keys = (f"{claim.work}:{facts['key']}",) if kept else ()
            found_as = name if kept else None
            await self.table.succeed(claim, frame.body, summary, name=found_as, keys=keys)
        self._count(claim, State.SUCCEEDED)
        return False

    def _count(self, claim: Claim, state: State) -> None:
        self._metrics.job_ended(claim.job.task, state, max(0.0, time.time() - claim.job.created))

    async def _failed(self, run: _Run, problem: Problem) -> bool:
        match run.end:
            case _End.CANCELLED:
                await self.table.cancelled(run.claim)
                self._count(run.claim, State.CANCELLED)
                return False
            case _End.LOST:
                return False
            case _End.STOPPING:
                return await self.table.give_back(run.claim)
        if problem.kind.code == "worker-lost" and problem.extensions.get("reason") != "memory":
            return await self.table.give_back(run.claim, problem)
        await self.table.fail(run.claim, problem)
        self._count(run.claim, State.FAILED)
        return False

    async def _record(self, write: Callable[[], Awaitable[bool]]) -> bool:
        """Write down the end of an attempt; again, where the database is away for a while.

        Once the lease has run out, another process may have the job, and this end is dropped.
        """
        pause = 0.05
        until = asyncio.get_running_loop().time() + 6 * LEASE_SECONDS
        while True:
            try:
                return await write()
            except Problem as problem:
                if asyncio.get_running_loop().time() > until:
                    _log.error("the end of a job could not be written down", detail=problem.detail)
                    return False
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _keep(self) -> None:
        """Renew leases, hear of cancelled jobs, pass progress on; as long as this process runs jobs."""
        loop = asyncio.get_running_loop()
        renewed, reported = loop.time(), dict[_Run, Mapping[str, Any]]()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            runs = dict(self._runs)
            reported = {run: facts for run, facts in reported.items() if not run.done.is_set()}
            if not runs:
                continue
            claims = [run.claim for run in runs.values()]
            try:
                for job in await self.table.asked_to_end(claims):
                    runs[job].stop(_End.CANCELLED)
                for job, run in runs.items():
                    if run.progress is not None and run.progress is not reported.get(run):
                        reported[run] = run.progress
                        await self.table.progress(run.claim, run.progress)
                        self._changed(job)
                if loop.time() > renewed + RENEW_SECONDS:
                    held = await self.table.renew(claims)
                    renewed = loop.time()
                    for job in runs.keys() - held.keys():
                        runs[job].stop(_End.LOST)
            except Problem:  # said in the log by the store
                continue
            except Exception:  # noqa: BLE001 - without this loop all leases would run out
                _log.exception("jobs cannot be kept")
