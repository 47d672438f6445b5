"""Curves and verdicts: what less memory costs, whether a capacity is enough, and what would make it so."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.auth.principal import principal_of
from service.http.bodies import read_json_body
from service.http.disconnect import GONE, unless_disconnected
from service.http.middleware import note
from service.http.openapi import EXPLAIN_ROUTE, TRADEOFF_ROUTE
from service.http.prefer import respond_later, seconds_to_wait
from service.http.state import State, state_of
from service.jobs.frames import Frame
from service.jobs.protocol import run_task
from service.jobs.spool import Spool

__all__ = ["router"]

router = APIRouter(tags=["plans"])


@router.post("/v1/tradeoff", **TRADEOFF_ROUTE)
@router.post("/tradeoff", include_in_schema=False)
async def tradeoff(request: Request) -> Response:
    """What smaller peaks cost in modelled time, with the proved bound beside each cost, down to the floor.

    Points stand in the order of falling peaks; the first is the program in which nothing runs again. The
    same request gets the same curve, unless wall time cut it short: then `complete` is false.
    """
    return await _answer(request, "tradeoff")


@router.post("/v1/explain", **EXPLAIN_ROUTE)
@router.post("/explain", include_in_schema=False)
async def explain(request: Request) -> Response:
    """Whether the capacity among the options is enough: impossible, open, or a plan; and what makes it fit.

    A verdict is an answer, so the status is 200 whatever it says. Each remedy has been planned, and its plan
    proved; its `options` and `graph_fields` repeat it. With `training` also measures are tried that change
    what is learned.
    """
    return await _answer(request, "explain")


async def _answer(request: Request, task: str) -> Response:
    state = state_of(request)
    body = await read_json_body(request, state.settings.body_limit_bytes)
    if (seconds := seconds_to_wait(request)) is not None:
        return await respond_later(request, task, body, seconds)
    frame = await unless_disconnected(request, _ask(state, principal_of(request).tenant, task, body))
    if frame is None:
        return Response(status_code=GONE)
    note(request.scope, **frame.head)
    return Response(frame.body, media_type="application/json")


async def _ask(state: State, tenant: str, task: str, body: bytes | Spool) -> Frame:
    state.check_early(task, body)
    return await run_task(state.pool, task, state.limits, body, state.search_limits, tenant=tenant)
