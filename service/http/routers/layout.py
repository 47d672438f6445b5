"""Layouts: bare buffers in, offsets out; layouts again by their digest."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from service.http.content_addressed import ContentAddressed
from service.http.openapi import LAYOUT_ROUTE, STORED_LAYOUT_ROUTE

__all__ = ["router"]

router = APIRouter(tags=["layouts"])

_LAYOUTS: Final = ContentAddressed("layout", "layouts")


@router.post("/v1/layout", **LAYOUT_ROUTE)
async def layout(request: Request) -> Response:
    """Place buffers with known lifespans in one arena and prove how good the layout is.

    The answer has every buffer with its offset, the peak, and a certificate with the lower bound.
    As for plans, the same request gets the same bytes as long as it names no deadline; such
    layouts are kept and can be fetched again under their digest.
    """
    return await _LAYOUTS.answer(request)


@router.get("/v1/layouts/{digest}", **STORED_LAYOUT_ROUTE)
async def stored_layout(request: Request, digest: str) -> Response:
    """A layout that this service made before, by its digest, as long as it is kept in memory."""
    stored = await _LAYOUTS.stored(request, digest)
    if stored is None:
        raise _LAYOUTS.missing(digest)
    return stored
