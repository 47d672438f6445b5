"""The common part of all engines: jobs are rows of a table, which is polled for changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Final

from service.jobs.model import Answer, Job, NewJob, State
from service.jobs.table import JobTable
from service.problems import Problem

__all__ = ["StoredJobs"]

#: Seconds between two polls for jobs with waiting callers that other processes may change.
LOOK_SECONDS: Final = 0.25


class StoredJobs:
    """The part of `JobEngine` that is reading and writing the table."""

    def __init__(self, table: JobTable) -> None:
        self.table: Final = table
        self._watched: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._seen: dict[str, int] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    async def submit(self, job: NewJob) -> tuple[Job, bool]:
        return await self.table.submit(job)

    async def get(self, tenant: str, job: str) -> Job:
        return await self.table.get(tenant, job)

    async def page(
        self, tenant: str, *, state: State | None = None, limit: int = 50, after: str | None = None
    ) -> list[Job]:
        return await self.table.page(tenant, state=state, limit=limit, after=after)

    async def answer(self, tenant: str, job: str) -> Answer:
        return await self.table.answer(tenant, job)

    async def cancel(self, tenant: str, job: str) -> Job:
        cancelled = await self.table.cancel(tenant, job)
        self.poke(job)
        return cancelled

    async def changed(self, job: Job, seconds: float) -> Job:
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
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(Problem):
                watched = list(self._watched)
                revisions = await self.table.revisions(watched)
                for job in watched:
                    revision = revisions.get(job, -1)
                    if self._seen.get(job) != revision:
                        self._seen[job] = revision
                        self.poke(job)
