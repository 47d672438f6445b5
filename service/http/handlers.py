"""Every error that reaches the framework, answered as problem+json and never with a traceback."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match

from service.http.computation import GONE
from service.http.responses import note, problem_response
from service.problems import Problem
from solver.errors import json_pointer

__all__ = ["install"]


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
    routes: Sequence[BaseRoute] = request.app.state.routes
    matching = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    methods = {method for route in matching for method in getattr(route, "methods", None) or ()}
    return methods | {"HEAD"} if "GET" in methods else methods


def _invalid(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    return _answer(
        request, Problem("invalid-request", str(first["msg"]), pointer=json_pointer(tuple(first["loc"])))
    )


def _disconnected(_request: Request, _error: ClientDisconnect) -> Response:
    return Response(status_code=GONE)


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """`routes` are all that the application has."""
    app.state.routes = routes
    app.exception_handler(Problem)(_answer)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(ClientDisconnect)(_disconnected)
