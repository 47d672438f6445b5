"""The state that the routes of one application share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import Request

from service.http.access import Users
from service.http.cache import PlanCaches, SharedPlans
from service.http.intake import Intake
from service.jobs.backend import Backend, search_limits, worker_limits
from service.jobs.frames import Spool
from service.jobs.pool import DEFAULT_TENANT, WorkerPool
from service.jobs.requests import check_early
from service.settings import Settings
from service.store import Store
from service.store.trouble import Reason
from service.telemetry.metrics import Metrics, Reading

__all__ = ["State", "state_of"]

#: Reading this many bytes of JSON takes about a millisecond.
EARLY_BYTES: Final = 1 << 16


class State:
    """`draining` once the service was asked to stop: it still answers, and is ready no longer.

    `limits` are the settings that a worker has to obey, `search_limits` when a search must have answered.
    """

    def __init__(
        self,
        settings: Settings,
        pool: WorkerPool,
        cache: PlanCaches,
        users: Users | None = None,
        store: Store | None = None,
    ) -> None:
        self.settings: Final = settings
        self.pool: Final = pool
        self.cache: Final = cache
        self.users: Final = users
        self.store: Final = store
        self.intake: Final = Intake(settings.intake_memory_bytes, settings.intake_disk_bytes)
        self.backend: Final = Backend(settings, pool, store)
        self.shared: Final = SharedPlans(self.backend)
        self.limits: Final = worker_limits(settings)
        self.search_limits: Final = search_limits(settings)
        self.draining = False

    @property
    def metrics(self) -> Metrics:
        return self.pool.metrics

    def watch(self) -> None:
        """Read all this whenever metrics are scraped."""
        chosen, pool, cache, intake = self.settings, self.pool, self.cache, self.intake
        pool.watch()

        def bodies() -> Mapping[str, float]:
            return {"memory": intake.in_memory, "disk": intake.on_disk}

        self.metrics.watch(
            Reading("arenaplan_ready", "1 where /readyz says 200.", lambda: self.status == "ready"),
            Reading("arenaplan_queue_limit", "Tasks that may wait.", lambda: chosen.queue_limit),
            Reading("arenaplan_cache_bytes", "Memory of finished answers.", lambda: cache.cost),
            Reading("arenaplan_cache_limit_bytes", "What they may take.", lambda: chosen.cache_bytes),
            Reading("arenaplan_cache_answers", "Finished answers that are kept.", lambda: len(cache)),
            Reading("arenaplan_body_bytes", "Bodies of requests in flight, by place.", bodies, "place"),
            Reading(
                "arenaplan_body_limit_bytes",
                "What they may take there.",
                lambda: {"memory": intake.memory, "disk": intake.disk},
                "place",
            ),
        )

    @property
    def status(self) -> str:
        """``ready``; else why not: ``starting``, ``overloaded``, ``draining`` once asked to stop, or
        ``database-replaced``, which only its operator can mend.
        """
        if self.draining:
            return "draining"
        if self.backend.status == Reason.REPLACED:
            return "database-replaced"
        return "starting" if self.pool.alive == 0 else "overloaded" if self.overloaded else "ready"

    def check_early(self, task: str, body: bytes | Spool) -> None:
        """While all workers are busy, tell of a small request that is plainly wrong without one of them."""
        if self.pool.alive and self.pool.idle <= 0 and isinstance(body, bytes) and len(body) <= EARLY_BYTES:
            check_early(task, body, self.limits)

    @property
    def overloaded(self) -> bool:
        """Whether the next request is refused: with tenants, also one of a tenant that has none waiting."""
        return self.pool.overloaded(DEFAULT_TENANT if self.users is None else "")


def state_of(request: Request) -> State:
    state: State = request.app.state.arenaplan
    return state
