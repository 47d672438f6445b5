"""Reading request bodies: declared as JSON, and never more of them than is allowed."""

from __future__ import annotations

import contextlib

from fastapi import Request

from service.http.intake import IntakeBody
from service.http.state import state_of
from service.jobs.spool import Spool
from service.problems import Problem

__all__ = ["read_json_body"]


async def read_json_body(request: Request, limit: int) -> bytes | Spool:
    """The raw bytes of the body, at most `limit`; stops reading where the limit is passed.

    A body that finds no room in memory beside those of other requests comes as a file. Either counts until
    the request is answered. Raises `Problem` ``unsupported-media-type``, ``body-too-large``,
    ``too-many-bytes`` or ``overloaded``; the latter three before the body is read, where its length is known.
    """
    _check_headers(request)
    state = state_of(request)
    intake = state.intake
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        if int(declared) > limit:
            raise _too_large(f"{int(declared):,} bytes", limit)
        intake.expect(int(declared))
        state.pool.check_room(int(declared))
    body = IntakeBody(intake)
    held: contextlib.ExitStack = request.scope["state"].setdefault("held", contextlib.ExitStack())
    held.callback(body.close)
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise _too_large(f"more than {limit:,} bytes", limit)
        body.append(chunk)
    return body.whole()


def _check_headers(request: Request) -> None:
    declared = request.headers.get("content-type", "")
    media_type, _, parameters = declared.lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if media_type.strip() != "application/json" or charset not in ("", "charset=utf-8"):
        raise _unsupported(f"Content-Type is {declared!r:.80}." if declared else "Content-Type is missing.")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _unsupported(f"Content-Encoding is {encoding!r:.80}.")


def _unsupported(detail: str) -> Problem:
    return Problem(
        "unsupported-media-type",
        detail,
        remedy="Send plain UTF-8 JSON with Content-Type: application/json.",
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
