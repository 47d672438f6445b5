"""Bytes under their SHA-256: requests, graphs, results. Each tenant has its own.

They are in the database, but for large results where there is a storage for those. Requests and graphs always
are: a job needs nothing else to be begun. What the storage does not take, the database does.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import structlog
from sqlalchemy import Connection, Table, delete, select, tuple_, union_all, update
from sqlalchemy.dialects import postgresql, sqlite

from service.problems import Problem
from service.store import Store
from service.store.schema import blobs, graphs, jobs, removals, results

if TYPE_CHECKING:
    from service.store.objects import Objects

__all__ = [
    "SPARE_SECONDS",
    "Blob",
    "Blobs",
    "Graphs",
    "Results",
    "StoredGraph",
    "get_blob",
    "graph_not_found",
    "keep_blob",
    "keep_result",
    "put_blob",
    "remove_blobs",
    "touch_blob",
    "upsert",
]

_log = structlog.get_logger("service.jobs")

#: Seconds for which bytes without references are kept: a request may be about to refer to them.
SPARE_SECONDS: Final = 3600.0
#: Objects that one look removes at most.
REMOVED_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes as a row has them; `object` names where they are instead of in `body`."""

    digest: str
    body: bytes
    object: str | None = None


class Blobs:
    """Where bytes are that transactions refer to: `store` has the rows, `objects` what is at least `large`.

    Objects are transferred before a transaction or after it, never while the database waits.
    """

    def __init__(self, store: Store, objects: Objects | None = None, large: int = 0) -> None:
        self.store: Final = store
        self._objects = objects
        self._large = large

    async def place(self, tenant: str, body: bytes) -> Blob:
        """The bytes of a result, ready for `put_blob`; in the storage if they are large and it takes them."""
        if self._objects is None or len(body) < self._large:
            return _blob(body)
        blob = await asyncio.to_thread(_blob, body)
        if await self.store.write(lambda connection: touch_blob(connection, tenant, blob.digest)):
            return blob
        # Another name each time: an object that is about to be removed is not the one that comes now.
        name = f"tenant={quote(tenant, safe='')}/{blob.digest}-{secrets.token_hex(8)}"
        row = {"object": name, "due": time.time() + SPARE_SECONDS}
        await self.store.write(lambda connection: connection.execute(removals.insert().values(row)))
        try:
            await self._objects.put(name, body)
        except Problem:  # said in the log, counted in the metrics
            return blob
        return Blob(blob.digest, body, name)

    async def load(self, blob: Blob | None) -> bytes | None:
        """The bytes; None where they are not kept any more. Raises `Problem` ``storage-unavailable``."""
        if blob is None or blob.object is None:
            return None if blob is None else blob.body
        if self._objects is None:
            raise Problem(
                "storage-unavailable",
                "The result is in a storage that this service does not know.",
                remedy="Tell its operator to set ARENAPLAN_RESULT_URL, as it was when the result was made.",
            )
        body = await self._objects.get(blob.object)
        if body is None:
            _log.warning("a result is missing in its storage", object=blob.object)
        elif (await asyncio.to_thread(_blob, body)).digest != blob.digest:
            _log.error("a result was changed in its storage", object=blob.object)
            return None
        return body

    async def remove_objects(self) -> None:
        """Remove objects that no blob needs any more; as many as a moment allows."""
        if self._objects is None:
            return
        query = select(removals.c.object).where(removals.c.due < time.time()).limit(REMOVED_AT_ONCE)
        due = await self.store.read(lambda connection: connection.execute(query).scalars().all())
        for name in due:
            await self._objects.remove(name)
        gone = delete(removals).where(removals.c.object.in_(due))
        await self.store.write(lambda connection: connection.execute(gone))


def _blob(body: bytes) -> Blob:
    return Blob(hashlib.sha256(body).hexdigest(), body)


def upsert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insertion that may say what to do about a row that is there already."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement: postgresql.Insert | sqlite.Insert = dialect.insert(table)
    return statement


def put_blob(connection: Connection, tenant: str, body: bytes) -> str:
    """Keep the bytes in the database, for who needs them there; their digest."""
    blob = _blob(body)
    here = (blobs.c.tenant == tenant, blobs.c.digest == blob.digest)
    query = select(blobs.c.object).where(*here).with_for_update()
    if name := connection.execute(query).scalar_one_or_none():
        connection.execute(update(blobs).where(*here).values(body=body, object=None))
        _remove_soon(connection, name)
    return keep_blob(connection, tenant, blob)


def keep_blob(connection: Connection, tenant: str, blob: Blob) -> str:
    """Keep bytes where `Blobs.place` has placed them, unless they are kept already; their digest."""
    if not touch_blob(connection, tenant, blob.digest):
        taken = delete(removals).where(removals.c.object == blob.object)
        name = blob.object if blob.object and connection.execute(taken).rowcount else None
        row = {
            "tenant": tenant, "digest": blob.digest, "size": len(blob.body), "touched": time.time(),
            "body": b"" if name else blob.body, "object": name,
        }  # fmt: skip
        insert = upsert(connection, blobs).values(row)
        insert = insert.on_conflict_do_update(
            index_elements=["tenant", "digest"], set_={"touched": row["touched"]}
        )
        kept = connection.execute(insert.returning(blobs.c.object)).scalar_one()
        if name and kept != name:  # another process was faster
            _remove_soon(connection, name)
    return blob.digest


def _remove_soon(connection: Connection, name: str) -> None:
    """Schedule the removal of an object for a time when no reader can still have it open."""
    connection.execute(removals.insert().values(object=name, due=time.time() + SPARE_SECONDS))


def touch_blob(connection: Connection, tenant: str, digest: str) -> bool:
    """Whether the bytes are there; they are not removed while this transaction lasts, nor for an hour."""
    there = update(blobs).where(blobs.c.tenant == tenant, blobs.c.digest == digest)
    return connection.execute(there.values(touched=time.time())).rowcount == 1


def get_blob(connection: Connection, tenant: str, digest: str) -> Blob | None:
    """Where the bytes of a digest are, for `Blobs.load` after the transaction."""
    query = select(blobs.c.body, blobs.c.object).where(blobs.c.tenant == tenant, blobs.c.digest == digest)
    row = connection.execute(query).one_or_none()
    return None if row is None else Blob(digest, bytes(row.body), row.object)


def remove_blobs(connection: Connection, before: float) -> None:
    """Remove bytes without references that were not touched since `before`."""
    used = union_all(
        *(
            select(jobs.c.tenant, part).where(part.is_not(None))
            for part in (jobs.c.request, jobs.c.graph, jobs.c.result)
        ),
        select(results.c.tenant, results.c.blob),
        select(graphs.c.tenant, graphs.c.digest),
    )
    old = delete(blobs).where(blobs.c.touched < before, tuple_(blobs.c.tenant, blobs.c.digest).not_in(used))
    for name in connection.execute(old.returning(blobs.c.object)).scalars().all():
        if name is not None:
            _remove_soon(connection, name)


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A graph, or a model of another tool, as it was sent."""

    media_type: str
    body: bytes


class Graphs:
    """Graphs and models that jobs can name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, tenant: str, digest: str, graph: StoredGraph) -> bool:
        """Keep the graph; whether it is new. Raises `Problem` ``digest-mismatch``."""

        def put(connection: Connection) -> bool:
            computed = put_blob(connection, tenant, graph.body)
            if computed != digest:
                raise Problem(
                    "digest-mismatch",
                    f"The body has the SHA-256 {computed}, not {digest!r:.80}.",
                    remedy=f"Send it to /v1/graphs/{computed}.",
                )
            row = {"tenant": tenant, "digest": digest, "media_type": graph.media_type}
            insert = upsert(connection, graphs).values(**row, created=time.time())
            insert = insert.on_conflict_do_nothing()
            is_new = connection.execute(insert.returning(graphs.c.digest)).first() is not None
            if not is_new:
                here = update(graphs).where(graphs.c.tenant == tenant, graphs.c.digest == digest)
                connection.execute(here.values(media_type=graph.media_type, created=time.time()))
            return is_new

        return await self._store.write(put)

    async def get(self, tenant: str, digest: str) -> StoredGraph:
        """Raises `Problem` ``graph-not-found``."""

        def get(connection: Connection) -> StoredGraph | None:
            media_type = media_type_of(connection, tenant, digest)
            blob = None if media_type is None else get_blob(connection, tenant, digest)
            return None if media_type is None or blob is None else StoredGraph(media_type, blob.body)

        graph = await self._store.read(get)
        if graph is None:
            raise graph_not_found(digest)
        return graph

    async def media_type(self, tenant: str, digest: str) -> str:
        """The media type of a stored graph. Raises `Problem` ``graph-not-found``."""
        declared = await self._store.read(lambda connection: media_type_of(connection, tenant, digest))
        if declared is None:
            raise graph_not_found(digest)
        return declared

    async def remove(self, tenant: str, digest: str) -> None:
        """Forget the graph; jobs that refer to it keep it. Raises `Problem` ``graph-not-found``."""
        here = delete(graphs).where(graphs.c.tenant == tenant, graphs.c.digest == digest)
        if not await self._store.write(lambda connection: connection.execute(here).rowcount):
            raise graph_not_found(digest)


def media_type_of(connection: Connection, tenant: str, digest: str) -> str | None:
    """The media type of a stored graph; None where there is none."""
    query = select(graphs.c.media_type).where(graphs.c.tenant == tenant, graphs.c.digest == digest)
    media_type: str | None = connection.execute(query).scalar_one_or_none()
    return media_type


def graph_not_found(digest: str) -> Problem:
    return Problem(
        "graph-not-found",
        f"No graph {digest!r:.80} is stored here.",
        remedy="PUT its bytes to /v1/graphs/ and their SHA-256.",
    )


class Results:
    """Answers by the key of their request: what the cache of one process forgets, or never knew."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def by_key(self, tenant: str, key: str) -> tuple[str, bytes] | None:
        """Name and body of the answer to a request. May raise `Problem` ``storage-unavailable``."""

        def find(connection: Connection) -> tuple[str, Blob | None] | None:
            query = select(results.c.name, results.c.blob).where(
                results.c.tenant == tenant, results.c.key == key
            )
            row = connection.execute(query).one_or_none()
            return None if row is None else (row.name, get_blob(connection, tenant, row.blob))

        result = await self._blobs.store.read(find)
        if result is None:
            return None
        name, blob = result
        body = await self._blobs.load(blob)
        return None if body is None else (name, body)

    async def by_name(self, tenant: str, name: str) -> bytes | None:
        """The body of an answer by collection and digest. May raise `Problem` ``storage-unavailable``."""

        def find(connection: Connection) -> Blob | None:
            query = select(results.c.blob).where(results.c.tenant == tenant, results.c.name == name).limit(1)
            blob = connection.execute(query).scalar_one_or_none()
            return None if blob is None else get_blob(connection, tenant, blob)

        return await self._blobs.load(await self._blobs.store.read(find))

    async def keep(self, tenant: str, name: str, body: bytes, *keys: str) -> None:
        """Let every key find the answer."""
        blob = await self._blobs.place(tenant, body)
        await self._blobs.store.write(lambda connection: keep_result(connection, tenant, name, blob, *keys))


def keep_result(connection: Connection, tenant: str, name: str, placed: Blob, *keys: str) -> str:
    """Let every key find what `Blobs.place` has placed; the digest of its bytes."""
    blob, now = keep_blob(connection, tenant, placed), time.time()
    for key in keys:
        row = {"tenant": tenant, "key": key, "name": name, "blob": blob, "touched": now}
        insert = upsert(connection, results).values(row)
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=["tenant", "key"], set_={"name": name, "blob": blob, "touched": now}
            )
        )
    return blob
