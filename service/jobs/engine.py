"""Jobs, which outlive their requests, and the engine that runs them in the workers of this process.

    submit ──► queued ──► running ──► succeeded, failed or cancelled
                  ▲           │
                  └───────────┘ its worker, or the whole machine, has died

What an engine promises, whichever it is (``tests/unit/service/jobs/test_engines.py`` holds all to it):

* a job that `submit` has returned survives the death of every process;
* each job ends, and its end is seen once: late results of an attempt that was given up are dropped;
* a cancelled job is not worked on any more a second later;
* no tenant sees the jobs of another one.

A `Runner` runs the jobs that were claimed, in the pool, and keeps the table informed. An attempt
ends early only when its worker dies: a cancellation or a time limit records its reason, and kills the worker.
So no process works on a job that has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Final

import structlog

from service.jobs.frames import Frame
from service.jobs.model import Job, NewJob, State
from service.jobs.pool import Limits, Worker, WorkerPool, cancelled, converse
from service.jobs.requests import KINDS, with_graph
from service.jobs.table import LEASE_SECONDS, Claim, JobTable, Results
from service.problems import Problem
from service.telemetry import tracing
from service.telemetry.metrics import Metrics

__all__ = ["LOOK_SECONDS", "EmbeddedEngine", "JobEngine", "Runner", "forever"]

_log = structlog.get_logger("service.jobs")

#: How often the table is asked who wants to cancel, and told how far jobs are.
TICK_SECONDS: Final = 0.25
#: Leases are renewed so often that one renewal may fail.
RENEW_SECONDS: Final = LEASE_SECONDS / 4
#: How often to look for jobs that another process has left, or added.
LOOK_SECONDS: Final = 1.0
#: How often what has expired is removed.
TIDY_SECONDS: Final = 600.0
#: Pauses between attempts to write down the end of a job where the database is away.
LONGEST_PAUSE_SECONDS: Final = 2.0


class _End(Enum):
    """Why a worker was killed by us."""

    CANCELLED = auto()  # its job was cancelled
    LOST = auto()  # another process has the job
    STOPPING = auto()  # this process ends


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
    """Attempts at jobs, as many at a time as there are workers lent to it.

    `head` has the limits that a worker must keep; `limits` are the time in which it must answer.
    """

    def __init__(
        self,
        table: JobTable,
        results: Results,
        head: Mapping[str, Any],
        limits: Limits,
        metrics: Metrics | None = None,
    ) -> None:
        self.owner: Final = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.table: Final = table
        self._results = results
        self._head: Final = {**head, "progress": True}
        self._limits = limits
        self._metrics = metrics or Metrics()
        self._changed: Callable[[str], None] = lambda _job: None
        self._runs: dict[str, _Run] = {}
        self._closing = False
        self._tidied = -TIDY_SECONDS
        self._keeper: asyncio.Task[None] | None = None

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
        await cancelled(filter(None, [self._keeper]))

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

    async def look_after(self) -> list[str]:
        """Take up jobs of other processes that are gone, and now and then remove what has expired.

        Returns the jobs that wait again. May raise `Problem`.
        """
        waiting = await self.table.rescue(list(self._runs))
        if time.monotonic() > self._tidied + TIDY_SECONDS:
            self._tidied = time.monotonic()
            await self.table.tidy()
        return waiting

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

        try:
            body = with_graph(claim.work, claim.request, claim.graph)
            try:
                frame = await converse(run.worker, claim.work, self._head, body, self._limits, known, note)
            finally:
                run.working = False
        except Problem as problem:
            return await self._record(partial(self._failed, run, problem))
        else:
            return await self._record(
                partial(self._succeeded, claim, frame, answers[-1] if answers else None)
            )

    async def _succeeded(self, claim: Claim, frame: Frame, known: tuple[str, bytes] | None) -> bool:
        facts, collection = frame.head, KINDS[claim.job.task].collection
        summary = {"notes": facts["notes"]} if "notes" in facts else {}
        body, found_as, keys = frame.body, None, tuple[str, ...]()
        if known is not None:
            found_as, body = known
            summary |= {"name": found_as, "kept": True}
        elif collection:
            name, is_kept = f"{collection}/{facts['digest']}", bool(facts["deterministic"])
            summary |= {"name": name, "kept": is_kept}
            if is_kept:
                found_as, keys = name, (f"{claim.work}:{facts['key']}",)
        await self.table.succeed(claim, body, summary, name=found_as, keys=keys)
        self._count(claim, State.SUCCEEDED)
        return False

    def _count(self, claim: Claim, state: State) -> None:
        self._metrics.job_ended(claim.job.task, state, max(0.0, time.time() - claim.job.created))

    async def _failed(self, run: _Run, problem: Problem) -> bool:
        is_lost = problem.kind.code == "worker-lost" and problem.extensions.get("reason") != "memory"
        match run.end:
            case _End.LOST:
                return False
            case _End.STOPPING:
                return await self.table.give_back(run.claim)
            case None if is_lost:
                return await self.table.give_back(run.claim, problem)
        state = State.FAILED if run.end is None else State.CANCELLED
        await self.table.end(run.claim, state, problem if run.end is None else None)
        self._count(run.claim, state)
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
                    for job in runs.keys() - held:
                        runs[job].stop(_End.LOST)
            except Problem:  # said in the log by the store
                continue
            except Exception:  # noqa: BLE001 - any error is logged: if this loop ended, all leases would run out
                _log.exception("jobs cannot be kept")


#: Seconds between two polls for jobs with waiting callers that other processes may change.
NEWS_SECONDS: Final = 0.25
#: The tenant name under which an engine asks the pool for a worker before it knows whose job is next; no
#: tenant may have this name. All jobs together get as much of the workers' time as one tenant; the table says
#: which of them is next.
JOBS: Final = ""


async def forever(what: str, work: Callable[[], Awaitable[Any]]) -> None:
    """Again and again, whatever happens: the database may be away for a while."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - an ended loop would leave jobs until a restart
            if not isinstance(error, Problem):  # of the database: said in the log by the store
                _log.warning(what, detail=repr(error))
        await asyncio.sleep(LOOK_SECONDS)


class JobEngine(ABC):
    """Jobs by tenant and id, as rows of a `table` that is polled for changes. `start` is each engine's.

    Jobs, pages of them and answers are read from the table.
    Every method raises `Problem` ``database-unavailable`` in bad times.
    """

    def __init__(self, table: JobTable) -> None:
        self.table: Final = table
        self._watched: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._seen: dict[str, int] = {}
        self._watcher: asyncio.Task[None] | None = None

    @abstractmethod
    async def start(self) -> None:
        """Begin to work on what is there."""

    async def close(self) -> None:
        """Stop; jobs that run here are queued again, for another process to run."""
        await cancelled(filter(None, [self._watcher]))

    async def submit(self, job: NewJob) -> tuple[Job, bool]:
        """Accept a job; and whether it is new: the same idempotency key with the same request is not.

        Raises `Problem` ``idempotency-conflict`` for another request, ``too-many-jobs``, ``graph-not-found``.
        """
        return await self.table.submit(job)

    async def cancel(self, tenant: str, job: str) -> Job:
        """Ask for the end of a job; one that is finished stays as it is. Raises ``job-not-found``."""
        cancelled = await self.table.cancel(tenant, job)
        self.poke(job)
        return cancelled

    async def changed(self, job: Job, seconds: float) -> Job:
        """The job once its revision is beyond `job.revision`, or its present state after `seconds`.

        Raises `Problem` ``job-not-found`` where it has been removed.
        """
        loop = asyncio.get_running_loop()
        until, news = loop.time() + seconds, asyncio.Event()
        self._watched[job.id].add(news)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            while True:
                news.clear()
                current = await self.table.get(job.tenant, job.id)
                if current.revision > job.revision or loop.time() >= until:
                    return current
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await news.wait()
        finally:
            self._watched[job.id].discard(news)
            if not self._watched[job.id]:
                del self._watched[job.id]
                self._seen.pop(job.id, None)

    def poke(self, job: str) -> None:
        """Wake the callers that wait for a change of the job."""
        for news in self._watched.get(job, ()):
            news.set()

    async def _watch(self) -> None:
        """Poll all jobs with waiting callers together, until no caller waits."""
        while self._watched:
            await asyncio.sleep(NEWS_SECONDS)
            with contextlib.suppress(Problem):
                watched = list(self._watched)
                revisions = await self.table.revisions(watched)
                for job in watched:
                    revision = revisions.get(job, -1)
                    if self._seen.get(job) != revision:
                        self._seen[job] = revision
                        self.poke(job)


class EmbeddedEngine(JobEngine):
    """Claims jobs for the workers of `pool` as they get free.

    Of several workers, one is kept for synchronous requests: a job may take an hour.
    """

    def __init__(self, pool: WorkerPool, runner: Runner) -> None:
        super().__init__(runner.table)
        self._pool = pool
        self._runner = runner
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._runner.start(self.poke)
        loops = [forever("jobs are not looked after", self._look_after)]
        loops += [self._serve() for _ in range(max(1, self._pool.size - 1))]
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def close(self) -> None:
        await self._runner.close()
        await cancelled(self._tasks)
        await super().close()

    async def submit(self, job: NewJob) -> tuple[Job, bool]:
        submitted = await super().submit(job)
        self._work.set()
        return submitted

    async def cancel(self, tenant: str, job: str) -> Job:
        current = await super().cancel(tenant, job)
        if not current.state.final:
            self._runner.cancel(job)
        return current

    async def _serve(self) -> None:
        """Lend one worker after the other to the next job, as long as jobs wait."""
        while True:
            await self._work.wait()
            try:
                self._work.clear()
                if not await self.table.waits():
                    continue
                async with self._pool.lease(JOBS, patient=True) as worker:
                    claim = await self._runner.claim()
                    if claim is not None:
                        self._work.set()  # there may be more, for others
                        await self._runner.run(claim, worker)
            except Exception as error:  # noqa: BLE001 - whatever it is: jobs that come later must be run
                if not isinstance(error, Problem):  # of the database: said in the log by the store
                    _log.warning("a job could not be begun", detail=repr(error))
                await asyncio.sleep(LOOK_SECONDS)
            self._work.set()

    async def _look_after(self) -> None:
        """Poll for jobs of other processes."""
        self._work.set()
        for job in await self._runner.look_after():
            self.poke(job)
