"""What both clients send and how they read the answers; nothing here waits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from clients.errors import CapacityExceeded, ProblemError, UnexpectedAnswer

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_TIMEOUT",
    "JSON_HEADERS",
    "GraphLike",
    "address",
    "explain_body",
    "export_path",
    "layout_body",
    "options_document",
    "plan_body",
    "program_body",
    "read_answer",
    "read_file",
    "reading",
    "timeout_of",
    "tradeoff_body",
    "validate_body",
]

#: A document (a graph, program, plan, buffers) as JSON values, as the bytes of its file, or that file's path.
GraphLike = Mapping[str, Any] | bytes | PathLike[str]

#: Connecting succeeds soon or not at all; a solve may use the service's whole time limit of a minute, and
#: wait for a worker before that. Calls beyond `DEFAULT_LIMITS` wait for their turn as long as it takes.
DEFAULT_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0, read=120.0, pool=None)

#: Fewer connections than requests may wait at the service, so that one client alone cannot overload it.
DEFAULT_LIMITS: Final = httpx.Limits(max_connections=32, max_keepalive_connections=32)

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


def timeout_of(timeout: httpx.Timeout | float | None) -> httpx.Timeout:
    """A number bounds each wait for the service, not the wait for one of the client's own connections."""
    return timeout if isinstance(timeout, httpx.Timeout) else httpx.Timeout(timeout, pool=None)


def address(base: httpx.URL, path: str) -> str:
    """Where a request went, as a person may read it: without a password."""
    return f"{str(base.copy_with(username=None, password=None)).rstrip('/')}{path}"


def read_answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a 200. Raises `ProblemError` or `UnexpectedAnswer`."""
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnexpectedAnswer(f"{_place(response)} with something other than a JSON object.")
    if response.is_success:
        return document
    if "type" not in document:
        raise UnexpectedAnswer(f"{_place(response)} without saying why.")
    raise _problem(document)


def _place(response: httpx.Response) -> str:
    return f"{address(response.request.url, '')} answered {response.status_code}"


@contextlib.contextmanager
def reading(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The document of an answer. What it lacks makes it an `UnexpectedAnswer`: of another version, say."""
    document = read_answer(response)
    try:
        yield document
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UnexpectedAnswer(f"{_place(response)} with a document of another form: {error!r}.") from error


def _problem(document: Mapping[str, Any]) -> ProblemError:
    """A capacity error without its figures is a problem like any other: it says what it says."""
    if str(document["type"]).endswith("/capacity-exceeded"):
        with contextlib.suppress(ValueError):
            return CapacityExceeded(document)
    return ProblemError(document)
