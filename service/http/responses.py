"""Responses: plans and layouts with their entity tags, and problems."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final

from fastapi import Request, Response

from service.http.scopes import header_of
from service.jobs.notes import notes_headers
from service.problems import MEDIA_TYPE, Problem

__all__ = ["CACHE_CONTROL", "content_response", "instance_of", "matches_tag", "problem_response"]

#: Caches may keep a plan, yet must ask before they use it: the service may know it no longer.
CACHE_CONTROL: Final = "no-cache"


def content_response(
    request: Request, name: str, body: bytes, *, kept: bool, hit: bool = False, notes: str = ""
) -> Response:
    """200 with the answer, or 304 when the caller names its digest in If-None-Match.

    `name` is collection and digest, ``plans/1f0c…``; `kept` says that the answer can be fetched again
    there, `hit` that it was not computed; `notes` are those on the model of this request, which another model
    with the same answer may lack.
    """
    location = f"{request.scope.get('root_path', '')}/v1/{name}" if kept else None
    digest = name.rpartition("/")[2]
    condition = header_of(request.scope, b"if-none-match")
    if condition is not None and matches_tag(condition, digest):
        return Response(status_code=304, headers=_headers(digest, location, hit, notes))
    return _Prepared(body, _prepared(digest, location, hit, notes, len(body)))


def _headers(digest: str, location: str | None, hit: bool, notes: str) -> dict[str, str]:
    headers = {"ETag": f'"{digest}"', "Cache-Control": CACHE_CONTROL, "X-Cache": "hit" if hit else "miss"}
    headers |= notes_headers({"notes": notes})
    return headers if location is None else {**headers, "Content-Location": location}


@lru_cache(maxsize=1024)
def _prepared(
    digest: str, location: str | None, hit: bool, notes: str, size: int
) -> tuple[tuple[bytes, bytes], ...]:
    """Headers as they are sent: making them takes longer than all else of an answer that is kept."""
    headers = {**_headers(digest, location, hit, notes), "Content-Length": str(size)}
    return tuple(Response(media_type="application/json", headers=headers).raw_headers)


class _Prepared(Response):
    """A response whose headers are ready."""

    def __init__(self, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.status_code = 200
        self.body = body
        self.raw_headers = [*headers]
        self.background = None


def matches_tag(condition: str, digest: str) -> bool:
    """RFC 9110, 13.1.2: weak comparison against a list of entity tags, or ``*``."""
    tags = {tag.strip().removeprefix("W/") for tag in condition.split(",")}
    return f'"{digest}"' in tags or "*" in tags


def problem_response(problem: Problem, request_id: str) -> Response:
    body = json.dumps(problem.document(f"urn:request:{request_id}"), ensure_ascii=False).encode()
    return Response(body, problem.kind.status, {**problem.headers}, MEDIA_TYPE)


def instance_of(request: Request) -> str:
    """The id of the request, under which the log knows it."""
    return str(request.scope["state"]["request_id"])
