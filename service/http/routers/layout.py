"""Layouts: bare buffers in, offsets out; layouts again by their digest."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response

from service.http.content_addressed import ContentAddressed
from service.http.openapi import (
    ANY_PROBLEM,
    NOT_MODIFIED,
    answer,
    computed,
    named,
    problems,
    request_body,
)
from service.http.schemas import LayoutRequest
from solver.documents import LayoutDocument

__all__ = ["router"]

router = APIRouter(tags=["layouts"])

_LAYOUTS: Final = ContentAddressed("layout", "layouts")


Digest = Annotated[
    str,
    Path(
        description="Digest of a layout: the entity tag of the answer that had it.",
        openapi_examples=named("layout_digest"),
    ),
]


@router.post(
    "/v1/layout",
    **computed(
        "Place buffers with known lifespans",
        request_body(LayoutRequest, "buffers"),
        answer(LayoutDocument, "The layout; its digest is the entity tag.", "layout"),
        *ANY_PROBLEM, "too-many-buffers", "invalid-options", "invalid-problem", "capacity-exceeded",
        cached=True,
    ),
)  # fmt: skip
async def place_buffers(request: Request) -> Response:
    """Place buffers with known lifespans in one arena and prove how good the layout is.

    The answer has every buffer with its offset, the peak, and a certificate with the lower bound.
    As for plans, the same request gets the same bytes as long as it names no deadline; such
    layouts are kept and can be fetched again under their digest.
    """
    return await _LAYOUTS.answer(request)


@router.get(
    "/v1/layouts/{digest}",
    summary="A layout by its digest",
    responses={
        200: answer(LayoutDocument, "The layout.", "layout"),
        304: NOT_MODIFIED,
        **problems("layout-not-found"),
    },
)
async def get_layout(request: Request, digest: Digest) -> Response:
    """A layout that this service made before, by its digest, as long as it is kept in memory."""
    stored = await _LAYOUTS.stored(request, digest)
    if stored is None:
        raise _LAYOUTS.missing(digest)
    return stored
