"""The page at ``/``: a network in, its plan and report out. Files, served as they are."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Request, Response

from service.http.responses import CACHE_CONTROL, matches_tag
from service.problems import Problem
from solver.removed import removed

__all__ = ["router"]

router = APIRouter()

_MEDIA_TYPES: Final = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "service.js": "text/javascript; charset=utf-8",
    "mnist.json": "application/json",
}
#: The example of the page is one of the requests that the OpenAPI document shows.
_FOLDERS: Final = {"mnist.json": "examples"}

#: Nothing inline, and nothing from elsewhere.
_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
)


@router.get("/", include_in_schema=False)
async def index(request: Request) -> Response:
    return _file(request, "index.html")


@router.get("/page/{name}", include_in_schema=False)
async def part(request: Request, name: str) -> Response:
    if name not in _MEDIA_TYPES:
        raise Problem(
            "not-found", removed(f"page/{name}") or f"There is nothing at {request.url.path[:200]}."
        )
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    body, tag = _content(name)
    headers = {"ETag": f'"{tag}"', "Cache-Control": CACHE_CONTROL, "Content-Security-Policy": _POLICY}
    if matches_tag(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=_MEDIA_TYPES[name], headers=headers)


@cache
def _content(name: str) -> tuple[bytes, str]:
    """The bytes of a file, and their digest."""
    body = files("service.http.web").joinpath(_FOLDERS.get(name, "page"), name).read_bytes()
    return body, hashlib.sha256(body).hexdigest()
