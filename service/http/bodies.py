"""Reading request bodies: declared as JSON, and never more of them than is allowed."""

from __future__ import annotations

from fastapi import Request

from service.problems import Problem

__all__ = ["read_json_body"]


async def read_json_body(request: Request, limit: int) -> bytes:
    """The raw bytes of the body, at most `limit`; stops reading where the limit is passed.

    Raises `Problem` ``unsupported-media-type`` or ``body-too-large``.
    """
    _check_headers(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(f"{int(declared):,} bytes", limit)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(f"more than {limit:,} bytes", limit)
        chunks.append(chunk)
    return b"".join(chunks)


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
