"""Planning: a graph or a program in, a proven plan out; plans again by their digest."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from service.http.bodies import is_model, read_model_body
from service.http.content_addressed import ContentAddressed
from service.http.exports import accepted, export
from service.http.openapi import PLAN_ROUTE, PROGRAM_ROUTE, STORED_PLAN_ROUTE

__all__ = ["router"]

router = APIRouter(tags=["plans"])

_PLANS: Final = ContentAddressed("plan", "plans")
#: Models of other tools: the bytes are the body, and how they are trained stands in the query.
_MODELS: Final = ContentAddressed("model", "plans", read_model_body, has_notes=True)
_PROGRAMS: Final = ContentAddressed("program", "plans")


@router.post("/v1/plan", **PLAN_ROUTE)
@router.post("/plan", **{**PLAN_ROUTE, "summary": "Plan a training graph: the same as `/v1/plan`"})
async def plan(request: Request) -> Response:
    """Plan the memory of a training graph and prove how good the plan is.

    The answer stands on its own: execution order, each buffer with lifespan and offset, and a
    certificate with the lower bound. The same request gets the same bytes, also from another
    process or machine, as long as it names no deadline; such plans are kept and can be fetched
    again under their digest. With `deadline_seconds`, the best plan found by then is the answer.

    The body may be a model of another tool as well, of ONNX, Circle or TensorFlow Lite, sent as
    `application/octet-stream` or `application/onnx`. How it is trained stands in the query, with the
    words of `arenaplan plan --help`: `loss`, `optimizer`, `learning_rate`, `trainable`, `frozen`,
    `batch_norm`, `class_axis`, `output`, `keep_outputs`, and `dim`, `input`, `freeze_before` (repeatable);
    beside them the options of plans, as `capacity=24MiB`. Weights are only hashed, and must lie in the model
    itself.
    """
    if is_model(request):
        return await _MODELS.answer(request)
    return await _PLANS.answer(request)


@router.post("/v1/program", **PROGRAM_ROUTE)
async def program(request: Request) -> Response:
    """Plan the memory of explicit operations, each with the blocks that it reads and writes.

    Blocks that are read before they are written carry over from one iteration to the next and keep
    their bytes; all others take them at their first touch and give them back after their last. The
    promises are those of `/v1/plan`, and the plan is kept beside the plans of graphs.
    """
    return await _PROGRAMS.answer(request)


@router.get("/v1/plans/{digest}", **STORED_PLAN_ROUTE)
async def stored_plan(request: Request, digest: str) -> Response:
    """A plan that this service made before, by its digest, as long as it is kept in memory.

    The Accept header may ask for another file of it, as `text/html` or `text/x-c`: see
    `/v1/plans/{digest}/{format}`.
    """
    wanted = accepted(request.headers.get("accept", ""))
    if wanted is not None:
        return await export(request, digest, wanted)
    stored = await _PLANS.stored(request, digest)
    if stored is None:
        raise _PLANS.missing(digest)
    return stored
