"""Networks of many kinds, with schedules of all kinds beside other options.

Each gives a plan that trains to the same bits, or a refusal whose remedy, applied a few times, leads to one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from examples.gallery import GALLERY
from solver.accounting import floor, paging_problem, roofline, schedule_problem
from solver.errors import CapacityError
from solver.executor import validate
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import Order
from solver.pipeline import plan, start_of
from solver.plan import Plan, PlanOptions
from solver.program import Tier, loads
from tests.support.every import grid
from tests.support.graphs import tower
from tests.support.usual_networks import branches, gpt, recurrent, residual_with_statistics, unet

FUZZ = os.environ.get("ARENAPLAN_FUZZ")


def _of_gallery(name: str) -> TrainableGraph:
    return GALLERY[name].model().graph


#: By default one of the gallery; `./run fuzz` takes it whole, and a tower with each rule of training.
NETWORKS: dict[str, Callable[[], TrainableGraph]] = {
    **{name: partial(_of_gallery, name) for name in GALLERY if FUZZ or name == "lenet5"},
    "dropout": partial(tower, dropout=True),
    "tied": partial(tower, tied=True, optimizer="Adam"),
    "clipped": partial(tower, training=TrainingRules(clip_global_norm=0.5)),
    "unet": unet,
    "branches": branches,
    "branches, micro-batches": partial(branches, training=TrainingRules(accumulate=3), momentum=0.9),
    "statistics": partial(residual_with_statistics, optimizer="Adam"),
    "statistics, micro-batches": partial(residual_with_statistics, training=TrainingRules(accumulate=2)),
    "lstm": recurrent,
    "gru": partial(recurrent, "GRU", optimizer="Adam"),
    "gpt": gpt,
    "fine-tuning": partial(tower, 8, trainable=["w5", "w6", "w7"], optimizer="Adam"),
}

#: Beside the schedules; each network meets some of them with each kind.
MORE: tuple[dict[str, Any], ...] = (
    {},
    {"in_place": True},
    {"in_place": True, "sub_ranges": True, "parallelism": 2},
    {"update": "end", "parallelism": 3},
    {"rewrite": True},
    {"fit_scratch": True},
    {"storage": "bfloat16"},
    {"storage": "float16", "in_place": True},
    {"alignment": 16},
)

#: Where between the least and the peak the fast memory ends, and bytes beside that.
BUDGETS = ((0.0, -1), (0.0, 0), (0.0, 1), (0.4, 0), (1.0, -1))

#: Of so many cases one is tried.
EACH = 3 if FUZZ else 7

#: Remedies applied at most.
_ROUNDS = 6


def extent(graph: TrainableGraph, kind: str, more: dict[str, Any]) -> tuple[int, int]:
    """The least bytes that are not refused at once, and the peak, of the steps in the given order."""
    prepared = {name: more[name] for name in ("rewrite", "fit_scratch", "storage", "update") if name in more}
    reference = start_of(graph, PlanOptions(**prepared)).reference.program
    program = Order(update=more.get("update", "immediate")).run(reference)
    low = paging_problem(program, 0).smallest
    if kind == "recompute":
        low = floor(schedule_problem(program, roofline(program))).bytes
    return low, max(loads(program)[0])


def planned(graph: TrainableGraph, options: PlanOptions) -> Plan:
    """A plan, with remedies applied where it is refused; each asks for more."""
    for _ in range(_ROUNDS):
        try:
            return plan(graph, options)
        except CapacityError as error:
            refused = error
        assert refused.required > refused.available
        if options.tiers:
            number = refused.path[1]
            assert isinstance(number, int)
            tiers = list(options.tiers)
            tiers[number] = replace(tiers[number], bytes=refused.required)
            options = replace(options, tiers=tuple(tiers))
        else:
            options = replace(options, capacity=refused.required)
    pytest.fail(f"Refused {_ROUNDS} times: {refused}")


CASES = [
    (name, kind, MORE[(i + 3 * j + 2 * b) % len(MORE)], budget)
    for i, name in enumerate(NETWORKS)
    for j, kind in enumerate(("recompute", "paging", "both"))
    for b, budget in enumerate(BUDGETS)
    if (i + j + b) % EACH == 0
]


@pytest.mark.fuzz
@grid(("name", "kind", "more", "budget"), CASES)
def test_each_has_a_plan_that_trains_alike_or_a_remedy(
    name: str, kind: str, more: dict[str, Any], budget: tuple[float, int]
) -> None:
    graph = NETWORKS[name]()
    low, peak = extent(graph, kind, more)
    size = low + int(budget[0] * (peak - low)) + budget[1]
    options = PlanOptions(capacity=size, recompute=True, **more)
    if kind != "recompute":
        slow = (Tier("dram", max(64, (peak - size) // 2), 10**9, 10**9), Tier("flash", 2**30, 10**7, 10**7))
        options = PlanOptions(tiers=(Tier("sram", size), *slow), recompute=kind == "both", **more)
    made = planned(graph, options)
    report = validate(graph, made, steps=2)
    assert report.identical
    assert not report.violations
