"""What metrics say of a pool of workers, in whatever process it lives."""

from __future__ import annotations

from collections.abc import Mapping

from service.jobs.pool import WorkerPool
from service.telemetry.metrics import Reading, memory_and_files

__all__ = ["watch_pool"]


def watch_pool(pool: WorkerPool) -> None:
    """Read the pool whenever its metrics are scraped. Once for each pool."""

    def workers() -> Mapping[str, float]:
        return {"idle": max(pool.idle, 0), "busy": pool.alive - max(pool.idle, 0)}

    def resident() -> Mapping[str, float]:
        together, largest, _ = memory_and_files(pool.pids)
        return {"all": together, "largest": largest}

    pool.metrics.watch(
        Reading("arenaplan_workers", "Live workers by what they do.", workers, "state"),
        Reading("arenaplan_workers_wanted", "Workers that there should be.", lambda: pool.size),
        Reading("arenaplan_queue_waiting", "Tasks that wait for a worker.", lambda: pool.waiting),
        Reading(
            "arenaplan_workers_resident_bytes", "Memory of all workers, and of the largest.", resident, "of"
        ),
        Reading("arenaplan_workers_open_fds", "Their open files.", lambda: memory_and_files(pool.pids)[2]),
    )
