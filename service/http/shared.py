"""Answers in the database, behind the cache of this process: those of jobs, and of other replicas."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from service.http.cache import CachedPlan
from service.jobs.backend import Backend
from service.jobs.blobs import Results
from service.problems import Problem

__all__ = ["PLAN_SECONDS", "SharedPlans"]

T = TypeVar("T")

#: How long a plan waits for the database, each time that it asks: it can do without.
PLAN_SECONDS: Final = 0.5
#: How long a database that did not answer is not asked again.
PAUSE_SECONDS: Final = 5.0
#: Answers that wait to be written; more are not kept.
MOST_WAITING: Final = 64


class SharedPlans:
    """Finds answers that another process, or a job, has made; hands ours to others where there are any."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._away_until = 0.0
        self._writes: set[asyncio.Task[None]] = set()

    @property
    def away(self) -> bool:
        """Whether the database was asked a moment ago, and did not answer."""
        return time.monotonic() < self._away_until

    async def by_key(self, tenant: str, key: str) -> CachedPlan | None:
        """The answer to a request key."""
        answer = await self._ask(lambda results: results.by_key(tenant, key))
        return None if answer is None else CachedPlan(*answer)

    async def by_name(self, tenant: str, name: str) -> CachedPlan | None:
        """The answer with this collection and digest."""
        body = await self._ask(lambda results: results.by_name(tenant, name))
        return None if body is None else CachedPlan(name, body)

    def put(self, tenant: str, name: str, body: bytes, *keys: str) -> None:
        """Keep an answer for other processes, soon; where the database is this process's own, it is not."""
        stored = self._backend.maybe
        if stored is None or stored.store.is_sqlite or self.away or len(self._writes) >= MOST_WAITING:
            return

        async def keep() -> None:
            with contextlib.suppress(Problem):
                await stored.results.keep(tenant, name, body, *keys)

        task = asyncio.create_task(keep())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _ask(self, question: Callable[[Results], Awaitable[T]]) -> T | None:
        stored = self._backend.maybe
        if stored is None or self.away:
            return None
        try:
            async with asyncio.timeout(PLAN_SECONDS):
                return await question(stored.results)
        except (Problem, TimeoutError):
            self._away_until = time.monotonic() + PAUSE_SECONDS
            return None
