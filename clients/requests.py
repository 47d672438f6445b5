"""What both clients send and how they read the answers; nothing here waits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from clients.errors import CapacityExceeded, ProblemError, UnexpectedAnswer

__all__ = [
    "DEFAULT_TIMEOUT",
    "JSON_HEADERS",
    "GraphLike",
    "explain_body",
    "export_path",
    "layout_body",
    "options_document",
    "plan_body",
    "program_body",
    "read_answer",
    "read_file",
    "tradeoff_body",
    "validate_body",
]

#: A document (a graph, program, plan, buffers) as JSON values, as the bytes of its file, or that file's path.
GraphLike = Mapping[str, Any] | bytes | PathLike[str]

#: Connecting succeeds soon or not at all; a solve may use the service's whole time limit of a minute, and
#: wait for a worker before that.
DEFAULT_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0, read=120.0)

JSON_HEADERS: Final = {"Content-Type": "application/json"}


def _json(document: GraphLike) -> bytes:
    """The document as it is sent: files are not read as JSON here, the service is the judge."""
    if isinstance(document, bytes):
        return document
    if isinstance(document, PathLike):
        return Path(document).read_bytes()
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def options_document(options: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Both together, `more` wins; what is None is left to the service."""
    return {name: value for name, value in {**(options or {}), **more}.items() if value is not None}


def plan_body(graph: GraphLike, options: Mapping[str, Any]) -> bytes:
    return b'{"graph":%b,"options":%b}' % (_json(graph), _json(options))


def program_body(program: GraphLike, options: Mapping[str, Any]) -> bytes:
    return b'{"program":%b,"options":%b}' % (_json(program), _json(options))


def tradeoff_body(graph: GraphLike, options: Mapping[str, Any], points: int) -> bytes:
    return b'{"graph":%b,"options":%b,"points":%d}' % (_json(graph), _json(options), points)


def explain_body(graph: GraphLike, options: Mapping[str, Any], *, training: bool) -> bytes:
    return b'{"graph":%b,"options":%b,"training":%b}' % (
        _json(graph),
        _json(options),
        b"true" if training else b"false",
    )


def layout_body(problem: GraphLike, options: Mapping[str, Any]) -> bytes:
    return b'{"problem":%b,"options":%b}' % (_json(problem), _json(options))


def validate_body(graph: GraphLike, plan: GraphLike, steps: int, seed: int) -> bytes:
    return b'{"graph":%b,"plan":%b,"steps":%d,"seed":%d}' % (_json(graph), _json(plan), steps, seed)


def export_path(digest: str, format_: str, against: str | None) -> str:
    """Where a plan is written as another file."""
    path = f"/v1/plans/{quote(digest, safe='')}/{quote(format_, safe='')}"
    return path if against is None else f"{path}?against={quote(against, safe='')}"


def read_file(response: httpx.Response) -> bytes:
    """The bytes of a 200. Raises what `read_answer` raises."""
    if not response.is_success:
        read_answer(response)
    return response.content


def read_answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a 200. Raises `ProblemError` or `UnexpectedAnswer`."""
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnexpectedAnswer(
            f"{response.request.url} answered {response.status_code} with something other than a JSON object."
        )
    if response.is_success:
        return document
    if "type" not in document:
        raise UnexpectedAnswer(f"{response.request.url} answered {response.status_code} without saying why.")
    raise _problem(document)


def _problem(document: Mapping[str, Any]) -> ProblemError:
    """A capacity error without its figures is a problem like any other: it says what it says."""
    if str(document["type"]).endswith("/capacity-exceeded"):
        with contextlib.suppress(ValueError):
            return CapacityExceeded(document)
    return ProblemError(document)
