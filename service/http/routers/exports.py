"""Plans as other files: C headers, pages, traces, tables; and the page of a plan for people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.http.exports import export
from service.http.openapi import EXPORT_ROUTE

__all__ = ["router"]

router = APIRouter(tags=["plans"])

Against = Annotated[str | None, Query(description="Digest of an older plan, for what has changed since.")]


@router.get("/v1/plans/{digest}/{format}", **EXPORT_ROUTE)
async def exported_plan(request: Request, digest: str, format: str, against: Against = None) -> Response:
    """A plan that is kept here, written for a runtime, a viewer or a table.

    `format` is one of c-header, report, perfetto, memory-viz, offsets-csv and offsets-json. The report takes
    `against`, the digest of another plan that is kept: it then shows what changed. `difference` needs it, and
    has the same as JSON, as `arenaplan diff --json` prints it.
    """
    return await export(request, digest, format, against)


@router.get("/plans/{digest}", include_in_schema=False)
async def plan_page(request: Request, digest: str, against: Against = None) -> Response:
    """The report, under an address to give to people."""
    return await export(request, digest, "report", against)
