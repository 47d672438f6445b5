"""Planning: a graph in, a proven plan out; plans again by their digest."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from fastapi import APIRouter, Request, Response

from service.answers import plan_response
from service.bodies import read_json_body
from service.cache import CachedPlan
from service.jobs.conversation import GONE, Limits, converse, unless_disconnected
from service.jobs.frames import Frame
from service.middleware import note
from service.openapi import PLAN_ROUTE, STORED_PLAN_ROUTE
from service.problems import Problem
from service.state import State, state_of

__all__ = ["router"]

router = APIRouter(tags=["plans"])

#: Hashing less than this takes under a millisecond.
INLINE_BYTES: Final = 1 << 18


@router.post("/v1/plan", **PLAN_ROUTE)
@router.post("/plan", include_in_schema=False)
async def plan(request: Request) -> Response:
    """Plan the memory of a training graph and prove how good the plan is.

    The answer stands on its own: execution order, each buffer with lifespan and offset, and a
    certificate with the lower bound. The same request gets the same bytes, also from another
    process or machine, as long as it names no deadline; such plans are kept and can be fetched
    again under their digest. With `deadline_seconds`, the best plan found by then is the answer.
    """
    state = state_of(request)
    body = await read_json_body(request, state.settings.body_limit_bytes)
    key = await _digest(body)
    cached = state.cache.by_key(key)
    if cached is not None:
        return _from_cache(request, cached)
    answer = await unless_disconnected(request, _solve(state, body))
    if answer is None:
        return Response(status_code=GONE)
    if isinstance(answer, CachedPlan):
        state.cache.put(answer.digest, answer.body, key)
        return _from_cache(request, answer)
    return _fresh(request, state, answer, key)


async def _digest(body: bytes) -> str:
    """SHA-256; of a large body in a thread, so that other requests go on meanwhile."""
    if len(body) < INLINE_BYTES:
        return hashlib.sha256(body).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, body)).hexdigest()


async def _solve(state: State, body: bytes) -> Frame | CachedPlan:
    """The worker's answer, or the plan kept for a request that means the same."""
    found: list[CachedPlan] = []

    def known(key: str) -> bool:
        cached = state.cache.by_key(key)
        found.extend([cached] if cached else [])
        return cached is not None

    settings = state.settings
    grace = settings.deadline_grace_seconds
    limits = Limits(settings.deadline_max_seconds + grace, grace)
    frame = await converse(state.pool, "plan", state.limits, body, limits, known)
    return found[-1] if found else frame


def _fresh(request: Request, state: State, frame: Frame, raw_key: str) -> Response:
    digest = frame.head["digest"]
    note(request.scope, digest=digest, arena_bytes=frame.head["arena_bytes"], claim=frame.head["status"])
    if frame.head["deterministic"]:
        state.cache.put(digest, frame.body, raw_key, frame.head["key"])
    kept = state.cache.by_digest(digest) is not None
    return plan_response(request, digest, frame.body, kept=kept)


def _from_cache(request: Request, cached: CachedPlan) -> Response:
    note(request.scope, digest=cached.digest, cache="hit")
    return plan_response(request, cached.digest, cached.body, kept=True, hit=True)


@router.get("/v1/plans/{digest}", **STORED_PLAN_ROUTE)
async def stored_plan(request: Request, digest: str) -> Response:
    """A plan that this service made before, by its digest, as long as it is kept in memory."""
    cached = state_of(request).cache.by_digest(digest)
    if cached is None:
        raise Problem(
            "plan-not-found",
            f"No plan {digest!r:.80} is kept here.",
            remedy="Send its graph to /v1/plan again: the same request gets the same plan.",
        )
    return _from_cache(request, cached)
