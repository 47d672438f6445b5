"""Networks with recomputation, paging, both, values in place and steps at the same time.

By default one network; `./run fuzz` takes the gallery, and a tower with each rule of training.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from examples.gallery import GALLERY
from solver.accounting import floor, roofline, schedule_problem
from solver.errors import CapacityError
from solver.executor import validate
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import Order
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier, loads
from solver.training import derive
from tests.support.every import grid
from tests.support.graphs import tower

pytestmark = pytest.mark.fuzz

NETWORKS: dict[str, Callable[[], TrainableGraph]] = {
    name: lambda example=example: example.model().graph for name, example in GALLERY.items()
} | {
    "dropout": lambda: tower(dropout=True),
    "tied": lambda: tower(tied=True, optimizer="Adam"),
    "clipped": lambda: tower(training=TrainingRules(clip_global_norm=0.5)),
    "micro-batches": lambda: tower(training=TrainingRules(accumulate=2), momentum=0.9),
}
NAMES = list(NETWORKS) if os.environ.get("ARENAPLAN_FUZZ") else ["lenet5"]

#: Networks in which no schedule keeps some of these budgets by running steps again alone.
WITHOUT_SCHEDULES = ("autoencoder", "bias_only")

#: Behind the first tier: room for everything, at the speed of DRAM.
SLOW = Tier("slow", 2**34, 4 * 10**9, 4 * 10**9, 1_000)


@grid("share", [0.9, 0.6, 0.35])
@grid("more", [{}, {"in_place": True}, {"parallelism": 2}, {"in_place": True, "parallelism": 2}])
@grid("kind", ["recompute", "paging", "both"])
@grid("name", NAMES)
def test_each_keeps_its_memory_and_computes_the_same_bits(
    name: str, kind: str, more: dict[str, Any], share: float
) -> None:
    """Budgets lie between the floor of recomputation and the peak, by their share."""
    graph = NETWORKS[name]()
    program = Order().run(derive(graph))
    low, peak = floor(schedule_problem(program, roofline(program))).bytes, max(loads(program)[0])
    most = low + int(share * (peak - low))
    if kind == "recompute":
        options = PlanOptions(capacity=most, recompute=True, **more)
    else:
        options = PlanOptions(tiers=(Tier("fast", most), SLOW), recompute=kind == "both", **more)
    try:
        made = plan(graph, options)
    except CapacityError:
        # The floor is that of single steps: above it, too, there may be no schedule of this order. So it is
        # where little is kept, and only where nothing leaves for slower memory.
        assert kind == "recompute"
        assert name in WITHOUT_SCHEDULES
        return
    assert made.sizes[0] <= most
    assert validate(graph, made, steps=1).identical
