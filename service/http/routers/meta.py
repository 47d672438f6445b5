"""Health, and the pages that documents and problems refer to."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from service.http.openapi import HEALTH_ROUTE, METRICS_ROUTE, PROBLEM_ROUTE, READY_ROUTE, SCHEMA_ROUTE
from service.http.state import state_of
from service.http.web.pages import page_response, problem_page, problems_page, redoc_page, swagger_page
from service.problems import CATALOGUE, Problem, ProblemType
from service.telemetry.metrics import CONTENT_TYPE
from solver.documents import SCHEMAS

__all__ = ["router"]

router = APIRouter(tags=["service"])


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The routes, with examples that run from the page."""
    app, root = request.app, request.scope.get("root_path", "")
    return swagger_page(f"{app.title} - Swagger UI", root, app.swagger_ui_parameters)


@router.get("/redoc", include_in_schema=False)
async def redoc(request: Request) -> Response:
    return redoc_page(f"{request.app.title} - ReDoc", request.scope.get("root_path", ""))


@router.get("/healthz", **HEALTH_ROUTE)
async def healthz(request: Request) -> JSONResponse:
    """200 as long as the service answers and looks after its workers; 503 says that it must be restarted."""
    supervised = state_of(request).pool.supervised
    return JSONResponse({"status": "ok" if supervised else "unsupervised"}, 200 if supervised else 503)


@router.get("/readyz", **READY_ROUTE)
async def readyz(request: Request) -> JSONResponse:
    """200 once a worker is there to plan, else 503; also tells how many of them live.

    503 as well while all workers are busy and as many requests wait as may (`overloaded`), and once the
    service was asked to stop (`draining`): it still answers then, so that nothing is lost on the way.

    `compiled_search` and `cp_sat`, once a worker has tried, say whether that code loads; without it plans
    take longer and may be larger.
    """
    state = state_of(request)
    pool = state.pool
    ready = state.status == "ready"
    facts = {"status": state.status, "workers": pool.alive, "wanted": pool.size}
    optional = {part: pool.loads(part) for part in ("compiled_search", "cp_sat")}
    known = {part: loads for part, loads in optional.items() if loads is not None}
    return JSONResponse({**facts, **known}, 200 if ready else 503)


@router.get("/metrics", **METRICS_ROUTE)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus: requests, queue, workers, memory of answers, processes."""
    state = state_of(request)
    if not state.settings.metrics:
        raise Problem("not-found", "Metrics are off here.", remedy="Set ARENAPLAN_METRICS to true.")
    await state.backend.count()
    return Response(state.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/v1/schemas", summary="Names of the JSON Schemas", response_description="The names, sorted.")
async def schemas() -> dict[str, list[str]]:
    """The kinds of documents that have a schema here: `/v1/schemas/{name}` is that of one."""
    return {"schemas": sorted(SCHEMAS)}


@router.get("/v1/schemas/{name}", **SCHEMA_ROUTE)
async def schema(name: str) -> JSONResponse:
    """The JSON Schema of a document; `/v1/schemas` lists the names."""
    if name not in SCHEMAS:
        remedy = f"Choose one of {', '.join(sorted(SCHEMAS))}."
        raise Problem("not-found", f"There is no schema {name!r:.80}.", remedy=remedy)
    return JSONResponse(SCHEMAS[name], media_type="application/schema+json")


@router.get("/problems", include_in_schema=False)
async def problems(request: Request) -> Response:
    if _wants_page(request):
        return page_response(problems_page(request.scope.get("root_path", "")), img_src="'self'")
    return JSONResponse([_facts(kind) for kind in CATALOGUE.values()])


@router.get("/problems/{code}", **PROBLEM_ROUTE)
async def problem(request: Request, code: str) -> Response:
    """For people (HTML) and programs (JSON), by the Accept header."""
    kind = CATALOGUE.get(code)
    if kind is None:
        raise Problem("not-found", f"There is no problem type {code!r:.80}.", remedy="See /problems.")
    if _wants_page(request):
        return page_response(problem_page(kind, request.scope.get("root_path", "")), img_src="'self'")
    return JSONResponse(_facts(kind))


def _wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _facts(kind: ProblemType) -> dict[str, Any]:
    return {"type": kind.uri, "title": kind.title, "status": kind.status, "explanation": kind.explanation}
