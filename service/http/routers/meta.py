"""The page at ``/``, health, and the pages that documents and problems refer to."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse

from service.http.openapi import content, named, problems
from service.http.responses import CACHE_CONTROL, matches_tag, wants_page
from service.http.state import state_of
from service.http.web.pages import (
    guides_page,
    page_response,
    problem_type_page,
    problems_page,
    redoc_page,
    swagger_page,
)
from service.problems import CATALOGUE, Problem
from service.telemetry.metrics import CONTENT_TYPE
from solver.documents import SCHEMAS
from solver.removed import removed

__all__ = ["router"]

router = APIRouter(tags=["service"])

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


SchemaName = Annotated[
    str, Path(description="A name that `/v1/schemas` lists, as graph.", openapi_examples=named("schema_name"))
]
ProblemCode = Annotated[
    str,
    Path(
        description="What is behind `/problems/` in the type of a problem, as shape-mismatch.",
        openapi_examples=named("problem_code"),
    ),
]


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The routes, with examples that run from the page."""
    app, root = request.app, request.scope.get("root_path", "")
    return swagger_page(f"{app.title} - Swagger UI", root, app.swagger_ui_parameters)


@router.get("/redoc", include_in_schema=False)
async def redoc(request: Request) -> Response:
    return redoc_page(f"{request.app.title} - ReDoc", request.scope.get("root_path", ""))


@router.get("/guides/", include_in_schema=False)
async def guides(request: Request) -> Response:
    """Where the guides are; with ARENAPLAN_GUIDES, the files of that folder come before this."""
    return page_response(guides_page(request.scope.get("root_path", "")), img_src="'self'")


@router.get(
    "/healthz",
    summary="Is the process up?",
    responses={
        200: {"description": "It is.", "content": content("health")},
        503: {"description": "The workers are supervised no more: restart the process."},
    },
)
async def get_health(request: Request) -> JSONResponse:
    """200 as long as the service answers and looks after its workers; 503 says that it must be restarted."""
    supervised = state_of(request).pool.supervised
    return JSONResponse({"status": "ok" if supervised else "unsupervised"}, 200 if supervised else 503)


@router.get(
    "/readyz",
    summary="Can it plan?",
    responses={
        200: {"description": "It can.", "content": content("readiness")},
        503: {"description": "Not yet, not now, or not any more; `status` says which."},
    },
)
async def get_readiness(request: Request) -> JSONResponse:
    """200 once a worker is there to plan, else 503; also tells how many of them live.

    503 as well while all workers are busy and as many requests wait as may (`overloaded`), and once the
    service was asked to stop (`draining`): it still answers then, so that nothing is lost on the way. And 503
    while the database's file is gone or another one is in its place (`database-replaced`): plans are made all
    the same, and its operator must put it back or start the service again.

    Plans need no database. `jobs` tells of what does: `ready`; `off` where there is none; `starting` until it
    is open; else why it cannot be used: `silent`, `unreachable`, `damaged`, `full`, `read-only`, `tables`,
    `replaced`.

    `compiled_search` and `cp_sat`, once a worker has tried, say whether that code loads; without it plans
    take longer and may be larger.
    """
    state = state_of(request)
    pool = state.pool
    ready = state.status == "ready"
    facts = {"status": state.status, "workers": pool.alive, "wanted": pool.size, "jobs": state.backend.status}
    optional = {part: pool.loads(part) for part in ("compiled_search", "cp_sat")}
    known = {part: loads for part, loads in optional.items() if loads is not None}
    return JSONResponse({**facts, **known}, 200 if ready else 503)


@router.get(
    "/metrics",
    summary="Metrics in Prometheus's text format",
    response_class=Response,
    responses={
        200: {
            "description": "One sample a line.",
            "content": content("metrics", "text/plain", type="string"),
        },
        **problems("not-found"),
    },
)
async def get_metrics(request: Request) -> Response:
    """Metrics for Prometheus: requests, queue, workers, memory of answers, processes."""
    state = state_of(request)
    if not state.settings.metrics:
        raise Problem("not-found", "Metrics are off here.", remedy="Set ARENAPLAN_METRICS to true.")
    return Response(state.metrics.text(), media_type=CONTENT_TYPE)


@router.get(
    "/v1/schemas",
    summary="Names of the JSON Schemas",
    response_description="The names, sorted.",
    responses={200: {"content": {"application/json": {"examples": named("schemas")}}}},
)
async def list_schemas() -> dict[str, list[str]]:
    """The kinds of documents that have a schema here: `/v1/schemas/{name}` is that of one."""
    return {"schemas": sorted(SCHEMAS)}


@router.get(
    "/v1/schemas/{name}",
    summary="A JSON Schema",
    responses={
        200: {
            "description": "The schema.",
            "content": content("schema", "application/schema+json", type="object"),
        },
        **problems("not-found"),
    },
)
async def get_schema(name: SchemaName) -> JSONResponse:
    """The JSON Schema of a document; `/v1/schemas` lists the names."""
    if name not in SCHEMAS:
        remedy = f"Choose one of {', '.join(sorted(SCHEMAS))}."
        raise Problem("not-found", f"There is no schema {name!r:.80}.", remedy=remedy)
    return JSONResponse(SCHEMAS[name], media_type="application/schema+json")


@router.get("/problems", include_in_schema=False)
async def list_problem_types(request: Request) -> Response:
    if wants_page(request.scope):
        return page_response(problems_page(request.scope.get("root_path", "")), img_src="'self'")
    return JSONResponse([kind.facts() for kind in CATALOGUE.values()])


@router.get(
    "/problems/{code}",
    summary="What a problem type means",
    responses={
        200: {
            "description": "Type, title, status and explanation.",
            "content": {**content("problem_type", type="object"), "text/html": {}},
        },
        **problems("not-found"),
    },
)
async def get_problem_type(request: Request, code: ProblemCode) -> Response:
    """For people (HTML) and programs (JSON), by the Accept header."""
    kind = CATALOGUE.get(code)
    if kind is None:
        raise Problem("not-found", f"There is no problem type {code!r:.80}.", remedy="See /problems.")
    if wants_page(request.scope):
        return page_response(problem_type_page(kind, request.scope.get("root_path", "")), img_src="'self'")
    return JSONResponse(kind.facts())
