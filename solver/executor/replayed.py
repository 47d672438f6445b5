"""The graph that a plan's steps belong to: the caller's, with the replacements that the plan records."""

from __future__ import annotations

from solver.errors import PlanError
from solver.executor.arithmetic import KernelArithmetic
from solver.graph.types import TrainableGraph
from solver.plan import Plan
from solver.preparations.rewriting import replay

__all__ = ["rewritten"]


def rewritten(graph: TrainableGraph, plan: Plan) -> TrainableGraph:
    """`graph` itself where the plan replaces nothing. No record is believed: every rule looks again.

    Raises PlanError where a rule does not hold, and for replacements that the options do not ask for.
    """
    if plan.replacements and not plan.options.rewrite:
        raise PlanError(
            "The plan replaces operations, and its options do not ask for that.",
            remedy="Plan this graph again with this version.",
            path=("replacements",),
        )
    return replay(graph, plan.replacements, KernelArithmetic())
