"""Everything that outlives a request: the database, and the jobs, graphs and results in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from service.jobs.blobs import Blobs, Graphs, Results
from service.jobs.embedded import EmbeddedEngine
from service.jobs.engine import JobEngine
from service.jobs.limits import job_limits
from service.jobs.model import Job, State, job_document
from service.jobs.pool import WorkerPool
from service.jobs.runner import Runner
from service.jobs.table import JobTable
from service.jobs.webhooks import Webhooks
from service.problems import Problem
from service.settings import Settings
from service.store import Store, check_schema, open_store, upgrade
from service.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from service.store.objects import Objects

__all__ = ["Backend", "JobWorker", "Stored", "check_storage", "open_database", "open_worker"]

_log = structlog.get_logger("service.jobs")


@dataclass(frozen=True, slots=True)
class Stored:
    """All that works with the database."""

    store: Store
    jobs: JobEngine
    graphs: Graphs
    results: Results
    table: JobTable


class Backend:
    """The database of one application, once it has been opened; without one, jobs are off."""

    def __init__(self, settings: Settings, pool: WorkerPool) -> None:
        self._settings: Final = settings
        self._pool = pool
        self._stored: Stored | None = None
        self._webhooks: Webhooks | None = None
        self._counted: Mapping[str, float] = {}

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

        Raises `Problem` or ValueError, with what to do, for another database that is not as it must be.
        """
        settings = self._settings
        if settings.database_url == "off":
            return
        try:
            store = await asyncio.to_thread(open_database, settings.database_url)
        except (OSError, Problem) as error:
            if not settings.database_url.startswith("sqlite"):
                raise
            detail = error.detail if isinstance(error, Problem) else str(error)
            _log.warning("jobs are off", database=settings.database_url, detail=detail)
            return
        blobs = _blobs(store, settings, self._pool.metrics)
        table, results = _table(blobs, settings), Results(blobs)
        engine: JobEngine
        if store.is_sqlite:
            runner = Runner(table, results, job_limits(settings), self._pool.metrics)
            engine = EmbeddedEngine(self._pool, runner)
            self._webhooks = _webhooks(store, table, settings)
        else:
            from service.jobs.cluster import ClusterEngine

            engine = ClusterEngine(store, table)
        await engine.start()
        self._pool.metrics.jobs(lambda: self._counted)
        if self._webhooks is not None:
            self._webhooks.start()
        self._stored = Stored(store, engine, Graphs(store), results, table)

    async def count(self) -> None:
        """Ask how many jobs there are, for metrics. Without an answer there are none of those."""
        self._counted = {}
        if self._stored is not None:
            with contextlib.suppress(Problem):
                counts = await self._stored.table.counts()
                self._counted = {state.value: counts.get(state, 0) for state in State}

    async def close(self) -> None:
        if self._webhooks is not None:
            await self._webhooks.close()
        if self._stored is not None:
            await self._stored.jobs.close()
            await asyncio.to_thread(self._stored.store.close)


class JobWorker(Protocol):
    """The engine that ``arenaplan worker`` runs."""

    async def start(self) -> None:
        """Begin to run jobs."""

    async def drain(self, seconds: float) -> None:
        """Begin no more jobs, and let running ones finish within `seconds`."""

    async def close(self) -> None:
        """Give back what still runs."""


def open_worker(
    store: Store, settings: Settings, pool: WorkerPool, heard: Callable[[], None]
) -> tuple[JobWorker, Webhooks | None]:
    """The worker that runs the jobs of a PostgreSQL database in `pool`, and the sender of their webhooks.

    `heard` is called about once a second, as long as the database answers.
    """
    from service.jobs.cluster import ClusterWorker

    blobs = _blobs(store, settings, pool.metrics)
    table = _table(blobs, settings)
    runner = Runner(table, Results(blobs), job_limits(settings), pool.metrics)
    return ClusterWorker(store, pool, runner, heard), _webhooks(store, table, settings)


def open_database(url: str) -> Store:
    """The database, with the tables of this version: an SQLite file is brought to it.

    Raises ValueError for another database that is not, and for what is no database, `Problem`
    ``database-unavailable`` for one that does not answer, OSError for a directory that cannot be made.
    """
    store = open_store(url)
    try:
        if store.is_sqlite:
            upgrade(store)
        elif wrong := check_schema(store):
            raise ValueError(wrong)
    except BaseException:
        store.close()
        raise
    return store


def check_storage(settings: Settings) -> None:
    """Write to the storage of large results, where there is to be one. Raises ValueError where that fails.

    One that does not answer is said in the log: it may do so later, and until then the database takes all.
    """
    if (objects := _objects(settings)) is None:
        return
    try:
        objects.check()
    except Problem as problem:
        _log.warning("the result storage does not answer", storage=objects.url, detail=problem.detail)


def _objects(settings: Settings) -> Objects | None:
    if settings.result_url is None:
        return None
    try:
        from service.store.objects import open_objects
    except ModuleNotFoundError:
        raise ValueError("ARENAPLAN_RESULT_URL needs a package: pip install 'obstore>=0.10'.") from None
    return open_objects(settings.result_url)


def _blobs(store: Store, settings: Settings, metrics: Metrics) -> Blobs:
    objects = _objects(settings)
    if objects is not None:
        metrics.result_storage(lambda: objects.available, lambda: objects.failures)
    return Blobs(store, objects, settings.result_bytes)


def _table(blobs: Blobs, settings: Settings) -> JobTable:
    return JobTable(
        blobs,
        limit=settings.job_limit,
        ttl_seconds=settings.job_ttl_seconds,
        max_attempts=settings.job_max_attempts,
    )


def _webhooks(store: Store, table: JobTable, settings: Settings) -> Webhooks | None:
    """None where there is nothing to sign with."""
    if settings.webhook_secret is None:
        return None

    def document(job: Job) -> bytes:
        return json.dumps(job_document(job, settings.root_path), ensure_ascii=False).encode()

    secret, private = settings.webhook_secret.get_secret_value(), settings.webhook_allow_private
    return Webhooks(store, table, secret, document, allow_private=private)
