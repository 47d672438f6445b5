"""Content-addressed answers: computed once, kept under the digest of what they say, sent again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response

from service.auth.principal import principal_of
from service.http.bodies import read_json_body
from service.http.cache import CachedPlan
from service.http.prefer import GONE, respond_later, seconds_to_wait, unless_disconnected
from service.http.responses import content_response, note
from service.http.state import State, state_of
from service.jobs.frames import Frame, Spool, pieces
from service.jobs.pool import run_task
from service.problems import Problem

__all__ = ["ContentAddressed"]

#: Hashing less than this takes under a millisecond.
INLINE_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class ContentAddressed:
    """One kind of answer: the task that makes it, and the collection that serves it again.

    All kinds share the cache of a tenant, in which the collection is part of every answer's name, and the
    task of every request's key: two tasks may fill one collection. Where the requests are models
    (`has_notes`), an answer also has the notes on its import, which belong to the request: two models may
    have the same plan, and one of them parts that are not trained.
    """

    task: str
    collection: str
    read: Callable[[Request, int], Awaitable[bytes | Spool]] = read_json_body
    has_notes: bool = False

    async def answer(self, request: Request) -> Response:
        """The kept answer to the same request, or a new one from a worker."""
        state, tenant = state_of(request), principal_of(request).tenant
        body = await self.read(request, state.settings.body_limit_bytes)
        digest = await _digest(body)
        kept = self._kept(request, state, digest) or await self._kept_elsewhere(request, state, digest)
        if kept is not None:
            return kept
        if (seconds := seconds_to_wait(request)) is not None:
            response = await respond_later(request, self.task, body, seconds)
            if response is not None:
                return response
        answer = await unless_disconnected(request, self._solve(state, tenant, body))
        if answer is None:
            return Response(status_code=GONE)
        frame, equivalent = answer
        notes = frame.head.get("notes", "")
        if equivalent is not None:
            state.metrics.asked_cache("equivalent")
            state.cache.of(tenant).put(equivalent.digest, equivalent.body, self._key(digest), notes=notes)
            return self._from_cache(request, equivalent, notes)
        state.metrics.asked_cache("miss")
        return self._fresh(request, state, frame, digest, notes)

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
        if self.has_notes:
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
        return f"{self.collection}/{digest}"

    def _key(self, digest: str) -> str:
        return f"{self.task}:{digest}"

    async def _shared(self, state: State, tenant: str, key: str, notes: str = "") -> CachedPlan | None:
        """The answer that another process has made, remembered here from now on."""
        kept = await state.shared.by_key(tenant, key)
        if kept is not None:
            state.cache.of(tenant).put(kept.digest, kept.body, key, notes=notes)
        return kept

    async def _solve(self, state: State, tenant: str, body: bytes | Spool) -> tuple[Frame, CachedPlan | None]:
        """The worker's answer; with an empty one, what is kept for a request that means the same."""
        state.check_early(self.task, body)
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

        frame = await run_task(
            state.pool, self.task, state.limits, body, state.search_limits, known, tenant=tenant
        )
        return frame, equivalent[-1] if equivalent else None

    def _fresh(self, request: Request, state: State, frame: Frame, digest: str, notes: str) -> Response:
        head, tenant = frame.head, principal_of(request).tenant
        cache = state.cache.of(tenant)
        name = self._name(head["digest"])
        note(request.scope, digest=head["digest"], arena_bytes=head["arena_bytes"], claim=head["status"])
        if head["deterministic"]:
            keys = (self._key(digest), self._key(head["key"]))
            cache.put(name, frame.body, *keys, notes=notes)
            if self.has_notes:
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
