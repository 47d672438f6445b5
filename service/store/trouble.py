"""Errors of a database as problems: the trouble in one sentence, and what its operator does about it."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.problems import Problem

__all__ = ["Reason", "is_trouble", "problem_of", "reason_of"]

#: When a caller may send its request again.
RETRY_SECONDS: Final = 2


class Reason(StrEnum):
    """What keeps a database from being used: the member `reason` of the problem ``database-unavailable``."""

    SILENT = "silent"
    UNREACHABLE = "unreachable"
    DAMAGED = "damaged"
    FULL = "full"
    READ_ONLY = "read-only"
    TABLES = "tables"
    REPLACED = "replaced"


_WITHOUT: Final = "Plans are made without the database."
_PUT_BACK: Final = (
    "Its operator puts the same file back; or stops the service, puts a whole database there (or none, for a"
    " new one), runs `arenaplan database check`, and starts the service."
)
_SENTENCES: Final[Mapping[Reason, tuple[str, str]]] = {
    Reason.SILENT: (
        "The database does not answer in time",
        f"Send the request again in a moment. {_WITHOUT}",
    ),
    Reason.UNREACHABLE: (
        "The database does not answer",
        f"Send it again; if that does not help, its operator runs `arenaplan database check`. {_WITHOUT}",
    ),
    Reason.DAMAGED: (
        "The database is damaged",
        f"Its operator runs `arenaplan database check`, then `arenaplan database recover`. {_WITHOUT}",
    ),
    Reason.FULL: (
        "The database has no room left",
        f"Its operator makes room on its disk. {_WITHOUT}",
    ),
    Reason.READ_ONLY: (
        "The database cannot be written",
        f"Its operator lets the service write it; `arenaplan database check` looks at it. {_WITHOUT}",
    ),
    Reason.TABLES: (
        "The database has not the tables of this version",
        f"Its operator runs `arenaplan database check`, then `arenaplan database upgrade`. {_WITHOUT}",
    ),
    Reason.REPLACED: (
        "The file of the database is gone or was replaced",
        f"{_PUT_BACK} {_WITHOUT}",
    ),
}

#: Result codes of SQLite (https://www.sqlite.org/rescode.html), extended or primary; all others: unreachable.
_SQLITE: Final[Mapping[int, Reason]] = {
    sqlite3.SQLITE_BUSY: Reason.SILENT,
    sqlite3.SQLITE_LOCKED: Reason.SILENT,
    sqlite3.SQLITE_INTERRUPT: Reason.SILENT,
    sqlite3.SQLITE_CORRUPT: Reason.DAMAGED,
    sqlite3.SQLITE_NOTADB: Reason.DAMAGED,
    sqlite3.SQLITE_FULL: Reason.FULL,
    sqlite3.SQLITE_READONLY: Reason.READ_ONLY,
    sqlite3.SQLITE_PERM: Reason.READ_ONLY,
    sqlite3.SQLITE_ERROR: Reason.TABLES,
    sqlite3.SQLITE_IOERR_WRITE: Reason.READ_ONLY,
    sqlite3.SQLITE_IOERR_FSYNC: Reason.READ_ONLY,
    sqlite3.SQLITE_IOERR_TRUNCATE: Reason.READ_ONLY,
    sqlite3.SQLITE_IOERR_SHMSIZE: Reason.READ_ONLY,
}
#: SQLSTATE of PostgreSQL, whole or its class of two characters; all others: unreachable.
_POSTGRESQL: Final[Mapping[str, Reason]] = {
    "57014": Reason.SILENT,  # query_canceled: the timeout of a statement
    "55P03": Reason.SILENT,  # lock_not_available
    "25P03": Reason.SILENT,  # idle_in_transaction_session_timeout
    "XX001": Reason.DAMAGED,
    "XX002": Reason.DAMAGED,
    "53100": Reason.FULL,
    "25006": Reason.READ_ONLY,
    "42P01": Reason.TABLES,
    "42703": Reason.TABLES,
    "42501": Reason.TABLES,
}
#: Of the file system; all others: unreachable.
_ERRNO: Final[Mapping[int | None, Reason]] = {
    errno.ENOSPC: Reason.FULL,
    errno.EDQUOT: Reason.FULL,
    errno.ENOENT: Reason.REPLACED,
    errno.EROFS: Reason.READ_ONLY,
    errno.EACCES: Reason.READ_ONLY,
    errno.EPERM: Reason.READ_ONLY,
}
#: Classes of SQLSTATE that are mistakes of ours, and no trouble of the database.
_MISTAKES: Final = frozenset({"22", "23", "42"})
_SQLITE_MISTAKES: Final = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    sqlite3.NotSupportedError,
)


def is_trouble(error: Exception) -> bool:
    """Whether the database is to blame; else the error is a mistake in what it was asked."""
    if isinstance(error, (OSError, PoolTimeoutError)):
        return True
    cause = _driver_error(error)
    if cause is None or isinstance(cause, _SQLITE_MISTAKES):
        return False
    state = getattr(cause, "sqlstate", None)
    return state is None or state in _POSTGRESQL or state[:2] not in _MISTAKES


def reason_of(error: Exception) -> Reason:
    """Why the database cannot be used, of an error that `is_trouble`."""
    if isinstance(error, OSError):
        return _ERRNO.get(error.errno, Reason.UNREACHABLE)
    cause = _driver_error(error)
    if isinstance(error, PoolTimeoutError) or type(cause).__name__ == "ConnectionTimeout":
        return Reason.SILENT
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", None)
        if code is None:
            return Reason.DAMAGED if "decode to UTF-8" in str(cause) else Reason.UNREACHABLE
        return _SQLITE.get(code) or _SQLITE.get(code & 0xFF, Reason.UNREACHABLE)
    return _POSTGRESQL.get(getattr(cause, "sqlstate", None) or "", Reason.UNREACHABLE)


def problem_of(reason: Reason, message: str) -> Problem:
    """The problem that callers get; `message` is that of the driver, of which the first line is shown."""
    sentence, remedy = _SENTENCES[reason]
    return Problem(
        "database-unavailable",
        f"{sentence}: {message.strip().partition(chr(10))[0].rstrip('.'):.200}.",
        remedy=remedy,
        extensions={"reason": str(reason)},
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


def _driver_error(error: Exception) -> BaseException | None:
    """The error of the driver: what SQLAlchemy has wrapped, or what came from a new connection as it is."""
    if isinstance(error, DBAPIError):
        return error.orig
    if isinstance(error, SQLAlchemyError):
        return None
    module = type(error).__module__
    return error if module == "sqlite3" or module.partition(".")[0] == "psycopg" else None
