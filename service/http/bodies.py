"""Reading request bodies: declared as what they are, and never more of them than is allowed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fastapi import Request

from service.auth.principal import principal_of
from service.http.intake import IntakeBody
from service.http.state import state_of
from service.jobs.frames import Spool
from service.jobs.requests import KINDS
from service.problems import Problem
from solver.options import IMPORT_OPTIONS, REQUEST_OPTIONS

__all__ = ["MODEL_TYPES", "is_model", "read_json_body", "read_model_body", "read_stored_body"]

#: Media types of models of other tools; what they are is told from their bytes.
MODEL_TYPES: Final = ("application/octet-stream", "application/onnx", "application/vnd.onnx")

#: Parameters of the query of a posted model.
_OF_MODELS: Final = {
    *IMPORT_OPTIONS,
    *REQUEST_OPTIONS,
    *(name for kind in KINDS.values() for name in (*kind.required, *kind.optional)),
}


def is_model(request: Request) -> bool:
    """Whether the body is declared as a model of another tool."""
    return _media_type(request) in MODEL_TYPES


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").lower().partition(";")[0].strip()


async def read_model_body(
    request: Request, limit: int, instead: Mapping[str, list[str]] = MappingProxyType({})
) -> bytes | Spool:
    """The parameters of the query as a line of JSON, each a list of texts, and then the bytes of the body.

    What stands in `instead` takes the place of parameters. Raises `Problem` ``unsupported-media-type`` or
    ``body-too-large``.
    """
    _check_encoding(request)
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    return await _read(request, limit, json.dumps({**given, **instead}).encode() + b"\n")


async def read_stored_body(request: Request, limit: int) -> tuple[str, bytes | Spool]:
    """Media type and bytes of what is to be stored: JSON, or a model.

    Raises `Problem` as `read_model_body` and `read_json_body` do.
    """
    if is_model(request):
        _check_encoding(request)
    else:
        _check_headers(request)
    return _media_type(request), await _read(request, limit)


async def read_json_body(request: Request, limit: int) -> bytes | Spool:
    """The raw bytes of the body, at most `limit`; stops reading where the limit is passed.

    A body that finds no room in memory beside those of other requests comes as a file. Either counts until
    the request is answered. Raises `Problem` ``unsupported-media-type``, ``invalid-request`` for options in
    the query, ``body-too-large``,
    ``too-many-bytes`` or ``overloaded``; the latter three before the body is read, where its length is known.
    """
    _check_headers(request)
    if name := next((name for name in request.query_params if name in _OF_MODELS), None):
        raise Problem(
            "invalid-request",
            f"{name!r} stands in the query, which is read beside a model and not beside JSON.",
            remedy=f'Put {name!r} into the JSON body: options of a plan stand in its "options".',
            pointer=f"/query/{name}",
        )
    return await _read(request, limit)


async def _read(request: Request, limit: int, head: bytes = b"") -> bytes | Spool:
    """The body behind `head`."""
    state = state_of(request)
    intake = state.intake
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        if int(declared) > limit:
            raise _too_large(f"{int(declared):,} bytes", limit)
        intake.expect(int(declared))
        state.pool.check_room(int(declared), principal_of(request).tenant)
    body = IntakeBody(intake)
    held: contextlib.ExitStack = request.scope["state"].setdefault("held", contextlib.ExitStack())
    held.callback(body.close)
    if head:
        body.append(head)
    async for chunk in request.stream():
        if len(body) - len(head) + len(chunk) > limit:
            raise _too_large(f"more than {limit:,} bytes", limit)
        body.append(chunk)
    return body.whole()


def _check_headers(request: Request) -> None:
    declared = request.headers.get("content-type", "")
    media_type, _, parameters = declared.lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if media_type.strip() != "application/json" or charset not in ("", "charset=utf-8"):
        raise _unsupported(f"Content-Type is {declared!r:.80}." if declared else "Content-Type is missing.")
    _check_encoding(request)


def _check_encoding(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _unsupported(f"Content-Encoding is {encoding!r:.80}.")


def _unsupported(detail: str) -> Problem:
    return Problem(
        "unsupported-media-type",
        detail,
        remedy="Send plain UTF-8 JSON with Content-Type: application/json; where a graph is expected, a model"
        " of another tool will do, as application/octet-stream.",
        headers={"Accept": "application/json"},
    )


def _too_large(size: str, limit: int) -> Problem:
    return Problem(
        "body-too-large",
        f"The body has {size}; the limit is {limit:,} bytes.",
        remedy="Leave out inline weights (planning needs none), or raise the limit of the service.",
        extensions={"limit": limit},
        headers={"Connection": "close"},
    )
