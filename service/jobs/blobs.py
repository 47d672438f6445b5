"""Bytes under their SHA-256: requests, graphs, results. Each tenant has its own."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, select, tuple_, union_all, update

from service.problems import Problem
from service.store import Store
from service.store.database import upsert
from service.store.schema import blobs, graphs, jobs, results

__all__ = [
    "SPARE_SECONDS",
    "Graphs",
    "Results",
    "StoredGraph",
    "get_blob",
    "graph_not_found",
    "keep_result",
    "put_blob",
    "remove_blobs",
    "touch_blob",
]

#: Seconds for which bytes without references are kept: a request may be about to refer to them.
SPARE_SECONDS: Final = 3600.0


def put_blob(connection: Connection, tenant: str, body: bytes) -> str:
    """Keep the bytes, unless they are kept already; their digest."""
    digest = hashlib.sha256(body).hexdigest()
    if not touch_blob(connection, tenant, digest):
        now = time.time()
        row = {"tenant": tenant, "digest": digest, "size": len(body), "touched": now, "body": body}
        insert = upsert(connection, blobs).values(row)
        connection.execute(
            insert.on_conflict_do_update(index_elements=["tenant", "digest"], set_={"touched": now})
        )
    return digest


def touch_blob(connection: Connection, tenant: str, digest: str) -> bool:
    """Whether the bytes are there; they are not removed while this transaction lasts, nor for an hour."""
    there = update(blobs).where(blobs.c.tenant == tenant, blobs.c.digest == digest)
    return connection.execute(there.values(touched=time.time())).rowcount == 1


def get_blob(connection: Connection, tenant: str, digest: str) -> bytes | None:
    """The bytes of a digest; None if they are not kept any more."""
    query = select(blobs.c.body).where(blobs.c.tenant == tenant, blobs.c.digest == digest)
    body = connection.execute(query).scalar_one_or_none()
    return None if body is None else bytes(body)


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
    unused = tuple_(blobs.c.tenant, blobs.c.digest).not_in(used)
    connection.execute(delete(blobs).where(blobs.c.touched < before, unused))


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

        stored = and_(blobs.c.tenant == graphs.c.tenant, blobs.c.digest == graphs.c.digest)
        query = select(graphs.c.media_type, blobs.c.body).join(blobs, stored)
        row = await self._row(query, tenant, digest)
        return StoredGraph(row.media_type, bytes(row.body))

    async def media_type(self, tenant: str, digest: str) -> str:
        """The media type of a stored graph. Raises `Problem` ``graph-not-found``."""
        return str((await self._row(select(graphs.c.media_type), tenant, digest)).media_type)

    async def _row(self, query: Select[Any], tenant: str, digest: str) -> Row[*tuple[Any, ...]]:
        here = query.where(graphs.c.tenant == tenant, graphs.c.digest == digest)
        row = await self._store.read(lambda connection: connection.execute(here).one_or_none())
        if row is None:
            raise graph_not_found(digest)
        return row

    async def remove(self, tenant: str, digest: str) -> None:
        """Forget the graph; jobs that refer to it keep it. Raises `Problem` ``graph-not-found``."""
        here = delete(graphs).where(graphs.c.tenant == tenant, graphs.c.digest == digest)
        if not await self._store.write(lambda connection: connection.execute(here).rowcount):
            raise graph_not_found(digest)


def graph_not_found(digest: str) -> Problem:
    return Problem(
        "graph-not-found",
        f"No graph {digest!r:.80} is stored here.",
        remedy="PUT its bytes to /v1/graphs/ and their SHA-256.",
    )


class Results:
    """Answers by the key of their request: what the cache of one process forgets, or never knew."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def by_key(self, tenant: str, key: str) -> tuple[str, bytes] | None:
        """Name and body of the answer to a request."""
        return await self._find(tenant, results.c.key == key)

    async def by_name(self, tenant: str, name: str) -> bytes | None:
        """The body of an answer by collection and digest."""
        answer = await self._find(tenant, results.c.name == name)
        return None if answer is None else answer[1]

    async def _find(self, tenant: str, which: ColumnElement[bool]) -> tuple[str, bytes] | None:
        stored = and_(blobs.c.tenant == results.c.tenant, blobs.c.digest == results.c.blob)
        query = select(results.c.name, blobs.c.body).join(blobs, stored)
        query = query.where(results.c.tenant == tenant, which).limit(1)
        row = await self._store.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else (row.name, bytes(row.body))

    async def keep(self, tenant: str, name: str, body: bytes, *keys: str) -> None:
        """Let every key find the answer."""
        await self._store.write(lambda connection: keep_result(connection, tenant, name, body, *keys))


def keep_result(connection: Connection, tenant: str, name: str, body: bytes, *keys: str) -> str:
    """Let every key find the answer; the digest of its bytes."""
    blob, now = put_blob(connection, tenant, body), time.time()
    for key in keys:
        row = {"tenant": tenant, "key": key, "name": name, "blob": blob, "touched": now}
        insert = upsert(connection, results).values(row)
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=["tenant", "key"], set_={"name": name, "blob": blob, "touched": now}
            )
        )
    return blob
