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
from service.http.disconnect import GONE, unless_disconnected
from service.http.prefer import respond_later, seconds_to_wait
from service.http.responses import content_response
from service.http.scopes import note
from service.http.state import State, state_of
from service.jobs.frames import Frame
from service.jobs.protocol import run_task
from service.jobs.spool import Spool, pieces
from service.problems import Problem

__all__ = ["ContentAddressed"]

#: Hashing less than this takes under a millisecond.
INLINE_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class ContentAddressed:
    """One kind of answer: the task that makes it, and the collection that serves it again.

    All kinds share the cache of a tenant, in which the collection is part of every answer's name, and the
    task of every request's key: two tasks may fill one collection.
    """

    task: str
    collection: str
    read: Callable[[Request, int], Awaitable[bytes | Spool]] = read_json_body

    async def answer(self, request: Request) -> Response:
        """The kept answer to the same request, or a new one from a worker."""
        state, tenant = state_of(request), principal_of(request).tenant
        body = await self.read(request, state.settings.body_limit_bytes)
        digest = await _digest(body)
        key = self._key(digest)
        kept = self._kept(request, state, digest)
        if kept is None and (shared := await self._shared(state, tenant, key)) is not None:
            state.metrics.asked_cache("shared")
            kept = self._from_cache(request, shared)
        if kept is not None:
            return kept
        if (seconds := seconds_to_wait(request)) is not None:
            return await respond_later(request, self.task, body, seconds)
        answer = await unless_disconnected(request, self._solve(state, tenant, body))
        if answer is None:
            return Response(status_code=GONE)
        if isinstance(answer, CachedPlan):
            state.metrics.asked_cache("equivalent")
            state.cache.of(tenant).put(answer.digest, answer.body, key)
            return self._from_cache(request, answer)
        state.metrics.asked_cache("miss")
        return self._fresh(request, state, answer, key)

    def kept(self, request: Request, state: State, body: bytes) -> Response | None:
        """The answer to this very body, if it is kept. For bodies that are hashed in a moment."""
        return self._kept(request, state, hashlib.sha256(body).hexdigest())

    def _kept(self, request: Request, state: State, digest: str) -> Response | None:
        cached = state.cache.of(principal_of(request).tenant).by_key(self._key(digest))
        if cached is None:
            return None
        state.metrics.asked_cache("hit")
        return self._from_cache(request, cached)

    async def stored(self, request: Request, digest: str) -> Response | None:
        """The answer with this digest, if it is still kept."""
        cached = await self.find(request, digest)
        return None if cached is None else self._from_cache(request, cached)

    async def find(self, request: Request, digest: str) -> CachedPlan | None:
        """The same as it is kept."""
        state, tenant, name = state_of(request), principal_of(request).tenant, self._name(digest)
        return state.cache.of(tenant).by_digest(name) or await state.shared.by_name(tenant, name)

    def missing(self, digest: str) -> Problem:
        """The problem that no answer with this digest is kept."""
        return Problem(
            f"{self.task}-not-found",
            f"No {self.task} {digest!r:.80} is kept here.",
            remedy=f"Send the request to /v1/{self.task} again: the same request gets the same {self.task}.",
        )

    def _name(self, digest: str) -> str:
        return f"{self.collection}/{digest}"

    def _key(self, digest: str) -> str:
        return f"{self.task}:{digest}"

    async def _shared(self, state: State, tenant: str, key: str) -> CachedPlan | None:
        """The answer that another process has made, remembered here from now on."""
        found = await state.shared.by_key(tenant, key)
        if found is not None:
            state.cache.of(tenant).put(found.digest, found.body, key)
        return found

    async def _solve(self, state: State, tenant: str, body: bytes | Spool) -> Frame | CachedPlan:
        """The worker's answer, or the one kept for a request that means the same."""
        state.check_early(self.task, body)
        cache = state.cache.of(tenant)
        found: list[CachedPlan] = []

        async def known(key: str) -> bool:
            cached = cache.by_key(self._key(key)) or await self._shared(state, tenant, self._key(key))
            if cached is None:
                return False
            # Spellings that are remembered from now on must not push this key out, which finds them all.
            cache.put(cached.digest, cached.body, self._key(key))
            found.append(cached)
            return True

        frame = await run_task(
            state.pool, self.task, state.limits, body, state.search_limits, known, tenant=tenant
        )
        return found[-1] if found else frame

    def _fresh(self, request: Request, state: State, frame: Frame, raw_key: str) -> Response:
        head, tenant = frame.head, principal_of(request).tenant
        cache = state.cache.of(tenant)
        name = self._name(head["digest"])
        note(request.scope, digest=head["digest"], arena_bytes=head["arena_bytes"], claim=head["status"])
        if head["deterministic"]:
            keys = (raw_key, self._key(head["key"]))
            cache.put(name, frame.body, *keys)
            state.shared.put(tenant, name, frame.body, *keys)
        kept = cache.by_digest(name) is not None
        return content_response(request, name, frame.body, kept=kept)

    def _from_cache(self, request: Request, cached: CachedPlan) -> Response:
        note(request.scope, digest=cached.digest.rpartition("/")[2], cache="hit")
        return content_response(request, cached.digest, cached.body, kept=True, hit=True)


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
