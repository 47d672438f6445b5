"""Validation: train in the planned arena and compare with a run that shares no memory."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.auth.principal import principal_of
from service.http.bodies import read_json_body
from service.http.disconnect import GONE, unless_disconnected
from service.http.middleware import note
from service.http.openapi import VALIDATE_ROUTE
from service.http.prefer import respond_later, seconds_to_wait
from service.http.state import State, state_of
from service.jobs.frames import Frame
from service.jobs.protocol import Limits, run_task
from service.jobs.spool import Spool

__all__ = ["router"]

router = APIRouter(tags=["plans"])


@router.post("/v1/validate", **VALIDATE_ROUTE)
@router.post("/validate", include_in_schema=False)
async def validate(request: Request) -> Response:
    """Train some steps inside the planned arena, beside a reference run without any sharing.

    The report tells for each step both losses and whether every tensor agrees bit for bit. A plan
    that breaks a rule is named in `violations`; a report is an answer, so the status is 200 either way.
    """
    state = state_of(request)
    body = await read_json_body(request, state.settings.body_limit_bytes)
    if (seconds := seconds_to_wait(request)) is not None:
        return await respond_later(request, "validate", body, seconds)
    frame = await unless_disconnected(request, _train(state, principal_of(request).tenant, body))
    if frame is None:
        return Response(status_code=GONE)
    note(request.scope, identical=frame.head["identical"])
    return Response(frame.body, media_type="application/json")


async def _train(state: State, tenant: str, body: bytes | Spool) -> Frame:
    state.check_early("validate", body)
    limits = Limits(state.settings.validate_max_seconds)
    return await run_task(state.pool, "validate", state.limits, body, limits, tenant=tenant)
