"""Answers that are computed each time: curves, verdicts and validations, of documents and of models."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from service.auth.principal import principal_of
from service.http.bodies import is_model, read_json_body, read_model_body
from service.http.content_addressed import ContentAddressed
from service.http.openapi import NOTES, READING_PROBLEMS, answer, computed, model_body
from service.http.prefer import GONE, respond_later, seconds_to_wait, unless_disconnected
from service.http.responses import note
from service.http.schemas import ExplainRequest, TradeOffRequest, ValidateRequest
from service.http.state import state_of
from service.jobs.pool import Limits, run_task
from service.jobs.query import notes_headers
from service.jobs.requests import KINDS
from service.problems import Problem
from solver.documents import ReportDocument, TradeOffDocument, VerdictDocument

__all__ = ["router"]

router = APIRouter(tags=["plans"])

_PLANS: Final = ContentAddressed("plan", "plans")
#: What the log says of an answer.
_FACTS: Final = ("points", "verdict", "complete", "identical")


@router.post(
    "/v1/tradeoff",
    **computed(
        "Costs of smaller peaks",
        model_body(TradeOffRequest, "points"),
        answer(TradeOffDocument, "The curve.", "curve", headers=NOTES),
        *READING_PROBLEMS,
        of_model="curve",
    ),
)
async def tradeoff(request: Request) -> Response:
    """The cost of smaller peaks in modelled time, with the proved bound beside each cost, down to the floor.

    Points stand in the order of falling peaks; the first is the program in which nothing runs again. The
    same request gets the same curve, unless wall time cut it short: then `complete` is false.

    The body may be a model of another tool, as for `/v1/plan`; `points` stands in the query then.
    """
    return await _answer(request, "tradeoff", state_of(request).search_limits)


@router.post(
    "/v1/explain",
    **computed(
        "Whether a capacity is enough, and what makes it so",
        model_body(ExplainRequest, "capacity"),
        answer(VerdictDocument, "The verdict.", "verdict", headers=NOTES),
        *READING_PROBLEMS,
        of_model="verdict",
    ),
)
async def explain(request: Request) -> Response:
    """Whether the capacity among the options is enough: impossible, open, or a plan; and what makes it fit.

    A verdict is an answer, so the status is 200 whatever it says. Each remedy has been planned, and its plan
    proved; its `options` are whole, the capacity included, and repeat it with its `graph_fields`, or for a
    model with its `choices`. Those that change no bit come first. Those that change what is learned come
    last; without `training` they are left out. Without a remedy, `attempts` say how near each measure came.
    With `scores` the only remedy is to train the layers that fit with the largest sum of scores.

    The body may be a model of another tool, as for `/v1/plan`; `capacity`, `training` and `scores` stand in
    the query then.
    """
    return await _answer(request, "explain", state_of(request).search_limits)


@router.post(
    "/v1/validate",
    **computed(
        "Train in a plan and compare",
        model_body(ValidateRequest, "validation"),
        answer(ReportDocument, "The comparison, step by step.", "report", headers=NOTES),
        *READING_PROBLEMS, "invalid-plan", "plan-not-found", "validation-too-large",
        of_model="validation",
    ),
)  # fmt: skip
async def validate(request: Request) -> Response:
    """Train some steps inside the planned arena, beside a reference run without any sharing.

    The report tells for each step both losses and whether every tensor agrees bit for bit. A plan
    that breaks a rule is named in `violations`; a report is an answer, so the status is 200 either way.
    Of a plan with entry points each runs `steps` times, in an order that is drawn from `seed`; a plan of
    several models takes `models` by name in the place of `graph`.

    The body may be a model of another tool, as for `/v1/plan`. The query has how it is trained, `steps` and
    `seed`, and as `plan` the digest of a plan that this service keeps. Training begins with its own weights.
    """
    return await _answer(request, "validate", Limits(state_of(request).settings.validate_max_seconds))


async def _answer(request: Request, task: str, limits: Limits) -> Response:
    """A worker's answer to a document, or to a model with its choices in the query.

    The query names a plan by its digest, which is among those that are kept here.
    """
    state, tenant = state_of(request), principal_of(request).tenant
    most = state.settings.body_limit_bytes
    work = KINDS[task].model_work if is_model(request) else task
    if work == task:
        body = await read_json_body(request, most)
    else:
        body = await read_model_body(request, most, await _named_plan(request) if task == "validate" else {})
    if (seconds := seconds_to_wait(request)) is not None:
        response = await respond_later(request, work, body, seconds)
        if response is not None:
            return response
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
    return {"plan": [(await _PLANS.find(request, digests[0])).body.decode()]}
