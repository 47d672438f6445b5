"""The HTTP service. `create_app` is the one way to make it; importing this starts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from service.http import openapi
from service.http.access import Access, Users
from service.http.cache import PlanCaches
from service.http.computation import GONE
from service.http.connections import CheckHost, Hosts
from service.http.middleware import HeadAsGet, RequestContext
from service.http.responses import note, problem_response
from service.http.routers import jobs, meta, plan
from service.http.state import State
from service.http.web.pages import GuideFiles
from service.jobs.backend import open_service_store
from service.jobs.pool import WorkerPool
from service.problems import Problem
from service.settings import Settings
from solver.errors import json_pointer
from solver.version import version

__all__ = ["create_app"]

_log = structlog.get_logger("service")

_DESCRIPTION = """Plans the memory of neural-network training, proves how good the plan is, and
proves that it is right by training in it.

**Send this first:** `POST /plan` with the example `tiny`. The answer's `digest` opens the report of the plan
at `/plans/{digest}`, and its files, such as a C header, at `/v1/plans/{digest}/{format}`. The body may also
be the bytes of a model: ONNX, Circle or TensorFlow Lite. Send work that takes minutes to `POST /v1/jobs`.

**Keys:** a service that was started with `ARENAPLAN_AUTH=keys` needs one for each request. Its operator makes
it with `arenaplan keys create --name NAME`. *Authorize* takes it on this page; programs send it as
`Authorization: Bearer ap_...`.

**Errors** are `application/problem+json`, with a remedy: [all types](problems).

**Versions:** paths below `/v1` keep their meaning. `POST /plan` is the same as `POST /v1/plan`."""

#: In the order of the page at `/docs`.
_TAGS = [
    {"name": "plans", "description": "A network in; its plan and proof, report, costs and files out."},
    {"name": "layouts", "description": "Buffers with known lifespans in; their offsets out."},
    {
        "name": "jobs",
        "description": "Work that goes on when its caller has left, and graphs stored for it.",
    },
    {
        "name": "service",
        "description": "Health, metrics, JSON Schemas, and what problems mean.",
    },
]


#: In the order of the page at `/docs`, and all that the application has.
_ROUTERS = (plan.router, plan.layouts, jobs.router, meta.router)
_ROUTES = [route for router in _ROUTERS for route in router.routes]


def create_app(
    settings: Settings | None = None, *, tasks: str = "service.jobs.tasks", hosts: str = "*"
) -> FastAPI:
    """An application with a worker pool of its own; `tasks` names the module its workers serve.

    Settings come from the environment unless given; `hosts` are the names that it answers to, as for `Hosts`.
    """
    settings = settings or Settings()
    store = open_service_store(settings, "api")
    users = None if settings.auth == "off" or store is None else Users(settings, store)
    pool = WorkerPool(
        tasks,
        settings.workers,
        queue_limit=settings.queue_limit,
        queue_seconds=settings.queue_seconds,
        meter=None if users is None else users.registry.meter.spend,
        confined=settings.confine_workers,
    )
    app = FastAPIOffline(
        title="arenaplan",
        version=version(),
        description=_DESCRIPTION,
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        openapi_tags=_TAGS,
        generate_unique_id_function=lambda route: route.name,  # the names of methods in generated clients
        lifespan=_lifespan,
        # Requests are counted and traced by our own middleware, once.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        docs_url=None,  # pages of our own, with policies for the browser
        redoc_url=None,
        # The badge would ask a validator on the Internet.
        swagger_ui_parameters={
            "validatorUrl": None,
            "tryItOutEnabled": True,
            "displayRequestDuration": True,
            "defaultModelsExpandDepth": 0,
        },
    )
    state = app.state.arenaplan = State(settings, pool, PlanCaches(settings.cache_bytes), users, store)
    state.watch()
    if settings.guides is not None:
        app.mount("/guides", GuideFiles(directory=settings.guides, html=True))
    for router in _ROUTERS:
        app.include_router(router)
    app.exception_handler(Problem)(_answer)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(ClientDisconnect)(_disconnected)
    openapi.install(app, settings)
    if users is not None:
        app.add_middleware(Access, gate=users.gate, settings=settings)
    app.add_middleware(HeadAsGet)
    app.add_middleware(CheckHost, hosts=Hosts(hosts))
    app.add_middleware(RequestContext, metrics=pool.metrics)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state: State = app.state.arenaplan
    pool = state.pool
    pool.start()
    try:
        await state.backend.open()
        if state.users is not None:
            await state.users.open()
        _log.info("service started", workers=pool.size, auth=state.settings.auth)
        yield
    finally:
        await state.backend.close()
        await pool.close()
        if state.users is not None:
            await state.users.close()
        if state.store is not None:
            await asyncio.to_thread(state.store.close)
        _log.info("service stopped")


# ------------------------------------------------------------------- errors that reach the framework


def _answer(request: Request, problem: Problem) -> Response:
    note(request.scope, problem=problem.kind.code, detail=problem.detail[:200])
    return problem_response(request.scope, problem)


def _http(request: Request, error: HTTPException) -> Response:
    path = request.url.path[:200]
    codes = {
        404: "not-found",
        405: "method-not-allowed",
        413: "body-too-large",
        415: "unsupported-media-type",
    }
    code = codes.get(error.status_code, "bad-request" if error.status_code < 500 else "internal-error")
    details = {
        "not-found": f"There is nothing at {path}.",
        "method-not-allowed": f"{path} does not take {request.method}.",
    }
    detail = details.get(code, str(error.detail))
    headers = dict(error.headers or {})
    if code == "method-not-allowed":
        headers["Allow"] = ", ".join(sorted(_allowed(request)))
    return _answer(request, Problem(code, detail, headers=headers))


def _allowed(request: Request) -> set[str]:
    """All methods of a path; the framework names only those of its first route."""
    matching = (route for route in _ROUTES if route.matches(request.scope)[0] is not Match.NONE)
    methods = {method for route in matching for method in getattr(route, "methods", None) or ()}
    return methods | {"HEAD"} if "GET" in methods else methods


def _invalid(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    return _answer(
        request, Problem("invalid-request", str(first["msg"]), pointer=json_pointer(tuple(first["loc"])))
    )


def _disconnected(_request: Request, _error: ClientDisconnect) -> Response:
    return Response(status_code=GONE)
