"""Finished plans by tenant and digest: in memory, least recently used out first, bounded in bytes.

Behind that stand the answers in the database: those of jobs, and of other replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from service.jobs.backend import Backend
from service.jobs.table import Results
from service.problems import Problem

__all__ = [
    "PLAN_SECONDS",
    "CachedPlan",
    "PlanCache",
    "PlanCaches",
    "SharedPlans",
]
T = TypeVar("T")

#: Charged for the plan and for each request key beside the body: a generous guess of Python's part.
OVERHEAD_BYTES: Final = 512
#: Differently written requests remembered for one plan; the oldest is forgotten first.
MOST_KEYS: Final = 16
#: How long a plan waits for the database, each time that it asks: it can do without.
PLAN_SECONDS: Final = 0.5
#: How long a database that did not answer is not asked again.
PAUSE_SECONDS: Final = 5.0
#: Answers that wait to be written; more are not kept.
MOST_WAITING: Final = 64


@dataclass(slots=True)
class CachedPlan:
    """The body of an answer, and the keys of the requests that it answers, each with the notes on its model:
    two models of the same plan may have different notes.
    """

    digest: str
    body: bytes
    keys: OrderedDict[str, str] = field(default_factory=OrderedDict)

    @property
    def cost(self) -> int:
        return len(self.body) + OVERHEAD_BYTES * (1 + len(self.keys)) + sum(map(len, self.keys.values()))


class PlanCache:
    """At most `limit` bytes. Only deterministic plans belong here: their bytes never change.

    `changed` is called with the change of `cost`, after a plan was put.
    """

    def __init__(self, limit: int, changed: Callable[[int], None] = lambda _change: None) -> None:
        self._limit = limit
        self._changed = changed
        self._plans: OrderedDict[str, CachedPlan] = OrderedDict()
        self._digests: dict[str, str] = {}
        self.cost = 0

    def __len__(self) -> int:
        return len(self._plans)

    def by_digest(self, digest: str) -> CachedPlan | None:
        plan = self._plans.get(digest)
        if plan is not None:
            self._plans.move_to_end(digest)
        return plan

    def by_key(self, key: str) -> CachedPlan | None:
        digest = self._digests.get(key)
        return None if digest is None else self.by_digest(digest)

    def put(self, digest: str, body: bytes, *keys: str, notes: str = "") -> None:
        """Keep the plan and let every key find it, with the notes."""
        before = self.cost
        plan = self._remove(digest) or CachedPlan(digest, body)
        for key in keys:
            plan.keys[key] = notes
            plan.keys.move_to_end(key)
        while len(plan.keys) > MOST_KEYS:
            plan.keys.popitem(last=False)
        self._plans[digest] = plan
        self._digests.update(dict.fromkeys(plan.keys, digest))
        self.cost += plan.cost
        while self.cost > self._limit:
            self.drop_oldest()
        self._changed(self.cost - before)

    def drop_oldest(self) -> None:
        """Forget the plan that was asked for longest ago."""
        self._remove(next(iter(self._plans)))

    def _remove(self, digest: str) -> CachedPlan | None:
        plan = self._plans.pop(digest, None)
        if plan is not None:
            self.cost -= plan.cost
            for key in plan.keys:
                self._digests.pop(key, None)
        return plan


class PlanCaches:
    """One cache for each tenant, together at most `limit` bytes. Where room is short, whoever has most of it
    gives some back, so that no tenant can push out what others have."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._caches: dict[str, PlanCache] = {}
        self.cost = 0

    def __len__(self) -> int:
        """Plans of all tenants."""
        return sum(map(len, self._caches.values()))

    def of(self, tenant: str) -> PlanCache:
        """The cache of a tenant."""
        cache = self._caches.get(tenant)
        if cache is None:
            cache = self._caches[tenant] = PlanCache(self._limit, self._make_room)
        return cache

    def _make_room(self, change: int) -> None:
        self.cost += change
        while self.cost > self._limit:
            largest = max(self._caches.values(), key=lambda cache: cache.cost)
            before = largest.cost
            largest.drop_oldest()
            self.cost -= before - largest.cost


class SharedPlans:
    """The answers that all processes and jobs of one database share."""

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
