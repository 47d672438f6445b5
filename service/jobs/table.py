"""Jobs, graphs and results in the database: a change is one transaction, the same on SQLite and PostgreSQL.

Requests, graphs and results are bytes under their SHA-256, of which each tenant has its own.

Whoever runs a job holds a lease, which is renewed while it runs. A claim names owner and attempt; what is
said in the name of a claim that has passed to somebody else is dropped.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    or_,
    select,
    tuple_,
    union_all,
    update,
)

from service.jobs.model import Answer, Job, NewJob, State, new_id
from service.problems import Problem
from service.store import Store
from service.store.database import upsert
from service.store.schema import blobs, graphs, jobs, results

__all__ = [
    "CHANNEL",
    "LEASE_SECONDS",
    "SPARE_SECONDS",
    "Claim",
    "Graphs",
    "JobTable",
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
    row = update(blobs).where(blobs.c.tenant == tenant, blobs.c.digest == digest)
    return connection.execute(row.values(touched=time.time())).rowcount == 1


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


# ------------------------------------------------------------------------------------------------ jobs

#: Seconds without a renewal after which the lease of a job ends, and another process may run it.
LEASE_SECONDS: Final = 8.0
#: How long it may take to remove what has expired, which nobody waits for.
TIDY_SECONDS: Final = 60.0
#: Where PostgreSQL says which job has been cancelled, or has ended.
CHANNEL: Final = "arenaplan_jobs"

_VISIBLE: Final = tuple(
    jobs.c[name]
    for name in (
        "id", "tenant", "task", "state", "revision", "created", "started", "finished", "expires",
        "attempts", "progress", "error", "result", "trace",
    )
)  # fmt: skip
_UNFINISHED: Final = (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt at a job by `owner`, with all that it needs. `graph` belongs into the request."""

    job: Job
    owner: str
    work: str
    request: bytes
    graph: bytes | None


def _job(row: Row[*tuple[Any, ...]]) -> Job:
    """The job of a row that has at least the visible columns."""
    facts = {column.name: getattr(row, column.name) for column in _VISIBLE}
    return Job(**{**facts, "state": State(facts["state"])})


class JobTable:
    """Jobs in the database. Each method is one transaction, and raises `Problem` ``database-unavailable``."""

    def __init__(self, store: Store, *, limit: int, ttl_seconds: float, max_attempts: int) -> None:
        self._store = store
        self._limit = limit
        self._ttl_seconds = ttl_seconds
        self._max_attempts = max_attempts

    # -------------------------------------------------------------------------------- for callers

    async def submit(self, new: NewJob) -> tuple[Job, bool]:
        """As `JobEngine.submit`."""
        return await self._store.write(lambda connection: self._submit(connection, new))

    def _submit(self, connection: Connection, new: NewJob) -> tuple[Job, bool]:
        if first := _first_of(connection, new):
            return first, False
        waiting = select(func.count()).where(jobs.c.state.in_(_UNFINISHED))
        if connection.execute(waiting).scalar_one() >= self._limit:
            raise Problem(
                "too-many-jobs",
                f"{self._limit:,} jobs are not finished yet; more are not accepted.",
                remedy="Send it again in a moment.",
                headers={"Retry-After": "10"},
            )
        size = len(new.request)
        if new.graph is not None:
            used = update(graphs).where(graphs.c.tenant == new.tenant, graphs.c.digest == new.graph)
            if not connection.execute(used.values(created=time.time())).rowcount:
                raise graph_not_found(new.graph)
            touch_blob(connection, new.tenant, new.graph)
        row = {
            "id": new_id(), "tenant": new.tenant, "subject": new.subject, "task": new.task, "work": new.work,
            "state": State.QUEUED, "revision": 1, "created": time.time(), "attempts": 0, "cancel": False,
            "request": put_blob(connection, new.tenant, new.request), "graph": new.graph, "size": size,
            "idempotency_key": new.idempotency_key, "fingerprint": new.fingerprint, "trace": new.trace,
        }  # fmt: skip
        insert = upsert(connection, jobs).values(row).on_conflict_do_nothing().returning(*_VISIBLE)
        inserted = connection.execute(insert).one_or_none()
        if inserted is not None:
            return _job(inserted), True
        first = _first_of(connection, new)  # sent twice at the same time
        assert first is not None
        return first, False

    async def get(self, tenant: str, job: str) -> Job:
        """Raises `Problem` ``job-not-found``."""
        job_now = await self._store.read(lambda connection: _find(connection, tenant, job))
        if job_now is None:
            raise _job_not_found(job)
        return job_now

    async def page(
        self, tenant: str, *, state: State | None = None, limit: int = 50, after: str | None = None
    ) -> list[Job]:
        """Jobs of a tenant, the newest first; `after` is the last one that is known already."""
        query = select(*_VISIBLE).where(jobs.c.tenant == tenant).order_by(jobs.c.id.desc()).limit(limit)
        if state is not None:
            query = query.where(jobs.c.state == state)
        if after is not None:
            query = query.where(jobs.c.id < after)

        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return [_job(row) for row in rows]

    async def answer(self, tenant: str, job: str) -> Answer:
        """The result of the job.

        Raises `Problem` ``job-not-found``, ``job-not-finished``, ``job-failed``, ``job-cancelled`` or
        ``job-expired``.
        """

        stored = and_(blobs.c.tenant == jobs.c.tenant, blobs.c.digest == jobs.c.result)
        query = select(*_VISIBLE, jobs.c.facts, blobs.c.body).outerjoin(blobs, stored)
        query = query.where(jobs.c.id == job, jobs.c.tenant == tenant)
        row = await self._store.read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            raise _job_not_found(job)
        if row.body is None:
            raise _no_answer(_job(row))
        return Answer(bytes(row.body), row.facts or {})

    async def cancel(self, tenant: str, job: str) -> Job:
        """As `JobEngine.cancel`; who runs the job is told when the lease is renewed."""

        def cancel(connection: Connection) -> Job | None:
            here = and_(jobs.c.id == job, jobs.c.tenant == tenant)
            asked = update(jobs).where(here, jobs.c.state == State.RUNNING, jobs.c.cancel.is_(False))
            if connection.execute(asked.values(cancel=True, revision=jobs.c.revision + 1)).rowcount:
                _ring(connection, job)
            _end(connection, and_(here, jobs.c.state == State.QUEUED), self._ended(State.CANCELLED))
            return _find(connection, tenant, job)

        job_now = await self._store.write(cancel)
        if job_now is None:
            raise _job_not_found(job)
        return job_now

    async def revisions(self, ids: Iterable[str]) -> Mapping[str, int]:
        """By job: its revision; jobs that are gone are missing."""
        query = select(jobs.c.id, jobs.c.revision).where(jobs.c.id.in_(list(ids)))
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return {row.id: row.revision for row in rows}

    async def counts(self) -> Mapping[str, int]:
        """How many jobs there are in each state."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return {**dict.fromkeys(map(str, State), 0), **{row[0]: row[1] for row in rows}}

    # ----------------------------------------------------------------------------- for who runs them

    async def waits(self) -> bool:
        """Whether a job waits to be claimed."""
        query = select(jobs.c.id).where(jobs.c.state == State.QUEUED).limit(1)
        return await self._store.read(lambda connection: connection.execute(query).first()) is not None

    async def claim(self, owner: str, job: str | None = None) -> Claim | None:
        """The next job, or a certain one if it waits, for `owner` to run.

        The next is the oldest of the tenant that has the fewest running.
        """

        def claim(connection: Connection) -> Claim | None:
            chosen = _next().scalar_subquery() if job is None else job
            taken = (
                update(jobs)
                .where(jobs.c.id == chosen, jobs.c.state == State.QUEUED)
                .values(
                    state=State.RUNNING,
                    started=func.coalesce(jobs.c.started, time.time()),
                    attempts=jobs.c.attempts + 1,
                    revision=jobs.c.revision + 1,
                    owner=owner,
                    lease=self._store.now + LEASE_SECONDS,
                    progress=None,
                )
                .returning(*_VISIBLE, jobs.c.work, jobs.c.request, jobs.c.graph)
            )
            row = connection.execute(taken).one_or_none()
            if row is None:
                return None
            request = get_blob(connection, row.tenant, row.request)
            assert request is not None, "a job that is not finished keeps its request"
            graph = None if row.graph is None else get_blob(connection, row.tenant, row.graph)
            return Claim(_job(row), owner, row.work, request, graph)

        return await self._store.write(claim)

    async def renew(self, claims: Sequence[Claim]) -> set[str]:
        """Go on holding the claims; the jobs that are held. Lost ones are missing."""

        def renew(connection: Connection) -> set[str]:
            lease = self._store.now + LEASE_SECONDS
            renewals = ((c.job.id, update(jobs).where(_held(c)).values(lease=lease)) for c in claims)
            return {job for job, renewal in renewals if connection.execute(renewal).rowcount}

        return await self._store.write(renew)

    async def asked_to_end(self, claims: Sequence[Claim]) -> list[str]:
        """Which jobs of the claims are to be cancelled."""
        query = select(jobs.c.id).where(
            jobs.c.id.in_([claim.job.id for claim in claims]), jobs.c.cancel.is_(True)
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return [row.id for row in rows]

    async def progress(self, claim: Claim, progress: Mapping[str, Any]) -> None:
        """Say how far a job is."""
        here = update(jobs).where(_held(claim))
        here = here.values(progress=dict(progress), revision=jobs.c.revision + 1)
        await self._store.write(lambda connection: connection.execute(here))

    async def succeed(
        self,
        claim: Claim,
        body: bytes,
        facts: Mapping[str, Any],
        *,
        name: str | None = None,
        keys: Sequence[str] = (),
    ) -> bool:
        """End a job with its result, which `keys` find as `name` from now on; false where it was dropped."""
        tenant = claim.job.tenant

        def succeed(connection: Connection) -> bool:
            if name is None:
                blob = put_blob(connection, tenant, body)
            else:
                blob = keep_result(connection, tenant, name, body, *keys)
            ended = self._ended(State.SUCCEEDED) | {"result": blob, "facts": dict(facts)}
            return _end(connection, _held(claim), ended)

        return await self._store.write(succeed)

    async def end(self, claim: Claim, state: State, problem: Problem | None = None) -> bool:
        """End a job without a result, which no worker runs any more; false if the end was dropped."""
        ended = self._ended(state) | ({} if problem is None else {"error": problem.facts()})
        return await self._store.write(lambda connection: _end(connection, _held(claim), ended))

    async def give_back(self, claim: Claim, why: Problem | None = None) -> bool:
        """Let another attempt be made at a job; without `why`, this one does not count.

        Where as many have been made as may, the job fails. Whether it waits again.
        """

        def give_back(connection: Connection) -> bool:
            mine = select(*_VISIBLE, jobs.c.cancel).where(_held(claim))
            row = connection.execute(mine).one_or_none()
            return row is not None and self._again(connection, row, why)

        return await self._store.write(give_back)

    def _again(self, connection: Connection, row: Row[*tuple[Any, ...]], why: Problem | None) -> bool:
        one = jobs.c.id == row.id
        if row.cancel:
            _end(connection, one, self._ended(State.CANCELLED))
            return False
        if why is not None and row.attempts >= self._max_attempts:
            why.detail += f" That was attempt {row.attempts}, the last."
            _end(connection, one, self._ended(State.FAILED) | {"error": why.facts()})
            return False
        again: dict[str, Any] = {
            "state": State.QUEUED, "owner": None, "lease": None, "progress": None,
            "revision": jobs.c.revision + 1,
        }  # fmt: skip
        if why is None:
            again["attempts"] = jobs.c.attempts - 1
        connection.execute(update(jobs).where(jobs.c.id == row.id).values(again))
        return True

    async def rescue(self, running: Sequence[str] = ()) -> list[str]:
        """Let jobs whose leases have run out be run again, up to the most attempts; those that wait now.

        Jobs that are `running` here are left alone. A lease that ends later than any lease of now was given
        before the clock was set back: it has run out, too.
        """

        def rescue(connection: Connection) -> list[str]:
            now = self._store.now
            lost = (
                select(*_VISIBLE, jobs.c.cancel)
                .where(
                    jobs.c.state == State.RUNNING,
                    jobs.c.id.not_in(running),
                    or_(jobs.c.lease < now, jobs.c.lease > now + 2 * LEASE_SECONDS),
                )
                .with_for_update(skip_locked=True)
            )
            why = Problem("worker-lost", "The service that worked on this job has gone.")
            return [row.id for row in connection.execute(lost).all() if self._again(connection, row, why)]

        return await self._store.write(rescue)

    async def tidy(self) -> None:
        """Remove expired results, their jobs after the same time again, and bytes that no row refers to."""
        now = time.time()
        old = now - self._ttl_seconds

        def tidy(connection: Connection) -> None:
            expired = update(jobs).where(jobs.c.expires < now, jobs.c.result.is_not(None))
            connection.execute(expired.values(result=None, facts=None))
            connection.execute(delete(jobs).where(jobs.c.expires < old))
            connection.execute(delete(results).where(results.c.touched < old))
            connection.execute(delete(graphs).where(graphs.c.created < old))
            remove_blobs(connection, now - SPARE_SECONDS)

        await self._store.write(tidy, seconds=TIDY_SECONDS)

    def _ended(self, state: State) -> dict[str, Any]:
        now = time.time()
        return {"state": state, "finished": now, "expires": now + self._ttl_seconds}


def _next() -> Select[Any]:
    """The job whose turn it is."""
    running = (
        select(jobs.c.tenant, func.count().label("count"))
        .where(jobs.c.state == State.RUNNING)
        .group_by(jobs.c.tenant)
        .subquery()
    )
    first = (
        select(jobs.c.tenant, func.min(jobs.c.id).label("id"))
        .where(jobs.c.state == State.QUEUED)
        .group_by(jobs.c.tenant)
        .subquery()
    )
    return (
        select(first.c.id)
        .outerjoin(running, running.c.tenant == first.c.tenant)
        .order_by(func.coalesce(running.c.count, 0), first.c.id)
        .limit(1)
    )


def _find(connection: Connection, tenant: str, job: str) -> Job | None:
    query = select(*_VISIBLE).where(jobs.c.id == job, jobs.c.tenant == tenant)
    row = connection.execute(query).one_or_none()
    return None if row is None else _job(row)


def _first_of(connection: Connection, new: NewJob) -> Job | None:
    """The job that has the idempotency key already. Raises `Problem` where it is that of another request."""
    if new.idempotency_key is None:
        return None
    query = select(*_VISIBLE, jobs.c.fingerprint).where(
        jobs.c.tenant == new.tenant, jobs.c.idempotency_key == new.idempotency_key
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.fingerprint != new.fingerprint:
        raise Problem(
            "idempotency-conflict",
            "This Idempotency-Key came with another request before.",
            remedy="Take a new key for each request; the same key repeats a request.",
        )
    return _job(row)


def _held(claim: Claim) -> ColumnElement[bool]:
    """Where the claim still holds."""
    return and_(
        jobs.c.id == claim.job.id,
        jobs.c.state == State.RUNNING,
        jobs.c.owner == claim.owner,
        jobs.c.attempts == claim.job.attempts,
    )


def _end(connection: Connection, which: ColumnElement[bool], ended: Mapping[str, Any]) -> bool:
    """Bring a job to its end, if it is `which`; whether it was there."""
    final = {
        **ended, "revision": jobs.c.revision + 1, "request": None, "graph": None,
        "owner": None, "lease": None,
    }  # fmt: skip
    here = update(jobs).where(which).values(final)
    job = connection.execute(here.returning(jobs.c.id)).scalar_one_or_none()
    if job is None:
        return False
    _ring(connection, job)
    return True


def _ring(connection: Connection, job: str) -> None:
    """Tell other processes that they should look at a job now, rather than when they look anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(CHANNEL, job)))


def _job_not_found(job: str) -> Problem:
    return Problem("job-not-found", f"There is no job {job!r:.80} here.", remedy="GET /v1/jobs lists them.")


def _no_answer(job: Job) -> Problem:
    """Why a job has no result."""
    if job.state is State.FAILED and job.error is not None:
        problem = Problem(**job.error)
        return Problem(
            "job-failed",
            f"The job has failed: {problem.detail}",
            remedy=problem.remedy,
            extensions={"problem": problem.document()},
        )
    if job.state is State.CANCELLED:
        return Problem("job-cancelled", "The job was cancelled.", remedy="Send it again to have a result.")
    if job.state is State.SUCCEEDED:
        return Problem(
            "job-expired",
            "The result of the job is not kept any more.",
            remedy="Send it again: the same request gets the same plan.",
        )
    return Problem(
        "job-not-finished",
        f"The job is {job.state}.",
        remedy="Ask again later, or follow its events.",
        headers={"Retry-After": "1"},
    )
