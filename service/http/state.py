"""What the routes of one application share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from service.http.cache import PlanCache
from service.jobs.pool import WorkerPool
from service.jobs.protocol import Limits
from service.settings import Settings

__all__ = ["State", "state_of"]


@dataclass(frozen=True, slots=True)
class State:
    settings: Settings
    pool: WorkerPool
    cache: PlanCache

    @property
    def search_limits(self) -> Limits:
        """When a search must have answered."""
        chosen = self.settings
        grace = chosen.deadline_grace_seconds
        return Limits(chosen.deadline_max_seconds + grace, grace, chosen.deadline_floor_seconds)

    @property
    def limits(self) -> Mapping[str, Any]:
        """The settings that a worker has to obey."""
        return self.settings.model_dump(
            include={
                "max_operations",
                "max_operands",
                "max_buffers",
                "deadline_default_seconds",
                "deadline_max_seconds",
                "deadline_floor_seconds",
                "validate_max_steps",
                "validate_max_bytes",
                "worker_memory_bytes",
                "worker_cpu_seconds",
            }
        )


def state_of(request: Request) -> State:
    state: State = request.app.state.arenaplan
    return state
