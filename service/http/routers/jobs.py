"""Jobs: work that outlives the request that asked for it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from service.auth.principal import principal_of
from service.http.bodies import MODEL_TYPES, read_json_body
from service.http.openapi import (
    CANCEL_ROUTE,
    EVENTS_ROUTE,
    JOB_ROUTE,
    JOBS_ROUTE,
    RESULT_ROUTE,
    SUBMIT_ROUTE,
)
from service.http.responses import answer_response, job_response
from service.http.scopes import is_head, note
from service.http.state import State, state_of
from service.jobs.model import Job, NewJob, job_document
from service.jobs.model import State as JobState
from service.jobs.orders import read_order
from service.jobs.spool import Spool, pieces
from service.jobs.webhooks import check_url
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


@router.post("/v1/jobs", **SUBMIT_ROUTE)
async def submit(request: Request, idempotency_key: IdempotencyKey = None) -> Response:
    """Accept work, and answer with the job that does it. It goes on when the caller has left.

    `request` is the body of the synchronous route of the same name. A large graph, or a model, is stored
    first and referred to by its digest as `graph`; `request` is then the rest, and `options` may stand
    outside of it. A `webhook` is called once the job is finished.
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
    if order.webhook is not None:
        check_url(order.webhook, configured=state.settings.webhook_secret is not None)
    job, new = await jobs.submit(
        NewJob(
            principal.tenant,
            principal.subject,
            order.task,
            work,
            asked,
            order.graph,
            order.webhook,
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


@router.get("/v1/jobs", **JOBS_ROUTE)
async def jobs(
    request: Request,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most jobs in the answer.")] = 50,
    after: Annotated[
        str | None, Query(pattern="^[0-9a-f]{32}$", description="The last job of the page before.")
    ] = None,
) -> JSONResponse:
    """Jobs of the caller, the newest first. `next` is the path of the next page."""
    engine = state_of(request).backend.stored.jobs
    rows = await engine.page(principal_of(request).tenant, state=state, limit=limit + 1, after=after)
    page, root = rows[:limit], request.scope.get("root_path", "")
    more = None
    if len(rows) > limit:
        chosen = f"&state={state}" if state is not None else ""
        more = f"{root}/v1/jobs?limit={limit}&after={page[-1].id}{chosen}"
    document = {"jobs": [job_document(job, root) for job in page], "next": more}
    return JSONResponse(document, headers={"Cache-Control": "no-store"})


@router.get("/v1/jobs/{id}", **JOB_ROUTE)
async def job(request: Request, id: str) -> Response:
    """A job as it is now: its state, and how far it is."""
    status = await state_of(request).backend.stored.jobs.get(principal_of(request).tenant, id)
    return job_response(request, status)


@router.get("/v1/jobs/{id}/result", **RESULT_ROUTE)
async def result(request: Request, id: str) -> Response:
    """The very answer of the synchronous route; of a job that failed, its problem."""
    stored = state_of(request).backend.stored
    answer = await stored.jobs.answer(principal_of(request).tenant, id)
    return answer_response(request, answer)


@router.delete("/v1/jobs/{id}", **CANCEL_ROUTE)
async def cancel(request: Request, id: str) -> Response:
    """End a job. 200 where it has ended, 202 where its process is being ended, which takes no second."""
    status = await state_of(request).backend.stored.jobs.cancel(principal_of(request).tenant, id)
    note(request.scope, job=status.id, state=str(status.state))
    return job_response(request, status, 200 if status.state.final else 202)


@router.get("/v1/jobs/{id}/events", **EVENTS_ROUTE)
async def events(
    request: Request,
    id: str,
    last: Annotated[
        str | None, Header(alias="Last-Event-ID", description="The last event that is known already.")
    ] = None,
) -> Response:
    """News of a job as server-sent events, until it is finished: `state`, `progress`, and last `end`.

    The data of each event is the document of the job. Who comes back with `Last-Event-ID` gets what has
    changed since. A line of comment after silence says that the stream is alive.
    """
    state = state_of(request)
    status = await state.backend.stored.jobs.get(principal_of(request).tenant, id)
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
        if job.state.final or state.phase.draining:  # clients connect again, to another process
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
