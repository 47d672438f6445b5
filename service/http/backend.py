"""What outlives a request: the database, and the jobs, graphs and results in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from service.jobs.blobs import Graphs, Results
from service.jobs.embedded import EmbeddedEngine
from service.jobs.engine import JobEngine
from service.jobs.pool import WorkerPool
from service.jobs.protocol import Limits
from service.jobs.runner import JobLimits, Runner
from service.jobs.table import JobTable
from service.problems import Problem
from service.settings import Settings
from service.store import Store, check_schema, open_store, upgrade

__all__ = ["Backend", "Stored", "job_limits"]

_log = structlog.get_logger("service.jobs")


@dataclass(frozen=True, slots=True)
class Stored:
    """All that works with the database."""

    store: Store
    jobs: JobEngine
    graphs: Graphs
    results: Results


class Backend:
    """The database of one application, once it has been opened; without one, jobs are off."""

    def __init__(self, settings: Settings, pool: WorkerPool, limits: JobLimits) -> None:
        self._settings: Final = settings
        self._pool = pool
        self._limits = limits
        self._stored: Stored | None = None

    @property
    def maybe(self) -> Stored | None:
        """None where jobs are off."""
        return self._stored

    @property
    def stored(self) -> Stored:
        """Raises `Problem` ``jobs-off`` where there is no database."""
        if self._stored is None:
            raise Problem("jobs-off", "This service keeps no jobs.", remedy="Use the synchronous routes.")
        return self._stored

    async def open(self) -> None:
        """Open the database and begin to work on jobs. An SQLite file that cannot be written leaves jobs off.

        Raises ValueError, with what to do, for another database that is not as this version needs it.
        """
        settings = self._settings
        if settings.database_url == "off":
            return
        try:
            store = await asyncio.to_thread(_opened, settings.database_url)
        except (OSError, Problem) as error:
            detail = error.detail if isinstance(error, Problem) else str(error)
            _log.warning("jobs are off", database=settings.database_url, detail=detail)
            return
        results = Results(store)
        table = JobTable(
            store,
            limit=settings.job_limit,
            ttl_seconds=settings.job_ttl_seconds,
            max_attempts=settings.job_max_attempts,
        )
        engine = EmbeddedEngine(self._pool, Runner(table, results, self._limits))
        await engine.start()
        self._stored = Stored(store, engine, Graphs(store), results)

    async def close(self) -> None:
        if self._stored is not None:
            await self._stored.jobs.close()
            await asyncio.to_thread(self._stored.store.close)


def _opened(url: str) -> Store:
    store = open_store(url)
    if store.is_sqlite:
        upgrade(store)
    elif wrong := check_schema(store):
        raise ValueError(wrong)
    return store


def job_limits(settings: Settings, head: Mapping[str, Any], search: Limits) -> JobLimits:
    """The limits of synchronous requests, with the time of jobs; processor time is bounded by that."""
    longest = settings.job_max_seconds
    head = {**head, "deadline_max_seconds": longest, "worker_cpu_seconds": None}
    return JobLimits(head, replace(search, total=longest + search.after_fallback))
