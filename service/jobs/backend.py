"""Everything that outlives a request: the database, and the jobs, graphs and results in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from service.jobs.engine import EmbeddedEngine, JobEngine, Runner
from service.jobs.pool import Limits, WorkerPool, cancelled
from service.jobs.table import Graphs, JobTable, Results
from service.problems import Problem
from service.settings import Settings
from service.store import Store, open_store, prepare
from service.store.trouble import Reason, problem_of

if TYPE_CHECKING:  # needs an extra
    from service.jobs.cluster import ClusterWorker

__all__ = [
    "Backend",
    "Stored",
    "open_service_store",
    "open_worker",
    "search_limits",
    "worker_limits",
]

_log = structlog.get_logger("service.jobs")

#: How often it is tried to open a database that could not be opened.
OPEN_AGAIN_SECONDS: Final = 2.0
#: How long an SQLite file may take to be brought to this version.
PREPARE_SECONDS: Final = 60.0
#: How often jobs are counted.
COUNT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Stored:
    """All that works with the database."""

    store: Store
    jobs: JobEngine
    graphs: Graphs
    results: Results


class Backend:
    """The database of one application. While it cannot be used, there are no jobs, and plans go without it.

    `store` is None where the settings say that there is none.
    """

    def __init__(self, settings: Settings, pool: WorkerPool, store: Store | None) -> None:
        self._settings: Final = settings
        self._pool = pool
        self._store = store
        self._stored: Stored | None = None
        self._counted: Mapping[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def maybe(self) -> Stored | None:
        """None as long as there are no jobs."""
        return self._stored

    @property
    def stored(self) -> Stored:
        """Raises `Problem` ``jobs-off`` where there is no database, or why it could not be opened yet."""
        if self._stored is not None:
            return self._stored
        if self._store is None:
            raise Problem("jobs-off", "This service keeps no jobs.", remedy="Use the synchronous routes.")
        trouble = self._store.trouble or problem_of(Reason.SILENT, "it is being opened")
        raise Problem(**trouble.facts())

    @property
    def status(self) -> str:
        """``ready``; ``off`` without a database; ``starting``; or the `Reason` why it cannot be used."""
        if self._store is None:
            return "off"
        if self._store.trouble is not None:
            return str(self._store.trouble.extensions["reason"])
        return "starting" if self._stored is None else "ready"

    async def open(self) -> None:
        """Begin to work on jobs, now, or as soon as the database can be used.

        Raises ValueError, with what to do, for a PostgreSQL database that has not the tables of this version.
        """
        store = self._store
        if store is None:
            return
        metrics = self._pool.metrics
        metrics.jobs(lambda: self._counted)
        metrics.database(lambda: store.trouble is None, lambda: store.failures)
        opening = asyncio.create_task(self._open(store))
        self._tasks.append(opening)
        await asyncio.wait({opening}, timeout=store.seconds)
        if opening.done():
            opening.result()

    async def _open(self, store: Store) -> None:
        """Open the database, again and again until that succeeds; then keep the count of jobs."""
        first = True
        while not await self._is_prepared(store, first=first):
            first = False
            await asyncio.sleep(OPEN_AGAIN_SECONDS)
        engine: JobEngine
        if store.is_sqlite:
            engine = EmbeddedEngine(self._pool, _runner(store, self._settings, self._pool))
        else:
            from service.jobs.cluster import ClusterEngine

            engine = ClusterEngine(store, _table(store, self._settings))
        await engine.start()
        self._stored = Stored(store, engine, Graphs(store), Results(store))
        self._tasks.append(asyncio.create_task(self._keep_count(self._stored.jobs.table)))

    async def _is_prepared(self, store: Store, *, first: bool) -> bool:
        try:
            await store.run(lambda: prepare(store), seconds=PREPARE_SECONDS)
        except Problem:  # said in the log by the store
            return False
        except ValueError as error:
            if first:
                raise
            _log.warning("the database cannot be used", detail=str(error))
            return False
        return True

    async def _keep_count(self, table: JobTable) -> None:
        """Count jobs for metrics, which ask no database. While it does not answer there are no counts."""
        while True:
            try:
                self._counted = await table.counts()
            except Problem:
                self._counted = {}
            await asyncio.sleep(COUNT_SECONDS)

    async def close(self) -> None:
        await cancelled(self._tasks)
        if self._stored is not None:
            await self._stored.jobs.close()


def open_worker(
    store: Store, settings: Settings, pool: WorkerPool, heard: Callable[[], None]
) -> ClusterWorker:
    """The worker that runs the jobs of a PostgreSQL database in `pool`.

    `heard` is called about once a second, as long as the database answers.
    """
    from service.jobs.cluster import ClusterWorker

    return ClusterWorker(store, pool, _runner(store, settings, pool), heard)


def open_service_store(settings: Settings, role: str) -> Store | None:
    """The database of the settings for a process of the service; None if they name no database.

    Connects when it is first used. Raises ValueError for a URL that is none.
    """
    if settings.database_url == "off":
        return None
    return open_store(
        settings.database_url,
        connections=settings.database_connections,
        seconds=settings.database_seconds,
        role=role,
    )


def _runner(store: Store, settings: Settings, pool: WorkerPool) -> Runner:
    """Runs jobs with the limits of requests, but the time of jobs, which bounds processor time as well."""
    longest, search = settings.job_max_seconds, search_limits(settings)
    head = {**worker_limits(settings), "deadline_max_seconds": longest, "worker_cpu_seconds": None}
    limits = replace(search, total=longest + search.after_fallback)
    return Runner(_table(store, settings), Results(store), head, limits, pool.metrics)


def _table(store: Store, settings: Settings) -> JobTable:
    return JobTable(
        store,
        limit=settings.job_limit,
        ttl_seconds=settings.job_ttl_seconds,
        max_attempts=settings.job_max_attempts,
    )


def worker_limits(settings: Settings) -> Mapping[str, Any]:
    """The settings that a worker has to obey."""
    return settings.model_dump(
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


def search_limits(settings: Settings) -> Limits:
    """When a search must have answered."""
    grace = settings.deadline_grace_seconds
    return Limits(settings.deadline_max_seconds + grace, grace, settings.deadline_floor_seconds)
