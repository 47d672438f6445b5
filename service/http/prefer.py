"""How long a caller waits: until it hangs up, or as ``Prefer: respond-async, wait=N`` says (RFC 7240).

With that header it gets an answer in time, or a job that goes on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Final, TypeVar

from fastapi import Request, Response

from service.auth.principal import principal_of
from service.http.cache import PLAN_SECONDS
from service.http.responses import answer_response, job_response, note
from service.http.state import state_of
from service.jobs.frames import Spool, pieces
from service.jobs.model import Answer, NewJob, State
from service.jobs.requests import TASK_OF_MODEL, stored_of
from service.problems import Problem
from service.telemetry import tracing

__all__ = ["GONE", "respond_later", "seconds_to_wait", "unless_disconnected"]

T = TypeVar("T")

#: Status for a caller that has left; only the log ever sees it.
GONE: Final = 499
#: Longest time to wait, whatever is asked.
LONGEST_SECONDS: Final = 60.0

_WAIT: Final = re.compile(r"wait\s*=\s*\"?(\d{1,6})\"?")


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T | None:
    """Result of `work`; ``None``, with `work` cancelled, once the caller has hung up.

    The request body must have been read to its end.
    """
    task = asyncio.ensure_future(work)

    async def hung_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.create_task(hung_up())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for other in (task, gone):
            other.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def seconds_to_wait(request: Request) -> float | None:
    """How long the caller wants to wait before there may be a job; None where no job is wanted, none is kept
    here, or the caller has not its scope: preferences may be left aside.
    """
    preferences = [part.strip().lower() for part in ",".join(request.headers.getlist("prefer")).split(",")]
    preferences = [part.strip() for whole in preferences for part in whole.split(";")]
    state = state_of(request)
    if "respond-async" not in preferences or state.backend.maybe is None or state.shared.away:
        return None
    if "jobs" not in principal_of(request).scopes:
        return None
    found = next((match for part in preferences if (match := _WAIT.fullmatch(part))), None)
    return min(float(found[1]), LONGEST_SECONDS) if found else 0.0


async def respond_later(request: Request, work: str, body: bytes | Spool, seconds: float) -> Response | None:
    """Do the work as a job: its answer if it is there within `seconds`, else 202 with the job's address.

    None where the database does not take the job. Raises the `Problem` that the job fails with, if it does so
    in time.
    """
    engine, principal = state_of(request).backend.stored.jobs, principal_of(request)
    task = TASK_OF_MODEL.get(work, work)
    trace = tracing.carrier().get("traceparent")
    request_bytes = stored_of(work, b"".join(pieces(body))).dump()
    new = NewJob(principal.tenant, principal.subject, task, work, request_bytes, trace=trace)
    try:
        async with asyncio.timeout(PLAN_SECONDS):
            job, _ = await engine.submit(new)
    except TimeoutError:
        return None
    except Problem as problem:
        if problem.kind.code != "database-unavailable":
            raise
        return None
    note(request.scope, job=job.id)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    answer: Answer | None = None
    try:
        while not job.state.final and (left := until - loop.time()) > 0:
            job = await engine.changed(job, left)
        if job.state is State.FAILED and job.error is not None:
            raise Problem(**job.error)
        if job.state is State.SUCCEEDED:
            answer = await engine.table.answer(principal.tenant, job.id)
    except Problem as problem:  # the job is accepted, and says later what came of it
        if problem.kind.code != "database-unavailable":
            raise
    if answer is not None:
        response = answer_response(request, answer, hit=False)
        response.headers["Preference-Applied"] = f"wait={seconds:.0f}"
        return response
    return job_response(request, job, 202, **{"Preference-Applied": "respond-async"})
