"""Validation: train in the planned arena and compare with a run that shares no memory."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.http.computed import answer
from service.http.openapi import VALIDATE_ROUTE
from service.http.state import state_of
from service.jobs.protocol import Limits

__all__ = ["router"]

router = APIRouter(tags=["plans"])


@router.post("/v1/validate", **VALIDATE_ROUTE)
async def validate(request: Request) -> Response:
    """Train some steps inside the planned arena, beside a reference run without any sharing.

    The report tells for each step both losses and whether every tensor agrees bit for bit. A plan
    that breaks a rule is named in `violations`; a report is an answer, so the status is 200 either way.

    The body may be a model of another tool, as for `/v1/plan`. The query has how it is trained, `steps` and
    `seed`, and as `plan` the digest of a plan that this service keeps. Training begins with its own weights.
    """
    return await answer(request, "validate", Limits(state_of(request).settings.validate_max_seconds))
