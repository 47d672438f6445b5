"""The engine that needs nothing else: jobs in a table, run by the worker pool of this process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog

from service.jobs.model import Job, NewJob
from service.jobs.pool import WorkerPool
from service.jobs.runner import Runner
from service.jobs.stored import StoredJobs
from service.problems import Problem

__all__ = ["EmbeddedEngine"]

_log = structlog.get_logger("service.jobs")

#: How often to look for jobs that another process has left, or added.
LOOK_SECONDS: Final = 1.0
#: How often what has expired is removed.
TIDY_SECONDS: Final = 600.0
#: Who asks for a worker before it is known whose job is next; no tenant may have this name. All jobs together
#: get as much of the workers' time as one tenant; which of them is next, the table says.
JOBS: Final = ""


class EmbeddedEngine(StoredJobs):
    """Claims jobs for the workers of `pool` as they get free; `JobEngine` says what is promised.

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
