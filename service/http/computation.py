"""Answers that workers compute: at once, kept in memory and in the database, or as jobs.

    body ──► answer that is kept: in memory, then in the database
         ──► a job, if ``Prefer: respond-async, wait=N`` asks for one (RFC 7240)
         ──► a worker, until the caller hangs up

Plans and layouts are served again under their digest: the same request gets the same bytes. Two requests are
the same if their bodies are, or if the worker reads the same from both: fields in another order, or defaults
spelt out. Curves, verdicts and validations are computed each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, TypeVar

from fastapi import Request, Response

from service.auth.principal import principal_of
from service.http.bodies import is_model, read_json_body, read_model_body
from service.http.cache import PLAN_SECONDS, CachedPlan
from service.http.responses import answer_response, content_response, job_response, note
from service.http.state import State, state_of
from service.jobs.frames import Frame, Spool, pieces
from service.jobs.model import Answer, NewJob
from service.jobs.model import State as JobState
from service.jobs.pool import Limits, run_task
from service.jobs.query import notes_headers
from service.jobs.requests import KINDS, TASK_OF_MODEL, stored_of
from service.problems import Problem
from service.telemetry import tracing

__all__ = ["GONE", "Computation", "unless_disconnected"]

T = TypeVar("T")

#: Status for a caller that has left; only the log ever sees it.
GONE: Final = 499
#: Longest time to wait, whatever is asked.
LONGEST_SECONDS: Final = 60.0
#: Hashing less than this takes under a millisecond.
INLINE_BYTES: Final = 1 << 18

_WAIT: Final = re.compile(r"wait\s*=\s*\"?(\d{1,6})\"?")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: What the log says of an answer that is not kept.
_FACTS: Final = ("points", "verdict", "complete", "identical")


@dataclass(frozen=True, slots=True)
class Computation:
    """One kind of answer: the task that makes it, of a document or `of_model`, of a model of another tool.

    All kinds share the cache of a tenant, in which the collection is part of every answer's name, and the
    work of every request's key: two of them may fill one collection. An answer to a model also has the notes
    on its import, which belong to the request: two models may have the same plan, and one of them parts that
    are not trained.
    """

    task: str
    of_model: bool = False

    @property
    def work(self) -> str:
        """What workers call it."""
        return KINDS[self.task].model_work if self.of_model else self.task

    async def answer(self, request: Request, limits: Limits | None = None) -> Response:
        """The kept answer to the same request, or a new one from a worker, by default within the limits of
        searches."""
        if not self.of_model and KINDS[self.task].model_work and is_model(request):
            return await Computation(self.task, of_model=True).answer(request, limits)
        state, tenant, is_kept = state_of(request), principal_of(request).tenant, KINDS[self.task].collection
        body, digest = await self._read(request, state.settings.body_limit_bytes), ""
        if is_kept:
            digest = await _digest(body)
            kept = self._kept(request, state, digest) or await self._kept_elsewhere(request, state, digest)
            if kept is not None:
                return kept
        if (seconds := _seconds_to_wait(request)) is not None:
            response = await _respond_later(request, self.work, body, seconds)
            if response is not None:
                return response
        answer = await unless_disconnected(
            request, self._compute(state, tenant, body, limits or state.search_limits)
        )
        if answer is None:
            return Response(status_code=GONE)
        frame, equivalent = answer
        if not is_kept:
            note(request.scope, **{name: frame.head[name] for name in _FACTS if name in frame.head})
            return Response(frame.body, headers=notes_headers(frame.head), media_type="application/json")
        notes = frame.head.get("notes", "")
        if equivalent is not None:
            state.metrics.asked_cache("equivalent")
            state.cache.of(tenant).put(equivalent.digest, equivalent.body, self._key(digest), notes=notes)
            return self._from_cache(request, equivalent, notes)
        state.metrics.asked_cache("miss")
        return self._fresh(request, state, frame, digest, notes)

    async def _read(self, request: Request, limit: int) -> bytes | Spool:
        """The body; before a model, its query, in which the text of a plan that is kept here takes the place
        of its digest."""
        if not self.of_model:
            return await read_json_body(request, limit)
        name = {"plan": "like", "validate": "plan"}.get(self.task, "")
        digests, instead = request.query_params.getlist(name), dict[str, list[str]]()
        if self.task == "validate" and len(digests) != 1:
            raise Problem(
                "invalid-request",
                '"plan" is missing.' if not digests else "'plan' is given twice.",
                remedy="Send the model to /v1/plan, and give the digest of its plan: plan=DIGEST.",
                pointer="/query/plan",
            )
        if len(digests) == 1 and (self.task == "validate" or _DIGEST.fullmatch(digests[0])):
            plan = await Computation("plan").find(request, digests[0])
            instead[name] = [plan.body.decode()]
        return await read_model_body(request, limit, instead)

    def _kept(self, request: Request, state: State, digest: str) -> Response | None:
        key = self._key(digest)
        cached = state.cache.of(principal_of(request).tenant).by_key(key)
        if cached is None:
            return None
        state.metrics.asked_cache("hit")
        return self._from_cache(request, cached, cached.keys[key])

    async def _kept_elsewhere(self, request: Request, state: State, digest: str) -> Response | None:
        """The answer of another process; None without the notes, for which the model is imported again."""
        tenant, notes = principal_of(request).tenant, ""
        if self.of_model:
            stored = await state.shared.by_name(tenant, _notes_name(digest))
            if stored is None:
                return None
            notes = stored.body.decode()
        shared = await self._shared(state, tenant, self._key(digest), notes)
        if shared is None:
            return None
        state.metrics.asked_cache("shared")
        return self._from_cache(request, shared, notes)

    async def stored(self, request: Request, digest: str) -> Response:
        """The answer with this digest. Raises as `find`."""
        return self._from_cache(request, await self.find(request, digest))

    async def find(self, request: Request, digest: str) -> CachedPlan:
        """The answer with this digest, as it is kept. Raises `Problem` ``...-not-found``."""
        state, tenant, name = state_of(request), principal_of(request).tenant, self._name(digest)
        answer = state.cache.of(tenant).by_digest(name) or await state.shared.by_name(tenant, name)
        if answer is not None:
            return answer
        raise Problem(
            f"{self.task}-not-found",
            f"No {self.task} {digest!r:.80} is kept here.",
            remedy=f"Send the request to /v1/{self.task} again: the same request gets the same {self.task}.",
        )

    def _name(self, digest: str) -> str:
        return f"{KINDS[self.task].collection}/{digest}"

    def _key(self, digest: str) -> str:
        return f"{self.work}:{digest}"

    async def _shared(self, state: State, tenant: str, key: str, notes: str = "") -> CachedPlan | None:
        """The answer that another process has made, remembered here from now on."""
        kept = await state.shared.by_key(tenant, key)
        if kept is not None:
            state.cache.of(tenant).put(kept.digest, kept.body, key, notes=notes)
        return kept

    async def _compute(
        self, state: State, tenant: str, body: bytes | Spool, limits: Limits
    ) -> tuple[Frame, CachedPlan | None]:
        """The worker's answer; with an empty one, what is kept for a request that means the same."""
        state.check_early(self.work, body)
        cache = state.cache.of(tenant)
        equivalent: list[CachedPlan] = []

        async def known(key: str) -> bool:
            cached = cache.by_key(self._key(key)) or await self._shared(state, tenant, self._key(key))
            if cached is None:
                return False
            # Spellings that are remembered from now on must not push this key out, which finds them all.
            cache.put(cached.digest, cached.body, self._key(key))
            equivalent.append(cached)
            return True

        frame = await run_task(state.pool, self.work, state.limits, body, limits, known, tenant=tenant)
        return frame, equivalent[-1] if equivalent else None

    def _fresh(self, request: Request, state: State, frame: Frame, digest: str, notes: str) -> Response:
        head, tenant = frame.head, principal_of(request).tenant
        cache = state.cache.of(tenant)
        name = self._name(head["digest"])
        note(request.scope, digest=head["digest"], arena_bytes=head["arena_bytes"], claim=head["status"])
        if head["deterministic"]:
            keys = (self._key(digest), self._key(head["key"]))
            cache.put(name, frame.body, *keys, notes=notes)
            if self.of_model:
                state.shared.put(tenant, _notes_name(digest), notes.encode(), _notes_name(digest))
            state.shared.put(tenant, name, frame.body, *keys)
        kept = cache.by_digest(name) is not None
        return content_response(request, name, frame.body, kept=kept, notes=notes)

    def _from_cache(self, request: Request, cached: CachedPlan, notes: str = "") -> Response:
        note(request.scope, digest=cached.digest.rpartition("/")[2], cache="hit")
        return content_response(request, cached.digest, cached.body, kept=True, hit=True, notes=notes)


def _notes_name(digest: str) -> str:
    """Under which the notes on a request are kept beside its answer."""
    return f"notes/{digest}"


async def _digest(body: bytes | Spool) -> str:
    """SHA-256; of a large body in a thread, so that other requests go on meanwhile."""
    if len(body) < INLINE_BYTES and isinstance(body, bytes):
        return hashlib.sha256(body).hexdigest()
    return await asyncio.to_thread(_hashed, body)


def _hashed(body: bytes | Spool) -> str:
    digest = hashlib.sha256()
    for piece in pieces(body):
        digest.update(piece)
    return digest.hexdigest()


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T | None:
    """Result of `work`; ``None``, with `work` cancelled, once the caller has hung up.

    The request body must have been read to its end.
    """
    task = asyncio.ensure_future(work)

    async def hung_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.create_task(hung_up())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for other in (task, gone):
            other.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def _seconds_to_wait(request: Request) -> float | None:
    """How long the caller wants to wait before there may be a job; None where no job is wanted, none is kept
    here, or the caller has not its scope: preferences may be left aside.
    """
    preferences = [part.strip().lower() for part in ",".join(request.headers.getlist("prefer")).split(",")]
    preferences = [part.strip() for whole in preferences for part in whole.split(";")]
    state = state_of(request)
    if "respond-async" not in preferences or state.backend.maybe is None or state.shared.away:
        return None
    if "jobs" not in principal_of(request).scopes:
        return None
    found = next((match for part in preferences if (match := _WAIT.fullmatch(part))), None)
    return min(float(found[1]), LONGEST_SECONDS) if found else 0.0


async def _respond_later(request: Request, work: str, body: bytes | Spool, seconds: float) -> Response | None:
    """Do the work as a job: its answer if it is there within `seconds`, else 202 with the job's address.

    None where the database does not take the job. Raises the `Problem` that the job fails with, if it does so
    in time.
    """
    engine, principal = state_of(request).backend.stored.jobs, principal_of(request)
    task = TASK_OF_MODEL.get(work, work)
    trace = tracing.carrier().get("traceparent")
    request_bytes = stored_of(work, b"".join(pieces(body))).dump()
    new = NewJob(principal.tenant, principal.subject, task, work, request_bytes, trace=trace)
    try:
        async with asyncio.timeout(PLAN_SECONDS):
            job, _ = await engine.submit(new)
    except TimeoutError:
        return None
    except Problem as problem:
        if problem.kind.code != "database-unavailable":
            raise
        return None
    note(request.scope, job=job.id)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    answer: Answer | None = None
    try:
        while not job.state.final and (left := until - loop.time()) > 0:
            job = await engine.changed(job, left)
        if job.state is JobState.FAILED and job.error is not None:
            raise Problem(**job.error)
        if job.state is JobState.SUCCEEDED:
            answer = await engine.table.answer(principal.tenant, job.id)
    except Problem as problem:  # the job is accepted, and says later what came of it
        if problem.kind.code != "database-unavailable":
            raise
    if answer is not None:
        response = answer_response(request, answer, hit=False)
        response.headers["Preference-Applied"] = f"wait={seconds:.0f}"
        return response
    return job_response(request, job, 202, **{"Preference-Applied": "respond-async"})
