"""Jobs: work that outlives the request that asked for it; and graphs and models, stored for it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from service.auth.principal import principal_of
from service.http.bodies import MODEL_TYPES, read_json_body, read_stored_body
from service.http.openapi import (
    ANY_BYTES,
    NOT_MODIFIED,
    NOTES,
    STORE_PROBLEMS,
    answer,
    content,
    job_answer,
    named,
    problems,
    request_body,
)
from service.http.responses import CACHE_CONTROL, answer_response, is_head, job_response, matches_tag, note
from service.http.schemas import JobRequest, JobsDocument
from service.http.state import State, state_of
from service.jobs.frames import Spool, pieces
from service.jobs.model import Job, NewJob, job_document
from service.jobs.model import State as JobState
from service.jobs.requests import read_order
from service.jobs.table import StoredGraph
from service.problems import Problem
from service.telemetry import tracing

__all__ = ["router"]

router = APIRouter(tags=["jobs"])

#: Largest body of a job; larger requests refer to a graph that was stored before.
INLINE_BYTES: Final = 4 << 20
#: Reading this many bytes of JSON takes about a millisecond; larger bodies are read in a thread.
SMALL_BYTES: Final = 1 << 16
#: Silence after which a stream of events says that it is still there.
HEARTBEAT_SECONDS: Final = 15.0

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="The same key with the same body is the same job."),
]


Id = Annotated[str, Path(description="The `id` of a job.", openapi_examples=named("job_id"))]

#: One event of the stream. OpenAPI 3.1 has no word for the items of a stream: the schema is that of each.
_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "An event as its fields; the stream has one after the other.",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"enum": ["state", "progress", "end"], "description": "What is new; `end` is the last."},
        "id": {"type": "string", "pattern": "^[0-9]+$", "description": "For Last-Event-ID."},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/JobDocument"},
            "description": "The document of the job.",
        },
    },
}


@router.post(
    "/v1/jobs",
    summary="Accept a job",
    status_code=202,
    responses={
        200: job_answer("The job that was accepted for this Idempotency-Key, and is finished."),
        202: job_answer("The job."),
        **problems(
            "invalid-json", "bad-request", "invalid-request", "body-too-large", "unsupported-media-type",
            "too-many-bytes", "overloaded", "graph-not-found",
            "idempotency-conflict", "too-many-jobs", *STORE_PROBLEMS,
        ),
    },
    openapi_extra={"requestBody": request_body(JobRequest, "order")},
)  # fmt: skip
async def submit_job(request: Request, idempotency_key: IdempotencyKey = None) -> Response:
    """Accept work, and answer with the job that does it. It goes on when the caller has left.

    `request` is the body of the synchronous route of the same name. A large graph, or a model, is stored
    first and referred to by its digest as `graph`; `request` is then the rest, and `options` may stand
    outside of it.
    """
    state = state_of(request)
    jobs, principal = state.backend.stored.jobs, principal_of(request)
    body = await _read_order(request, state)
    data = b"".join(pieces(body))
    if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
        raise Problem(
            "invalid-request",
            "The Idempotency-Key is empty, too long, or has other characters than visible ones.",
            remedy="Give 1 to 255 visible ASCII characters.",
            pointer="/header/Idempotency-Key",
        )
    order = read_order(data) if len(data) <= SMALL_BYTES else await asyncio.to_thread(read_order, data)
    model = False
    if order.graph is not None:
        model = await state.backend.stored.graphs.media_type(principal.tenant, order.graph) in MODEL_TYPES
    work, asked = order.work(model=model)
    job, new = await jobs.submit(
        NewJob(
            principal.tenant,
            principal.subject,
            order.task,
            work,
            asked,
            order.graph,
            idempotency_key,
            hashlib.sha256(data).hexdigest(),
            tracing.carrier().get("traceparent"),
        )
    )
    note(request.scope, job=job.id, task=job.task, new=new)
    return job_response(request, job, 202 if new or not job.state.final else 200)


async def _read_order(request: Request, state: State) -> bytes | Spool:
    limit = state.settings.body_limit_bytes
    try:
        return await read_json_body(request, min(limit, INLINE_BYTES))
    except Problem as problem:
        if problem.kind.code == "body-too-large" and limit > INLINE_BYTES:
            problem.remedy = (
                f"Store the graph first, up to {limit:,} bytes: PUT it to /v1/graphs/ and its SHA-256, and "
                "give that digest as `graph` instead. What else is large goes to the route of the task."
            )
        raise


@router.get(
    "/v1/jobs",
    summary="Jobs, the newest first",
    responses={
        200: answer(JobsDocument, "A page of jobs.", "jobs"), **problems("invalid-request", *STORE_PROBLEMS)
    },
)  # fmt: skip
async def list_jobs(
    request: Request,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most jobs in the answer.")] = 50,
    after: Annotated[
        str | None, Query(pattern="^[0-9a-f]{32}$", description="The last job of the page before.")
    ] = None,
) -> JSONResponse:
    """Jobs of the caller, the newest first. `next` is the path of the next page."""
    engine = state_of(request).backend.stored.jobs
    rows = await engine.table.page(principal_of(request).tenant, state=state, limit=limit + 1, after=after)
    page, root = rows[:limit], request.scope.get("root_path", "")
    more = None
    if len(rows) > limit:
        chosen = f"&state={state}" if state is not None else ""
        more = f"{root}/v1/jobs?limit={limit}&after={page[-1].id}{chosen}"
    document = {"jobs": [job_document(job, root) for job in page], "next": more}
    return JSONResponse(document, headers={"Cache-Control": "no-store"})


@router.get(
    "/v1/jobs/{id}",
    summary="A job",
    responses={200: job_answer("The job as it is now."), **problems("job-not-found", *STORE_PROBLEMS)},
)
async def get_job(request: Request, id: Id) -> Response:
    """A job as it is now: its state, and how far it is."""
    status = await state_of(request).backend.stored.jobs.table.get(principal_of(request).tenant, id)
    return job_response(request, status)


@router.get(
    "/v1/jobs/{id}/result",
    summary="The result of a job",
    response_class=Response,
    responses={
        200: {
            "description": "The answer of the synchronous route; of an import, a graph document.",
            "headers": NOTES,
            "content": content("plan", type="object"),
        },
        304: NOT_MODIFIED,
        **problems(
            "job-not-found", "job-not-finished", "job-failed", "job-cancelled", "job-expired", *STORE_PROBLEMS
        ),
    },
)  # fmt: skip
async def get_job_result(request: Request, id: Id) -> Response:
    """The very answer of the synchronous route; 409 `job-failed`, with its problem, of a job that failed."""
    stored = state_of(request).backend.stored
    return answer_response(request, await stored.jobs.table.answer(principal_of(request).tenant, id))


@router.delete(
    "/v1/jobs/{id}",
    summary="Cancel a job",
    responses={
        200: job_answer("The job, which has ended, now or before."),
        202: job_answer("The job, which is being ended."),
        **problems("job-not-found", *STORE_PROBLEMS),
    },
)
async def cancel_job(request: Request, id: Id) -> Response:
    """End a job. 200 where it has ended, 202 where its process is being ended, which takes no second."""
    status = await state_of(request).backend.stored.jobs.cancel(principal_of(request).tenant, id)
    note(request.scope, job=status.id, state=str(status.state))
    return job_response(request, status, 200 if status.state.final else 202)


@router.get(
    "/v1/jobs/{id}/events",
    summary="News of a job",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events, each with the document of the job as its data.",
            "content": content("event", "text/event-stream", **_EVENT),
        },
        **problems("job-not-found", "invalid-request", *STORE_PROBLEMS),
    },
)
async def stream_job_events(
    request: Request,
    id: Id,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="The last event that is known already.")
    ] = None,
) -> Response:
    """News of a job as server-sent events, until it is finished: `state`, `progress`, and last `end`.

    The data of each event is the document of the job. Who comes back with `Last-Event-ID` gets what has
    changed since. A line of comment after silence says that the stream is alive.
    """
    state = state_of(request)
    status = await state.backend.stored.jobs.table.get(principal_of(request).tenant, id)
    known = int(last) if last is not None and last.isdecimal() and len(last) < 19 else 0
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _events(request, state, status, known)
    if is_head(request.scope):
        return Response(headers=headers, media_type="text/event-stream")
    return StreamingResponse(stream, headers=headers, media_type="text/event-stream")


async def _events(request: Request, state: State, job: Job, known: int) -> AsyncIterator[bytes]:
    engine, root = state.backend.stored.jobs, request.scope.get("root_path", "")
    last_state: JobState | None = None
    quiet = 0.0
    while True:
        if job.revision > known or job.state.final:
            kind = "end" if job.state.final else "state" if job.state is not last_state else "progress"
            data = json.dumps(job_document(job, root), ensure_ascii=False)
            yield f"event: {kind}\nid: {job.revision}\ndata: {data}\n\n".encode()
            last_state, known, quiet = job.state, job.revision, 0.0
        if job.state.final or state.draining:  # clients connect again, to another process
            return
        if quiet >= HEARTBEAT_SECONDS:
            yield b": still here\n\n"
            quiet = 0.0
        try:
            job = await engine.changed(job, 1.0)
        except Problem as problem:
            if problem.kind.code != "database-unavailable":
                return  # removed
            await asyncio.sleep(1.0)
        quiet += 1.0


# -------------------------------------------------------------------------------------------- graphs

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
