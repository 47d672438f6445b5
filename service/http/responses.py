"""Responses: plans and layouts with their entity tags, jobs and their answers, and problems.

Requests are read from their ASGI scopes, which is quicker than through a request object.
"""

from __future__ import annotations

import json
from typing import Any, Final

from fastapi import Request, Response
from starlette.types import Scope

from service.http.web.pages import page_response, problem_page
from service.jobs.model import Answer, Job, job_document
from service.jobs.query import notes_headers
from service.problems import MEDIA_TYPE, Problem

__all__ = [
    "CACHE_CONTROL",
    "answer_response",
    "content_response",
    "header_of",
    "is_head",
    "job_response",
    "matches_tag",
    "note",
    "path_of",
    "problem_response",
    "wants_page",
]

#: Caches may keep a plan, yet must ask before they use it: the service may know it no longer.
CACHE_CONTROL: Final = "no-cache"


def note(scope: Scope, **facts: Any) -> None:
    """Add facts to the access line of this request."""
    scope["state"]["facts"].update(facts)


def path_of(scope: Scope) -> str:
    """The path without the prefix that a reverse proxy strips."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def header_of(scope: Scope, wanted: bytes) -> str | None:
    """The first header with this name, which is in lower case; None if the request has no such header."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)


def is_head(scope: Scope) -> bool:
    """Whether the caller wants the headers alone."""
    return bool(scope["state"].get("head"))


def content_response(
    request: Request, name: str, body: bytes, *, kept: bool, hit: bool = False, notes: str = ""
) -> Response:
    """200 with the answer, or 304 when the caller names its digest in If-None-Match.

    `name` is collection and digest, ``plans/1f0c…``; `kept` says that the answer can be fetched again
    there, `hit` that it was not computed; `notes` are those on the model of this request, which another model
    with the same answer may lack.
    """
    digest = name.rpartition("/")[2]
    headers = {"ETag": f'"{digest}"', "Cache-Control": CACHE_CONTROL, "X-Cache": "hit" if hit else "miss"}
    headers |= notes_headers({"notes": notes})
    if kept:
        headers["Content-Location"] = f"{request.scope.get('root_path', '')}/v1/{name}"
    if matches_tag(header_of(request.scope, b"if-none-match") or "", digest):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def matches_tag(condition: str, digest: str) -> bool:
    """RFC 9110, 13.1.2: weak comparison against a list of entity tags, or ``*``."""
    tags = {tag.strip().removeprefix("W/") for tag in condition.split(",")}
    return f'"{digest}"' in tags or "*" in tags


def job_response(request: Request, job: Job, status: int = 200, **headers: str) -> Response:
    """The document, with where it is; and with when to ask again, as long as the job is not finished."""
    document = job_document(job, request.scope.get("root_path", ""))
    headers = {"Cache-Control": "no-store", "Location": document["links"]["self"], **headers}
    if not job.state.final:
        headers["Retry-After"] = "1"
    body = json.dumps(document, ensure_ascii=False).encode()
    return Response(body, status, headers, "application/json")


def answer_response(request: Request, answer: Answer, *, hit: bool = True) -> Response:
    """200 with the bytes of the answer; where it has a digest, that is its entity tag."""
    name = answer.facts.get("name")
    if name is None:
        return Response(answer.body, headers=notes_headers(answer.facts), media_type="application/json")
    notes = answer.facts.get("notes", "")
    return content_response(request, name, answer.body, kept=answer.facts["kept"], hit=hit, notes=notes)


def wants_page(scope: Scope) -> bool:
    """Whether a person asks for something to read: a browser that opens an address says so."""
    return scope["method"] in ("GET", "HEAD") and "text/html" in (header_of(scope, b"accept") or "")


def problem_response(scope: Scope, problem: Problem) -> Response:
    """The problem as a page for a person, else as a document for a program."""
    status, instance = problem.kind.status, scope["state"]["request_id"]
    if wants_page(scope):
        page = problem_page(problem, instance, scope.get("root_path", ""))
        return page_response(page, status, {**problem.headers, "Vary": "Accept"}, img_src="'self'")
    body = json.dumps(problem.document(f"urn:request:{instance}"), ensure_ascii=False).encode()
    return Response(body, status, {**problem.headers}, MEDIA_TYPE)
