"""From the best layout a solver has found to the outcome it may claim."""

from __future__ import annotations

import time

from solver.layout.bounds.max_load import LowerBound, pinned_top
from solver.layout.model.problem import Layout, LayoutProblem, Outcome, Proof, Status

__all__ = ["settle"]


def settle(
    problem: LayoutProblem,
    layout: Layout | None,
    bound: LowerBound,
    solver: str,
    began: float,
    *,
    proved: int = 0,
    deterministic: bool = True,
) -> Outcome:
    """The strongest true claim about `layout`.

    `proved` is a lower bound in bytes that a complete search has established (0: none); `began` is
    a `time.perf_counter` reading. A peak that equals what a pin alone claims is proved by `SOLVER`:
    it cannot be found by adding up live bytes.
    """
    best = max(bound.bytes, proved, pinned_top(problem))
    status, proof = Status.UNKNOWN, None
    if layout is not None:
        status = Status.OPTIMAL if layout.peak <= best else Status.FEASIBLE
        if status is Status.OPTIMAL:
            proof = Proof.MAX_LOAD if layout.peak <= bound.bytes else Proof.SOLVER
    return Outcome(
        status=status,
        layout=layout,
        lower_bound=best,
        witness_step=bound.witness_step,
        proof=proof,
        solver=solver,
        seconds=time.perf_counter() - began,
        deterministic=deterministic,
    )
