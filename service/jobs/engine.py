"""Jobs, which outlive their requests, and the engine that runs them in the workers of this process.

    submit ──► queued ──► running ──► succeeded, failed or cancelled
                  ▲           │
                  └───────────┘ its worker, or the whole machine, has died

What an engine promises, whichever it is (``tests/unit/service/jobs/test_engines.py`` holds all to it):

* a job that `submit` has returned survives the death of every process;
* each job ends, and its end is seen once: late results of an attempt that was given up are dropped;
* a cancelled job is not worked on any more a second later;
* no tenant sees the jobs of another one.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Final

import structlog

from service.jobs.model import Answer, Job, NewJob, State
from service.jobs.pool import WorkerPool
from service.jobs.runner import Runner
from service.jobs.table import JobTable
from service.problems import Problem

__all__ = ["EmbeddedEngine", "JobEngine"]

_log = structlog.get_logger("service.jobs")

#: Seconds between two polls for jobs with waiting callers that other processes may change.
NEWS_SECONDS: Final = 0.25
#: How often to look for jobs that another process has left, or added.
LOOK_SECONDS: Final = 1.0
#: How often what has expired is removed.
TIDY_SECONDS: Final = 600.0
#: The tenant name under which an engine asks the pool for a worker before it knows whose job is next; no
#: tenant may have this name. All jobs together get as much of the workers' time as one tenant; the table says
#: which of them is next.
JOBS: Final = ""


class JobEngine(ABC):
    """Jobs by tenant and id, as rows of a table that is polled for changes. `start` is each engine's.

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
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    async def submit(self, job: NewJob) -> tuple[Job, bool]:
        """Accept a job; and whether it is new: the same idempotency key with the same request is not.

        Raises `Problem` ``idempotency-conflict`` for another request, ``too-many-jobs``, ``graph-not-found``.
        """
        return await self.table.submit(job)

    async def get(self, tenant: str, job: str) -> Job:
        """Raises `Problem` ``job-not-found``."""
        return await self.table.get(tenant, job)

    async def page(
        self, tenant: str, *, state: State | None = None, limit: int = 50, after: str | None = None
    ) -> list[Job]:
        """Jobs of a tenant, the newest first; `after` is the last one that is known already."""
        return await self.table.page(tenant, state=state, limit=limit, after=after)

    async def answer(self, tenant: str, job: str) -> Answer:
        """The result of the job.

        Raises `Problem` ``job-not-found``, ``job-not-finished``, ``job-failed``, ``job-cancelled`` or
        ``job-expired``.
        """
        return await self.table.answer(tenant, job)

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
        lent = max(1, self._pool.size - 1)
        loops = [self._look_after(), *(self._serve() for _ in range(lent))]
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def close(self) -> None:
        await self._runner.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
        """Poll for jobs of other processes, take up abandoned ones, and remove old ones."""
        loop = asyncio.get_running_loop()
        tidied = -TIDY_SECONDS
        while True:
            with contextlib.suppress(Problem):
                for job in await self.table.rescue(self._runner.jobs):
                    self.poke(job)
                if loop.time() > tidied + TIDY_SECONDS:
                    tidied = loop.time()
                    await self.table.tidy()
            self._work.set()
            await asyncio.sleep(LOOK_SECONDS)
