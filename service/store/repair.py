"""Checking a database, and saving what can be read of a damaged SQLite file.

`examine` asks for every page (SQLite) or every table (PostgreSQL), and compares the tables with this version.
`recover` copies the rows that can be read into a new file, which takes the place of the damaged one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import JSON, Table, inspect, select, text, update
from sqlalchemy.dialects import sqlite

from service.problems import Problem
from service.store.database import Store, first_damage, open_store
from service.store.migrate import check_schema, known_revisions, upgrade
from service.store.schema import METADATA, blobs, jobs
from service.store.trouble import Reason

__all__ = ["examine", "recover"]

_READ_WHAT_CAN_BE: Final = "Run `arenaplan database recover`: it saves what can be read, and keeps the file."

#: What operators do about a database that cannot be used, by the reason.
_REMEDIES: Final = {
    Reason.SILENT: "See what holds its locks or stops it (pg_stat_activity), and run this again.",
    Reason.UNREACHABLE: "Start it, or set ARENAPLAN_DATABASE_URL to where it is.",
    Reason.DAMAGED: _READ_WHAT_CAN_BE,
    Reason.FULL: "Make room on its disk.",
    Reason.READ_ONLY: "Let this user write the file and its directory, or the database.",
    Reason.TABLES: "Run `arenaplan database upgrade`.",
    Reason.REPLACED: "Run this again.",
}
_RESTORE: Final = "Restore a backup of it, or ask `pg_amcheck` what else is damaged."

#: The bytes of an SQLite file that everybody locks who has it open, first and number: the shared range of the
#: lock-byte page (https://www.sqlite.org/fileformat2.html).
_SHARED_LOCK: Final = (0x40000002, 510)
#: Numbers of rows that are tried behind a damaged place where nothing tells the last row.
_MOST_TRIED: Final = 100_000


def examine(store: Store) -> str | None:
    """None where the service can use the database, else one sentence with the trouble and the remedy."""
    if store.is_sqlite and not store.file.exists():
        return f"There is no file {store.file}: `arenaplan database upgrade` makes it."
    if store.is_sqlite and not store.file.is_file():
        return f"{store.file} is not a regular file: move it away, or set ARENAPLAN_DATABASE_URL."
    try:
        if store.is_sqlite and (finding := first_damage(store.file, "integrity_check")):
            return f"{store.file} is damaged: {finding}. {_READ_WHAT_CAN_BE}"
        wrong = check_schema(store) or _missing_tables(store)
        if wrong is None and store.is_sqlite:
            with store.transaction() as connection:  # takes the lock of writers, and writes nothing
                connection.exec_driver_sql("delete from alembic_version where false")
        return wrong
    except Problem as problem:
        reason = Reason(problem.extensions["reason"])
        remedy = _REMEDIES[reason]
        if reason is Reason.DAMAGED and not store.is_sqlite:
            remedy = _RESTORE
        elif reason is Reason.UNREACHABLE and store.is_sqlite:
            remedy = _REMEDIES[Reason.READ_ONLY]
        return f"{problem.detail} {remedy}"


def _missing_tables(store: Store) -> str | None:
    """Reads from every table, and writes nothing: a sentence about the first that is not as it must be."""
    with store.transaction(reads=True) as connection:
        present = inspect(connection)
        names = set(present.get_table_names())
        for table in METADATA.sorted_tables:
            columns = (
                {one["name"] for one in present.get_columns(table.name)} if table.name in names else set()
            )
            if missing := sorted({column.name for column in table.columns} - columns):
                return (
                    f"The table {table.name} lacks {', '.join(missing)}: restore a backup of the database,"
                    " or take an empty one and run `arenaplan database upgrade`."
                )
            connection.execute(select(table).limit(1)).all()
        if not store.is_sqlite and connection.execute(text("show transaction_read_only")).scalar() == "on":
            return f"The database cannot be written. {_REMEDIES[Reason.READ_ONLY]}"
    return None


# ------------------------------------------------------------------------------------------ recovery


def recover(file: Path) -> Iterator[str]:
    """Put a new SQLite file with all rows that can be read in the place of a damaged one; lines tell of it.

    The damaged file is kept under another name. Requests whose bytes are lost make their jobs fail. A running
    service may go on: it lets go of a file that is damaged, and takes up the new one. Raises ValueError for a
    file that is not there, is not damaged, or is in use.
    """
    if not file.is_file():
        raise ValueError(f"There is no file {file}.")
    if (finding := first_damage(file, "integrity_check")) is None:
        yield f"{file} is not damaged: nothing was changed."
        return
    yield f"{file} is damaged: {finding}."
    if _is_open(file):
        raise ValueError(f"{file} is in use: stop the service, and run this again.")
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    fresh, kept = (file.with_name(f"{file.name}.{name}") for name in ("recovered", f"damaged-{now}"))
    for old in _parts(fresh):
        old.unlink(missing_ok=True)
    yield from _copy(file, fresh)
    # What stands beside the old file must never be read with the new one.
    for part, name in zip(_parts(file)[1:], _parts(kept)[1:], strict=True):
        with contextlib.suppress(FileNotFoundError):
            part.rename(name)
    kept.hardlink_to(file)
    fresh.replace(file)
    yield f"The damaged file is kept as {kept}."


def _parts(file: Path) -> tuple[Path, Path, Path]:
    """A database file, and those that SQLite keeps beside it."""
    return file, Path(f"{file}-wal"), Path(f"{file}-shm")


def _is_open(file: Path) -> bool:
    """Whether another process has the database open."""
    start, length = _SHARED_LOCK
    with file.open("r+b") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start, os.SEEK_SET)
        except OSError:
            return True
    return False


def _copy(file: Path, fresh: Path) -> Iterator[str]:
    """Make the new file with the rows of the old one; says of each table how many were read and lost."""
    store = open_store(f"sqlite:///{fresh}")
    with contextlib.closing(store), contextlib.closing(_Damaged(file)) as source:
        revision = source.revision()
        upgrade(store, revision if revision in known_revisions() else "head")
        for table in METADATA.sorted_tables:
            with store.transaction() as connection:
                if not inspect(connection).has_table(table.name):
                    continue
                present = inspect(connection).get_columns(table.name)
                # Columns that a later revision drops are not copied.
                columns = [column["name"] for column in present if column["name"] in table.c]
                rows = holes = wrong = 0
                for row in source.rows(table.name, columns):
                    if row is None:
                        holes += 1
                    elif not _is_sound(table, row):
                        wrong += 1
                    else:
                        insert = sqlite.insert(table).prefix_with("or ignore").values(row)
                        rows += connection.execute(insert).rowcount
            lost = f", {holes:,} places could not be read" if holes else ""
            lost += f", {wrong:,} rows were wrong" if wrong else ""
            yield f"{table.name}: {rows:,} rows{lost}."
        upgrade(store)
        if failed := _fail_jobs_without_request(store):
            yield f"{failed:,} jobs have lost their request, and have failed."


class _Damaged:
    """Reads rows of a damaged file around the places that cannot be read."""

    def __init__(self, file: Path) -> None:
        self._source = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        self._source.execute("pragma cell_size_check=on")

    def close(self) -> None:
        self._source.close()

    def revision(self) -> str | None:
        with contextlib.suppress(sqlite3.DatabaseError, TypeError, UnicodeDecodeError):
            return str(self._source.execute("select version_num from alembic_version").fetchone()[0])
        return None

    def rows(self, table: str, columns: list[str]) -> Iterator[dict[str, Any] | None]:
        """Rows in the order of their numbers; None for each place that cannot be read."""
        if not self._names_tables():
            yield None
            return
        query = f"select rowid, {', '.join(columns)} from {table} where rowid >= ? order by rowid"
        start = 0
        while True:
            try:
                for number, *values in self._source.execute(query, (start,)):
                    start = number + 1
                    yield dict(zip(columns, values, strict=True))
                return
            except sqlite3.DatabaseError as error:
                if "no such" in str(error):
                    return
                yield None
            later = range(start + 1, self._last_row(table, start) + 1)
            further = next((number for number in later if self._is_readable(table, number)), None)
            if further is None:
                return
            start = further

    def _names_tables(self) -> bool:
        """Whether the first page can be read, which leads to all others."""
        try:
            return bool(self._source.execute("select rootpage from sqlite_master").fetchall())
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return False

    def _is_readable(self, table: str, number: int) -> bool:
        """Whether the first row from `number` on can be read."""
        query = f"select * from {table} where rowid >= ? order by rowid limit 1"
        try:
            return self._source.execute(query, (number,)).fetchone() is not None
        except sqlite3.DatabaseError:
            return False

    def _last_row(self, table: str, known: int) -> int:
        """The number of the last row, from the table or an index of it, whichever can be read."""
        with contextlib.suppress(sqlite3.DatabaseError, TypeError):
            query = f"select rowid from {table} order by rowid desc limit 1"
            return int(self._source.execute(query).fetchone()[0])
        last = known
        with contextlib.suppress(sqlite3.DatabaseError):
            for _, index, *_ in self._source.execute(f"pragma index_list({table})").fetchall():
                with contextlib.suppress(sqlite3.DatabaseError):
                    query = f"select rowid from {table} indexed by {index}"
                    for (number,) in self._source.execute(query):
                        last = max(last, number)
        return last if last > known else known + _MOST_TRIED


def _is_sound(table: Table, row: dict[str, Any]) -> bool:
    """Whether the values of a row are what they must be; of bytes under their digest, that it is theirs.

    JSON is decoded in place, as it is written again by the table's own type.
    """
    for column in table.columns:
        if column.name not in row:
            continue
        value = row[column.name]
        if value is None:
            if not column.nullable:
                return False
            continue
        kind = column.type.python_type
        if isinstance(column.type, JSON):
            try:
                row[column.name] = json.loads(value)
            except (ValueError, TypeError):
                return False
        elif kind is bool:
            row[column.name] = bool(value)
        elif not isinstance(value, (int, float) if kind is float else kind):
            return False
    if table is blobs:
        return bool(hashlib.sha256(row["body"]).hexdigest() == row["digest"])
    return True


def _fail_jobs_without_request(store: Store) -> int:
    """End the jobs that cannot be run any more; how many these are."""
    lost = Problem(
        "database-unavailable",
        "The request of this job was lost with a damaged database.",
        remedy="Send it again.",
    )
    now = time.time()
    known = select(blobs.c.digest).where(blobs.c.tenant == jobs.c.tenant)
    without = update(jobs).where(
        jobs.c.state.in_(("queued", "running")),
        jobs.c.request.is_(None) | jobs.c.request.not_in(known) | jobs.c.graph.not_in(known),
    )
    ended = {
        "state": "failed", "error": lost.facts(), "finished": now, "expires": now + 7 * 86400, "owner": None,
        "lease": None, "request": None, "graph": None, "revision": jobs.c.revision + 1,
    }  # fmt: skip
    with store.transaction() as connection:
        return connection.execute(without.values(ended)).rowcount
