"""Curves and verdicts: what less memory costs, whether a capacity is enough, and what would make it so."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.http.computed import answer
from service.http.openapi import EXPLAIN_ROUTE, TRADEOFF_ROUTE
from service.http.state import state_of

__all__ = ["router"]

router = APIRouter(tags=["plans"])


@router.post("/v1/tradeoff", **TRADEOFF_ROUTE)
async def tradeoff(request: Request) -> Response:
    """What smaller peaks cost in modelled time, with the proved bound beside each cost, down to the floor.

    Points stand in the order of falling peaks; the first is the program in which nothing runs again. The
    same request gets the same curve, unless wall time cut it short: then `complete` is false.

    The body may be a model of another tool, as for `/v1/plan`; `points` stands in the query then.
    """
    return await answer(request, "tradeoff", state_of(request).search_limits)


@router.post("/v1/explain", **EXPLAIN_ROUTE)
async def explain(request: Request) -> Response:
    """Whether the capacity among the options is enough: impossible, open, or a plan; and what makes it fit.

    A verdict is an answer, so the status is 200 whatever it says. Each remedy has been planned, and its plan
    proved; its `options` are whole, the capacity included, and repeat it with its `graph_fields`. With
    `training` also measures are tried that change what is learned.

    The body may be a model of another tool, as for `/v1/plan`; `capacity` and `training` stand in the query
    then.
    """
    return await answer(request, "explain", state_of(request).search_limits)
