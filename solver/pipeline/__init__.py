"""From a graph or a program to a proven plan.

    measures     options as they are asked for -> exact options, whose plan is the cheapest: `plan_requested`;
                 under exact options: `plan`, `plan_program`
    strategy     the one loop over rows, each a plan that may be made, with one budget of work
    rows         the rows of a request
    paths        graph -> reference program; what was placed -> plan -> proof
    like         the same, with persistent values where another plan has them: `plan_like`
    deployment   entry points and ties -> one arena, in which each of them runs: `plan_deployment`
    ranges       one plan for several sizes: `plan_at`
    planner      what preparations ask while they try something
    scheduling   passes and layout of a row, again with fewer bytes if what passes made does not fit
    layout       the layout of each space, within a capacity or in tiers
    options      what no preparation and no pass checks
    watch        who is told how far it is

Read `strategy` first, then `rows`: the others are their steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from solver.graph import TrainableGraph
from solver.pipeline.deployment import (
    EntryRequest,
    Networks,
    entry_graphs,
    entry_requests,
    entry_subject,
    plan_deployment,
)
from solver.pipeline.like import plan_like
from solver.pipeline.measures import free_measures, plan, plan_program, plan_requested
from solver.pipeline.options import PROGRAM, checked
from solver.pipeline.paths import (
    Start,
    arena_bytes,
    checked_of_program,
    modelled_costs,
    reference_of,
    start_of,
)
from solver.pipeline.ranges import plan_at
from solver.pipeline.strategy import EFFORT, until
from solver.targets import TARGETS

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = [
    "EFFORT",
    "PROGRAM",
    "TARGETS",
    "BlockProgram",
    "EntryRequest",
    "Networks",
    "Start",
    "TrainableGraph",
    "arena_bytes",
    "checked",
    "checked_of_program",
    "entry_graphs",
    "entry_requests",
    "entry_subject",
    "free_measures",
    "modelled_costs",
    "plan",
    "plan_at",
    "plan_deployment",
    "plan_like",
    "plan_program",
    "plan_requested",
    "reference_of",
    "start_of",
    "until",
]


def __getattr__(name: str) -> Any:
    """The type of explicit programs, which plans of graphs do without."""
    if name != "BlockProgram":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from solver.training import BlockProgram

    return BlockProgram
