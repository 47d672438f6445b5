"""Transactions in the database, from asyncio and from plain code.

Every call from the event loop goes through `Store.run`, which answers within its time whatever the database
does. After silence, calls are refused at once for a moment, so that nobody waits again; then one call tries.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sqlite3
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Table,
    cast,
    create_engine,
    event,
    extract,
    func,
    literal,
    make_url,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from service.problems import Problem
from service.store.trouble import Reason, is_trouble, problem_of, reason_of

__all__ = ["LIBPQ", "Store", "first_damage", "open_store", "upsert"]

_log = structlog.get_logger("service.store")

T = TypeVar("T")

#: Connections of one process, each with a thread. SQLite has one writer at a time, and readers that it does
#: not keep waiting.
CONNECTIONS: Final = 4
SQLITE_THREADS: Final = (1, 2)
#: Seconds after which a caller gets no answer from the database. No request takes a tenth of it.
SECONDS: Final = 5.0
#: The database gives up before the caller does, so that it says why: shares of the caller's seconds.
STATEMENT_SHARE: Final = 0.8
LOCK_SHARE: Final = 0.6
#: Seconds in which a connection to PostgreSQL is made. The driver takes no fewer.
CONNECT_SECONDS: Final = 2
#: Seconds without a message after which PostgreSQL ends the transaction of a machine that is gone, and after
#: which we give up a connection. Locks would otherwise keep jobs from others for hours.
SILENT_SECONDS: Final = 20
LIBPQ: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": SILENT_SECONDS * 1000,
    "keepalives_idle": SILENT_SECONDS // 2,
}
#: Seconds after silence in which calls are refused at once.
PAUSE_SECONDS: Final = 2.0
#: Seconds for which a database counts as full, or as read-only, after it was: small changes still succeed.
HOLD_SECONDS: Final = 30.0

_READ_ONLY: Final = "arenaplan_reads"
#: Errors of the driver come as they are from a new connection, else inside those of SQLAlchemy.
_OF_DATABASES: Final = (SQLAlchemyError, OSError, sqlite3.Error)
#: What our code raises where a damaged file gives it wrong bytes, and no error.
_OF_WRONG_BYTES: Final = (ValueError, TypeError, LookupError, AssertionError)


class _Call:
    """A call in a thread. Once it is abandoned, its connection is cut, which ends the thread's wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Any = None
        self._abandoned = False

    def uses(self, connection: Any) -> None:
        """The call waits for this connection of the driver from now on; None: for none."""
        with self._lock:
            self._connection = connection
            if self._abandoned and connection is not None:
                _cut(connection)

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._connection is not None:
                _cut(self._connection)


def _cut(connection: Any) -> None:
    """End what a connection of the driver waits for, from another thread."""
    try:
        if isinstance(connection, sqlite3.Connection):
            connection.interrupt()
            return
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)
    except Exception:  # noqa: BLE001 - closed meanwhile, of which each layer says something else
        return


class _Lane:
    """The threads for reading, or those for writing, and whether the database has answered the last call."""

    def __init__(self, threads: int, name: str) -> None:
        self.threads: Final = ThreadPoolExecutor(threads, thread_name_prefix=f"arenaplan-{name}")
        self.trouble: Problem | None = None
        self._refuses_until = self._lasts_until = 0.0
        #: When the present trouble was met.
        self.failed_at = 0.0

    def admit(self, seconds: float) -> None:
        """Raises the last trouble while the database was silent a moment ago. Then one caller tries."""
        now = time.monotonic()
        if self.trouble is not None and now < self._refuses_until:
            raise Problem(**self.trouble.facts())
        self._refuses_until = now + seconds

    def answered(self) -> None:
        """The database has answered, which ends a trouble that does not last."""
        self._refuses_until = 0.0
        if time.monotonic() >= self._lasts_until:
            self.trouble, self.failed_at = None, 0.0

    def failed(self, problem: Problem) -> None:
        """The database has not answered, or only with `problem`."""
        now, reason = time.monotonic(), problem.extensions["reason"]
        self.trouble, self.failed_at = problem, now
        self._refuses_until = now + PAUSE_SECONDS if reason == Reason.SILENT else 0.0
        self._lasts_until = now + HOLD_SECONDS if reason in (Reason.FULL, Reason.READ_ONLY) else 0.0


class Store:
    """A database whose work is done by a few threads of its own.

    A unit of work is a function of a connection, in one transaction: all of it happens, or nothing. Where the
    database cannot be used, `Problem` ``database-unavailable`` is raised; its `reason` says why.
    """

    def __init__(self, engine: Engine, connections: int = CONNECTIONS, seconds: float = SECONDS) -> None:
        self.engine: Final = engine
        self.seconds: Final = seconds
        #: Calls that failed, by `Reason`.
        self.failures: Final[Counter[str]] = Counter({reason.value: 0 for reason in Reason})
        half = connections // 2
        writers, readers = SQLITE_THREADS if self.is_sqlite else (half, connections - half)
        self._writers = _Lane(writers, "writes")
        self._readers = _Lane(readers, "reads")
        self._here = threading.local()
        self._damaged_file: int | None = None
        #: Device and inode of the SQLite file that was opened first, and of its log since it is open.
        self._opened_file: tuple[int, int] | None = None
        self._opened_log: tuple[int, int] | None = None
        self._file_bytes = 0
        event.listen(engine, "connect", self._connected, insert=True)
        if self.is_sqlite:
            event.listen(engine, "do_connect", self._before_connecting)
            event.listen(engine, "connect", self._note_files)
        event.listen(engine, "checkout", self._checked_out)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @property
    def file(self) -> Path:
        """The file of an SQLite database."""
        return Path((self.engine.url.database or "").removeprefix("file:"))

    @property
    def _log(self) -> Path:
        """The write-ahead log of an SQLite database."""
        return Path(f"{self.file.resolve()}-wal")

    @property
    def now(self) -> ColumnElement[float]:
        """Seconds since 1970 by the one clock that all who share the database agree on."""
        if self.is_sqlite:
            return literal(time.time(), Double)
        return cast(extract("epoch", func.clock_timestamp()), Double)

    @property
    def trouble(self) -> Problem | None:
        """Why the last call failed of those that read, or that write; None if both succeeded. Asks nobody."""
        return max((self._writers, self._readers), key=lambda lane: lane.failed_at).trouble

    @contextlib.contextmanager
    def transaction(self, *, reads: bool = False) -> Iterator[Connection]:
        """A connection; committed at the end, unless there is an exception."""
        with self._in_words(), self.engine.connect() as connection:
            if reads:
                connection = connection.execution_options(**{_READ_ONLY: True})
            try:
                self._check_files()
                with connection.begin():
                    yield connection
                if not reads:  # what was written into a file that is gone is lost
                    self._check_files()
            finally:
                if self._damaged_file is not None:  # met by another thread: it cannot close our connection
                    connection.invalidate()

    async def write(self, work: Callable[[Connection], T], *, seconds: float | None = None) -> T:
        """Run a unit of work; from the event loop. It may take `seconds`, by default those of the store."""
        return await self.run(lambda: self._unit(work, reads=False, seconds=seconds), seconds=seconds)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """As `write`, of work that changes nothing: it waits for no writer."""
        return await self.run(lambda: self._unit(work, reads=True, seconds=None), reads=True)

    def _unit(self, work: Callable[[Connection], T], *, reads: bool, seconds: float | None) -> T:
        with self.transaction(reads=reads) as connection:
            if seconds is not None and not self.is_sqlite:
                timeout = f"{seconds * STATEMENT_SHARE:.3f}s"
                connection.execute(func.set_config("statement_timeout", timeout, True).select())
            return work(connection)

    async def run(self, call: Callable[[], T], *, reads: bool = False, seconds: float | None = None) -> T:
        """What `call` returns, which works with `transaction` in a thread, from the event loop.

        Raises `Problem` where the database cannot be used, or has not answered within the seconds.
        """
        lane, limit = self._readers if reads else self._writers, seconds or self.seconds
        self._check_file()
        lane.admit(limit)
        record, loop = _Call(), asyncio.get_running_loop()
        future = loop.run_in_executor(lane.threads, self._perform, record, call)
        # Also where the caller has gone meanwhile: a thread must not wait for ever.
        timer = loop.call_later(limit, record.abandon)
        try:
            async with asyncio.timeout(limit) as deadline:
                result = await future
        except TimeoutError:
            if not deadline.expired():
                raise
            record.abandon()
            problem = problem_of(Reason.SILENT, f"no answer within {limit:g} s")
            self._tell(lane, problem)
            raise problem from None
        except Problem as problem:
            timer.cancel()
            if problem.kind.code == "database-unavailable":
                self._tell(lane, problem)
            else:  # what is wrong with the request was found in the database
                self._answered(lane)
            raise
        timer.cancel()
        self._answered(lane)
        return result

    def _answered(self, lane: _Lane) -> None:
        before = self.trouble
        if self._damaged_file is None:  # else the call had begun before the damage was met
            lane.answered()
        if before is not None and self.trouble is None:
            _log.info("the database answers again", database=self._name)

    def _perform(self, record: _Call, call: Callable[[], T]) -> T:
        self._here.call = record
        try:
            return call()
        finally:
            self._here.call = None
            record.uses(None)

    def _tell(self, lane: _Lane, problem: Problem) -> None:
        reason = problem.extensions["reason"]
        self.failures[reason] += 1
        before = self.trouble
        lane.failed(problem)
        if before is None or before.extensions != problem.extensions:
            _log.warning(
                "the database cannot be used",
                database=self._name,
                reason=reason,
                detail=problem.detail,
                remedy=problem.remedy,
            )

    @property
    def _name(self) -> str:
        return self.engine.url.render_as_string(hide_password=True)

    def _connected(self, connection: Any, _record: Any) -> None:
        if (record := getattr(self._here, "call", None)) is not None:
            record.uses(connection)

    def _checked_out(self, connection: Any, _record: Any, _proxy: Any) -> None:
        self._connected(connection, _record)
        if self.is_sqlite:
            return
        try:  # a database that was restarted has forgotten its connections
            connection.autocommit = True
            connection.execute("select 1")
            connection.autocommit = False
        except Exception as error:
            raise InvalidatePoolError from error

    # ----------------------------------------------------------------------------------- trouble

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        """Turn what is wrong with the database into a `Problem`. Mistakes of ours stay what they are."""
        try:
            yield
        except (*_OF_DATABASES, *_OF_WRONG_BYTES) as error:
            if not is_trouble(error):
                if not self.is_sqlite or (damage := self._damage()) is None:
                    raise
                raise self._damaged(damage) from error
            reason = reason_of(error)
            message = str(getattr(error, "orig", None) or getattr(error, "strerror", None) or error)
            if reason is Reason.DAMAGED and self.is_sqlite:
                raise self._damaged(message) from error
            raise problem_of(reason, message) from error

    def _damage(self) -> str | None:
        """The first finding of a quick look through an SQLite file; None if it is whole."""
        return first_damage(self.file, "quick_check", self.seconds, lambda one: self._connected(one, None))

    def _damaged(self, message: str) -> Problem:
        """From now on nobody touches the file: writing would make it worse, and its locks would keep others
        from mending it. Until another file has taken its place.
        """
        with contextlib.suppress(OSError):
            self._damaged_file = self.file.stat().st_ino
        self.engine.dispose()
        return problem_of(Reason.DAMAGED, message)

    def _check_file(self) -> None:
        """Raises `Problem` for an SQLite file that is known to be damaged."""
        if self._damaged_file is None:
            return
        with contextlib.suppress(OSError):
            if self.file.stat().st_ino != self._damaged_file:
                self._damaged_file = self._opened_file = None
                return
        known = (lane.trouble for lane in (self._writers, self._readers))
        damage = (one for one in known if one is not None and one.extensions["reason"] == Reason.DAMAGED)
        raise Problem(**next(damage, problem_of(Reason.DAMAGED, "it was met before")).facts())

    def _before_connecting(self, *_: Any) -> None:
        """Make an SQLite file unless it was opened before: no empty file takes the place of one that is gone.

        Raises OSError for a path that leads to no regular file.
        """
        pool = self.engine.pool
        if not isinstance(pool, QueuePool) or pool.checkedin() + pool.checkedout() <= 1:
            self._opened_log = None  # no connection has it open: SQLite has removed it
        if self._opened_file is not None:
            self._check_files()
        elif self.engine.url.query.get("mode") != "ro":
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # SQLite gives the files beside it the same mode
                os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if not stat.S_ISREG(self.file.stat().st_mode):
            raise OSError(errno.EISDIR, "it is not a regular file")

    def _note_files(self, connection: Any, _record: Any) -> None:
        """Remember which files are open; until all connections are closed no others get their inodes."""
        connection.execute("select count(*) from sqlite_master").close()  # opens the log
        self._opened_file = self._opened_file or _identity(self.file)
        self._opened_log = self._opened_log or _identity(self._log)

    def _check_files(self) -> None:
        """Raises `Problem` where the paths of an SQLite database lead to other files than it has open."""
        if not self.is_sqlite:
            return
        current = _identity(self.file)
        if current is None or current != self._opened_file:
            raise problem_of(Reason.REPLACED, "it is gone" if current is None else "another file is there")
        if self._opened_log is not None and _identity(self._log) != self._opened_log:
            raise problem_of(Reason.REPLACED, "its write-ahead log (-wal) is gone or another one")
        size, before = self.file.stat().st_size, self._file_bytes
        if size < before and (damage := self._damage()):
            raise self._damaged(damage)
        self._file_bytes = size  # last: until then every thread that meets the smaller file looks for damage

    def close(self) -> None:
        """Wait for the work at hand, and let go of all connections."""
        for lane in (self._writers, self._readers):
            lane.threads.shutdown(cancel_futures=True)
        self.engine.dispose()


def open_store(
    url: str, *, connections: int = CONNECTIONS, seconds: float = SECONDS, role: str = "tool"
) -> Store:
    """The database at `url`: ``sqlite:///PATH`` or ``postgresql://...``. Connects when it is first used.

    At most `connections` are made to PostgreSQL, which shows them as ``arenaplan ROLE``; an answer may take
    `seconds`. An SQLite file is made if need be, and its directory, both for this user alone.

    Raises ValueError for a URL that is neither.
    """
    try:
        address = make_url(url)
    except ArgumentError:
        raise ValueError(f"{url!r:.80} is not the URL of a database.") from None
    if address.get_backend_name() == "sqlite":
        if not address.database or address.database == ":memory:":
            raise ValueError("An SQLite database needs a file: sqlite:////path/of/arenaplan.db.")
        return Store(_sqlite(address, seconds), seconds=seconds)
    if address.get_backend_name() in ("postgresql", "postgres"):
        return Store(_postgresql(address, connections, seconds, role), connections, seconds)
    raise ValueError(
        f"{address.get_backend_name()} is not supported: give sqlite:///PATH or postgresql://..."
    )


def _postgresql(address: URL, connections: int, seconds: float, role: str) -> Engine:
    timeouts = {
        "statement_timeout": seconds * STATEMENT_SHARE,
        "lock_timeout": seconds * LOCK_SHARE,
        "idle_in_transaction_session_timeout": SILENT_SECONDS,
    }
    options = "".join(f" -c {name}={1000 * value:.0f}ms" for name, value in timeouts.items())
    try:
        return create_engine(
            address.set(drivername="postgresql+psycopg"),
            pool_size=connections,
            max_overflow=0,
            pool_timeout=seconds,
            connect_args={
                **LIBPQ,
                "fallback_application_name": f"arenaplan {role}",
                "options": f"{address.query.get('options', '')}{options}",
            },
        )
    except ImportError:
        raise ValueError(
            "PostgreSQL needs packages: pip install 'procrastinate>=3' 'psycopg[binary,pool]>=3.2'."
        ) from None


def _sqlite(address: URL, seconds: float) -> Engine:
    engine = create_engine(address, connect_args={"timeout": seconds * STATEMENT_SHARE})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None where it cannot be reached."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def first_damage(
    file: Path,
    check: str,
    seconds: float = SECONDS,
    connected: Callable[[sqlite3.Connection], None] = lambda _connection: None,
) -> str | None:
    """The first finding of a check of SQLite's own; None if the file is whole, or cannot be looked at.

    ``quick_check`` reads every page, ``integrity_check`` compares the indexes as well.
    """
    try:
        address = f"{file.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, timeout=seconds, uri=True)) as connection:
            connected(connection)
            (finding,) = connection.execute(f"pragma {check}(1)").fetchone()
            connection.execute("select * from sqlite_master").fetchall()
    except UnicodeDecodeError:  # SQLite's message has a name of the schema
        finding = "a name in its schema is not UTF-8"
    except sqlite3.Error as error:
        if reason_of(error) is not Reason.DAMAGED:
            return None
        finding = str(error)
    return None if finding == "ok" else " ".join(finding.split()).removeprefix("*** in database main *** ")


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # begin and commit are said by us, around changes of tables as well
    for pragma in ("journal_mode=wal", "synchronous=full", "foreign_keys=on"):
        connection.execute(f"pragma {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the lock at once: to take it half way fails where another has written meanwhile."""
    reads = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("begin" if reads else "begin immediate")


def upsert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insertion that may say what to do about a row that is there already."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement: postgresql.Insert | sqlite.Insert = dialect.insert(table)
    return statement
