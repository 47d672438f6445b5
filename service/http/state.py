"""The state that the routes of one application share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request

from service.http.access import Users
from service.http.cache import PlanCaches, SharedPlans
from service.http.intake import Intake
from service.jobs.backend import Backend, search_limits, worker_limits
from service.jobs.frames import Spool
from service.jobs.pool import DEFAULT_TENANT, Limits, WorkerPool
from service.jobs.requests import check_early
from service.settings import Settings
from service.store import Store
from service.store.trouble import Reason
from service.telemetry.metrics import Metrics, Reading

__all__ = ["Phase", "State", "state_of"]

#: Reading this many bytes of JSON takes about a millisecond.
EARLY_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Phase:
    """`draining` once the service was asked to stop: it still answers, and is ready no longer."""

    draining: bool = False


@dataclass(frozen=True, slots=True)
class State:
    settings: Settings
    pool: WorkerPool
    cache: PlanCaches
    users: Users | None = None
    store: Store | None = None
    phase: Phase = field(default_factory=Phase)
    intake: Intake = field(init=False)
    backend: Backend = field(init=False)
    shared: SharedPlans = field(init=False)

    def __post_init__(self) -> None:
        chosen = self.settings
        intake = Intake(chosen.intake_memory_bytes, chosen.intake_disk_bytes)
        object.__setattr__(self, "intake", intake)
        backend = Backend(chosen, self.pool, self.store)
        object.__setattr__(self, "backend", backend)
        object.__setattr__(self, "shared", SharedPlans(backend))

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
        if self.phase.draining:
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

    @property
    def search_limits(self) -> Limits:
        """When a search must have answered."""
        return search_limits(self.settings)

    @property
    def limits(self) -> Mapping[str, Any]:
        """The settings that a worker has to obey."""
        return worker_limits(self.settings)


def state_of(request: Request) -> State:
    state: State = request.app.state.arenaplan
    return state
