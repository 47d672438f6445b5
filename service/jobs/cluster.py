"""The engine for many machines: jobs in PostgreSQL, handed out by Procrastinate to workers anywhere.

The table of jobs says what there is to do and how far it is. Procrastinate carries tickets: "look at this
job". A ticket that is lost is written again, one too many finds nothing to do.

    submit ──► table ──► ticket ──► fetched by a worker ──► claim in the table ──► run in its pool
                  ▲                                              │
                  └── rescue: the lease has run out, or there is no ticket
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.jobs import Status
from psycopg import AsyncConnection
from sqlalchemy import text

from service.jobs.engine import LOOK_SECONDS, JobEngine, Runner, forever
from service.jobs.model import Job, NewJob
from service.jobs.pool import WorkerPool, cancelled
from service.jobs.table import CHANNEL, JobTable
from service.store import Store
from service.store.database import LIBPQ

__all__ = ["API_CONNECTIONS", "WORKER_CONNECTIONS", "ClusterEngine", "ClusterWorker"]

_log = structlog.get_logger("service.jobs")

#: The queue of tickets, and the task that they name.
QUEUE: Final = "jobs"
TASK: Final = "arenaplan.look"
#: Looks at which a waiting job had no ticket until it gets another one: it may be about to be claimed.
PATIENCE: Final = 3
#: Seconds without a sign of life after which the ticket of a worker is taken back; it is looked for as often.
STALLED_SECONDS: Final = 8.0
#: Connections to PostgreSQL beside those of the store: an API writes tickets with one, and listens to the
#: news of jobs with another. A worker also listens for tickets.
API_CONNECTIONS: Final = 2
WORKER_CONNECTIONS: Final = 3
TICKET_CONNECTIONS: Final = 1
#: How long a caller waits for the ticket of a job; then it is written while nobody waits.
TICKET_SECONDS: Final = 0.5


_WITHOUT_TICKET: Final = text(
    """
    select id from jobs where state = 'queued' and not exists (
        select from procrastinate.procrastinate_jobs where status = 'todo' and queueing_lock = jobs.id
    ) order by id limit 1000
    """
)


def _address(store: Store) -> str:
    """The database as libpq is told."""
    return store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


def _options(part: str) -> dict[str, Any]:
    """How libpq connects; `part` is what PostgreSQL shows, unless the URL says something else."""
    return {"fallback_application_name": f"arenaplan {part}", **LIBPQ}


class _Tickets:
    """The queue of Procrastinate, in a schema of its own."""

    def __init__(self, store: Store) -> None:
        # It says of each ticket what the table says of each job.
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self._store = store
        self.app: Final = App(
            connector=PsycopgConnector(
                conninfo=_address(store),
                kwargs={"options": "-c search_path=procrastinate", **_options("tickets")},
                min_size=0,  # a database that is away keeps nobody from starting
                max_size=TICKET_CONNECTIONS,
                timeout=5.0,
                reconnect_timeout=5.0,  # pauses between attempts double until then
            )
        )

    async def write(self, job: str) -> None:
        """Let a worker look at the job. A ticket that cannot be written now is written by a worker later."""
        ticket = self.app.configure_task(TASK, queue=QUEUE, queueing_lock=job, allow_unknown=True)
        try:
            await ticket.defer_async(job=job)
        except AlreadyEnqueued:
            return
        except ConnectorException as error:
            _log.warning("a job has no ticket yet", job=job, detail=str(error))

    async def missing(self) -> list[str]:
        """Jobs that wait, and that no ticket asks to be looked at; the oldest."""
        rows = await self._store.read(lambda connection: connection.execute(_WITHOUT_TICKET).all())
        return [row.id for row in rows]

    async def tidy(self) -> None:
        """Remove tickets of workers that have died, also of those that another worker has removed."""
        for job in await self.app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS):
            assert job.id is not None
            await self.app.job_manager.finish_job_by_id_async(job.id, Status.FAILED, delete_job=True)


async def _listen(store: Store, heard: Callable[[str], Awaitable[None]]) -> None:
    """Hear of jobs that other processes cancel or end, until the connection is lost.

    Missed notices are found by polling.
    """
    connected = await AsyncConnection.connect(_address(store), autocommit=True, **_options("news"))
    async with connected as connection:
        await connection.execute(f"listen {CHANNEL}")
        async for notice in connection.notifies():
            await heard(notice.payload)


def _news(store: Store, heard: Callable[[str], Awaitable[None]]) -> asyncio.Task[None]:
    return asyncio.create_task(forever("news of jobs come late", lambda: _listen(store, heard)))


class ClusterEngine(JobEngine):
    """The engine of a replica of the API, which runs no jobs itself."""

    def __init__(self, store: Store, table: JobTable) -> None:
        super().__init__(table)
        self._store = store
        self._tickets = _Tickets(store)
        #: The one that listens, and those that write tickets.
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._tickets.app.open_async()
        self._tasks.add(_news(self._store, self._heard))

    async def close(self) -> None:
        await cancelled(self._tasks)
        await super().close()
        await self._tickets.app.close_async()

    async def _heard(self, job: str) -> None:
        self.poke(job)

    async def submit(self, job: NewJob) -> tuple[Job, bool]:
        submitted, new = await super().submit(job)
        if new:
            writing = asyncio.create_task(self._tickets.write(submitted.id))
            self._tasks.add(writing)
            writing.add_done_callback(self._tasks.discard)
            await asyncio.wait({writing}, timeout=TICKET_SECONDS)
        return submitted, new


class ClusterWorker:
    """Runs jobs in the workers of `pool`, whichever replica has accepted them.

    `heard` is called about once a second, as long as the database answers.
    """

    def __init__(
        self, store: Store, pool: WorkerPool, runner: Runner, heard: Callable[[], None] = lambda: None
    ) -> None:
        self._heard = heard
        self._pool = pool
        self._runner = runner
        self._tickets = _Tickets(store)
        self._tickets.app.task(name=TASK, queue=QUEUE)(self._look)
        self._store = store
        self._tasks: list[asyncio.Task[None]] = []
        self._untaken: dict[str, int] = {}
        self._tidied = -STALLED_SECONDS

    async def start(self) -> None:
        await self._tickets.app.open_async()
        self._runner.start(lambda _job: None)
        self._tasks = [
            asyncio.create_task(forever("tickets are not fetched", self._fetch)),
            asyncio.create_task(forever("jobs are not looked after", self._look_after)),
            _news(self._store, self._runner.look),
        ]

    async def close(self) -> None:
        """Give back all jobs that run here."""
        await self._runner.close()
        await cancelled(self._tasks)
        await self._tickets.app.close_async()

    async def drain(self, seconds: float) -> None:
        """Fetch no more tickets, and let running jobs finish within `seconds`."""
        fetching, *_ = self._tasks
        fetching.cancel()  # ends when what was fetched has
        await asyncio.wait({fetching}, timeout=seconds)

    async def _look(self, job: str) -> None:
        """Run the job that a ticket names."""
        async with self._pool.lease(patient=True) as worker:
            claim = await self._runner.claim(job)
            waits = claim is not None and await self._runner.run(claim, worker)
        if waits:
            await self._tickets.write(job)

    async def _fetch(self) -> None:
        """Fetch tickets until the connection is lost."""
        await self._tickets.app.run_worker_async(
            queues=[QUEUE],
            concurrency=self._pool.size,
            install_signal_handlers=False,
            delete_jobs="always",
            fetch_job_polling_interval=LOOK_SECONDS,
            update_heartbeat_interval=STALLED_SECONDS / 4,
            stalled_worker_timeout=STALLED_SECONDS,
        )

    async def _look_after(self) -> None:
        """Take up jobs whose worker is gone, and jobs whose ticket was lost."""
        for job in await self._runner.look_after():
            await self._tickets.write(job)
        self._heard()
        counts = {job: self._untaken.get(job, 0) + 1 for job in await self._tickets.missing()}
        self._untaken = {job: count for job, count in counts.items() if count < PATIENCE}
        for job in counts.keys() - self._untaken.keys():
            await self._tickets.write(job)
        if time.monotonic() > self._tidied + STALLED_SECONDS:
            self._tidied = time.monotonic()
            await self._tickets.tidy()
