"""Answers that are computed each time they are asked for: of documents, and of models of other tools."""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response

from service.auth.principal import principal_of
from service.http.bodies import is_model, read_json_body, read_model_body
from service.http.content_addressed import ContentAddressed
from service.http.disconnect import GONE, unless_disconnected
from service.http.prefer import respond_later, seconds_to_wait
from service.http.scopes import note
from service.http.state import state_of
from service.jobs.notes import notes_headers
from service.jobs.protocol import Limits, run_task
from service.jobs.requests import model_work
from service.problems import Problem

__all__ = ["answer"]

_PLANS: Final = ContentAddressed("plan", "plans")
#: What the log says of an answer.
_FACTS: Final = ("points", "verdict", "complete", "identical")


async def answer(request: Request, task: str, limits: Limits) -> Response:
    """What a worker has to say of a document, or of a model with its choices in the query.

    The query names a plan by its digest, which is among those that are kept here.
    """
    state, tenant = state_of(request), principal_of(request).tenant
    most = state.settings.body_limit_bytes
    work = model_work(task) if is_model(request) else None
    if work is None:
        work, body = task, await read_json_body(request, most)
    else:
        body = await read_model_body(request, most, await _named_plan(request) if task == "validate" else {})
    if (seconds := seconds_to_wait(request)) is not None:
        return await respond_later(request, work, body, seconds)
    state.check_early(work, body)
    frame = await unless_disconnected(
        request, run_task(state.pool, work, state.limits, body, limits, tenant=tenant)
    )
    if frame is None:
        return Response(status_code=GONE)
    note(request.scope, **{name: frame.head[name] for name in _FACTS if name in frame.head})
    return Response(frame.body, headers=notes_headers(frame.head), media_type="application/json")


async def _named_plan(request: Request) -> dict[str, list[str]]:
    """The text of the plan in the place of its digest."""
    digests = request.query_params.getlist("plan")
    if len(digests) != 1:
        raise Problem(
            "invalid-request",
            '"plan" is missing.' if not digests else "'plan' is given twice.",
            remedy="Send the model to /v1/plan, and give the digest of its plan: plan=DIGEST.",
            pointer="/query/plan",
        )
    kept = await _PLANS.find(request, digests[0])
    if kept is None:
        raise _PLANS.missing(digests[0])
    return {"plan": [kept.body.decode()]}
