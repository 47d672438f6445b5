"""Transactions in the database, from asyncio and from plain code."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Engine,
    cast,
    create_engine,
    event,
    extract,
    func,
    literal,
    make_url,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.problems import Problem

__all__ = ["Store", "open_store"]

T = TypeVar("T")

#: How long a transaction waits for that of another process. None of ours takes a second.
BUSY_SECONDS: Final = 20.0
#: Connections to PostgreSQL of one process, each with a thread.
CONNECTIONS: Final = 8
#: How long a connection to PostgreSQL may take to be made.
CONNECT_SECONDS: Final = 10

#: Seconds without a message after which PostgreSQL ends the transaction of a machine that is gone, and after
#: which we give up a connection. Locks would otherwise keep jobs from others for hours.
SILENT_SECONDS: Final = 20

_READ_ONLY: Final = "arenaplan_reads"


class Store:
    """A database whose work is done by a few threads of its own.

    A unit of work is a function of a connection, in one transaction: all of it happens, or nothing. Where the
    database cannot be reached, `Problem` ``database-unavailable`` is raised.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine: Final = engine
        # SQLite has one writer at a time, and readers that it does not keep waiting.
        writers, readers = (1, 2) if self.is_sqlite else (CONNECTIONS // 2, CONNECTIONS // 2)
        self._writers = ThreadPoolExecutor(writers, thread_name_prefix="arenaplan-writes")
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="arenaplan-reads")

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @property
    def now(self) -> ColumnElement[float]:
        """Seconds since 1970 by the one clock that all who share the database agree on."""
        if self.is_sqlite:
            return literal(time.time(), Double)
        return cast(extract("epoch", func.clock_timestamp()), Double)

    @contextlib.contextmanager
    def transaction(self, *, reads: bool = False) -> Iterator[Connection]:
        """A connection; committed at the end, unless there is an exception."""
        with _reachable(), self.engine.connect() as connection:
            if reads:
                connection = connection.execution_options(**{_READ_ONLY: True})
            with connection.begin():
                yield connection

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run a unit of work; from the event loop."""
        return await self._run(work, reads=False)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """As `write`, of work that changes nothing: it waits for no writer."""
        return await self._run(work, reads=True)

    async def _run(self, work: Callable[[Connection], T], *, reads: bool) -> T:
        def unit() -> T:
            with self.transaction(reads=reads) as connection:
                return work(connection)

        threads = self._readers if reads else self._writers
        return await asyncio.get_running_loop().run_in_executor(threads, unit)

    def close(self) -> None:
        """Wait for the work at hand, and let go of all connections."""
        for threads in (self._writers, self._readers):
            threads.shutdown(cancel_futures=True)
        self.engine.dispose()


@contextlib.contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        raise _unavailable(error) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise _unavailable(error) from error
        raise


def _unavailable(error: Exception) -> Problem:
    reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
    return Problem(
        "database-unavailable",
        f"The database does not answer: {reason:.200}.",
        remedy="Send the request again in a moment.",
        headers={"Retry-After": "2"},
    )


def open_store(url: str) -> Store:
    """The database at `url`: ``sqlite:///PATH`` or ``postgresql://...``. Connects when it is first used.

    The directory of an SQLite file is made if need be, for this user alone. Raises ValueError for a URL that
    is neither, OSError where the directory cannot be made.
    """
    try:
        address = make_url(url)
    except ArgumentError:
        raise ValueError(f"{url!r:.80} is not the URL of a database.") from None
    if address.get_backend_name() == "sqlite":
        if not address.database or address.database == ":memory:":
            raise ValueError("An SQLite database needs a file: sqlite:////path/of/arenaplan.db.")
        Path(address.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        engine = create_engine(address, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return Store(engine)
    if address.get_backend_name() in ("postgresql", "postgres"):
        try:
            engine = create_engine(
                address.set(drivername="postgresql+psycopg"),
                pool_size=CONNECTIONS,
                max_overflow=0,
                pool_timeout=CONNECT_SECONDS,
                pool_pre_ping=True,  # a database that was restarted has forgotten its connections
                connect_args={
                    "connect_timeout": CONNECT_SECONDS,
                    "tcp_user_timeout": SILENT_SECONDS * 1000,
                    "keepalives_idle": SILENT_SECONDS // 2,
                    "options": f"{address.query.get('options', '')}"
                    f" -c idle_in_transaction_session_timeout={SILENT_SECONDS}s",
                },
            )
        except ImportError:
            raise ValueError(
                "PostgreSQL needs packages: pip install 'procrastinate>=3' 'psycopg[binary,pool]>=3.2'."
            ) from None
        return Store(engine)
    raise ValueError(
        f"{address.get_backend_name()} is not supported: give sqlite:///PATH or postgresql://..."
    )


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # begin and commit are said by us, around changes of tables as well
    for pragma in ("journal_mode=wal", "synchronous=full", "foreign_keys=on"):
        connection.execute(f"pragma {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the lock at once: to take it half way fails where another has written meanwhile."""
    reads = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("begin" if reads else "begin immediate")
