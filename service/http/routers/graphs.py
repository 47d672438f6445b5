"""Graphs and models, stored to be referred to by jobs."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response

from service.auth.principal import principal_of
from service.http.bodies import read_stored_body
from service.http.openapi import ANY_BYTES, NOT_MODIFIED, STORE_PROBLEMS, named, problems
from service.http.responses import CACHE_CONTROL, matches_tag, note
from service.http.state import state_of
from service.jobs.frames import pieces
from service.jobs.table import StoredGraph
from service.problems import Problem

__all__ = ["router"]

router = APIRouter(tags=["jobs"])

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


_SHA_256: Final = "SHA-256 of the bytes, as 64 hexadecimal digits in lower case."

Digest = Annotated[str, Path(description=_SHA_256, openapi_examples=named("graph_digest"))]
#: The route itself refuses other text, with a problem of its own.
NewDigest = Annotated[
    str,
    Path(
        description=_SHA_256,
        openapi_examples=named("graph_digest"),
        json_schema_extra={"pattern": "^[0-9a-f]{64}$"},
    ),
]


@router.put(
    "/v1/graphs/{digest}",
    summary="Store a graph or a model",
    status_code=201,
    response_class=Response,
    responses={
        201: {"description": "It is stored."},
        204: {"description": "It was stored already, and its time begins again."},
        **problems(
            "digest-mismatch", "bad-request", "body-too-large", "unsupported-media-type",
            "too-many-bytes", "overloaded", *STORE_PROBLEMS,
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": ANY_BYTES}},
)  # fmt: skip
async def store_graph(request: Request, digest: NewDigest) -> Response:
    """Store a graph, or whatever a task begins with, under the SHA-256 of its bytes; a model as well.

    The media type is kept: it says how a job reads the bytes. They are not looked into before. To store the
    same again, after a connection was lost or in a month, does no harm: what nobody has stored or used for
    ARENAPLAN_JOB_TTL_SECONDS is removed.
    """
    state = state_of(request)
    graphs = state.backend.stored.graphs
    if not _DIGEST.fullmatch(digest):
        raise Problem(
            "digest-mismatch",
            f"{digest!r:.80} is not a SHA-256.",
            remedy="Give 64 hexadecimal digits in lower case.",
        )
    media_type, body = await read_stored_body(request, state.settings.body_limit_bytes)
    stored = StoredGraph(media_type, b"".join(pieces(body)))
    new = await graphs.put(principal_of(request).tenant, digest, stored)
    note(request.scope, digest=digest, bytes=len(body), new=new)
    here = f"{request.scope.get('root_path', '')}/v1/graphs/{digest}"
    return Response(status_code=201 if new else 204, headers={"Location": here, "ETag": f'"{digest}"'})


@router.get(
    "/v1/graphs/{digest}",
    summary="A stored graph",
    response_class=Response,
    responses={
        200: {"description": "Its bytes.", "content": ANY_BYTES},
        304: NOT_MODIFIED,
        **problems("graph-not-found", *STORE_PROBLEMS),
    },
)
async def get_graph(request: Request, digest: Digest) -> Response:
    """The bytes as they were stored. HEAD tells whether they are here."""
    stored = await state_of(request).backend.stored.graphs.get(principal_of(request).tenant, digest)
    headers = {"ETag": f'"{digest}"', "Cache-Control": CACHE_CONTROL}
    if matches_tag(request.headers.get("if-none-match", ""), digest):
        return Response(status_code=304, headers=headers)
    return Response(stored.body, headers=headers, media_type=stored.media_type)


@router.delete(
    "/v1/graphs/{digest}",
    summary="Forget a graph",
    status_code=204,
    response_class=Response,
    responses={204: {"description": "It is forgotten."}, **problems("graph-not-found", *STORE_PROBLEMS)},
)
async def delete_graph(request: Request, digest: Digest) -> Response:
    """Forget a graph. Jobs that were accepted keep it until they are finished."""
    await state_of(request).backend.stored.graphs.remove(principal_of(request).tenant, digest)
    return Response(status_code=204)
