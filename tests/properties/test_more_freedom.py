"""An option that adds freedom never makes a plan larger, dearer, or impossible.

Plans of one graph are made with all subsets of such options. Of two plans the one that has all options of the
other, and more, is not the worse one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.accounting import paging_problem, step_costs
from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.passes import Order
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier, loads
from solver.training import derive
from tests.support.graphs import Sketch
from tests.support.random_graphs import random_graphs

EXAMPLES = int(os.environ.get("ARENAPLAN_FUZZ") or 3)

IMPOSSIBLE = 2**63

#: By what is asked for, the options that add freedom.
SIZES = ("in_place", "sub_ranges", "order", "fit_scratch", "rewrite")
COSTS = ("in_place", "order", "recompute", "rewrite")
TIMES = ("in_place", "order", "recompute")


def subsets(names: Sequence[str]) -> Iterator[frozenset[str]]:
    for chosen in product([False, True], repeat=len(names)):
        found = frozenset(name for name, taken in zip(names, chosen, strict=True) if taken)
        if "in_place" in found or "sub_ranges" not in found:
            yield found


def figure(
    graph: TrainableGraph, names: frozenset[str], capacity: int | None, tiers: tuple[Tier, ...]
) -> int:
    """Bytes without a capacity, else nanoseconds of an iteration, by the costs that the search has."""
    options = dict.fromkeys(names, True)
    try:
        made = plan(graph, PlanOptions(capacity=capacity, tiers=tiers, **options), advise=False)  # type: ignore[arg-type]  # flags
    except CapacityError:
        return IMPOSSIBLE
    if tiers:
        return int(next(r.facts["nanoseconds"] for r in made.records if r.name == "paging"))
    return made.arena_bytes if capacity is None else sum(step_costs(made.program))


def check(
    graph: TrainableGraph, names: Sequence[str], capacity: int | None = None, tiers: tuple[Tier, ...] = ()
) -> None:
    figures = {chosen: figure(graph, chosen, capacity, tiers) for chosen in subsets(names)}
    for fewer, before in figures.items():
        for more, after in figures.items():
            assert not fewer < more or after <= before, (sorted(fewer), before, sorted(more), after)


@settings(max_examples=EXAMPLES)
@given(random_graphs(most_operations=5))
def test_no_option_makes_an_arena_larger(graph: TrainableGraph) -> None:
    check(graph, SIZES)


@settings(max_examples=EXAMPLES)
@given(random_graphs(most_operations=5), st.sampled_from([0.6, 0.8, 0.9, 0.96]))
def test_no_option_makes_a_plan_within_a_capacity_dearer(graph: TrainableGraph, share: float) -> None:
    check(graph, COSTS, int(plan(graph).arena_bytes * share))


@settings(max_examples=EXAMPLES)
@given(random_graphs(most_operations=5), st.floats(0.0, 0.9), st.sampled_from([10**6, 10**9, 10**11]))
def test_no_option_makes_a_plan_with_two_memories_slower(
    graph: TrainableGraph, share: float, bandwidth: int
) -> None:
    program = Order().run(derive(graph)).at_same_residues()
    low, high = paging_problem(program, 0).smallest, max(loads(program)[0])
    fast = Tier("fast", low + int(share * (high - low)))
    check(graph, TIMES, tiers=(fast, Tier("slow", 2**30, bandwidth, bandwidth)))


def branches() -> TrainableGraph:
    """Squares of a product beside its sigmoid: here another order costs half of what repetitions cost."""
    s = Sketch("branches")
    h = s.op("Gemm", [s.input("x", 3, 16), s.parameter("w0", 16, 5)], "h")
    squares, gate = s.op("Mul", [h, h], "squares"), s.op("Sigmoid", [h], "gate")
    mixed = s.op("Gemm", [squares, s.parameter("w1", 5, 5)], "mixed")
    swish, tanh = (
        s.op("Swish", [s.op("Mul", [squares, mixed], "product")], "swish"),
        s.op("Tanh", [mixed], "tanh"),
    )
    heads = [
        s.op("Gemm", [value, s.parameter(f"v{k}", 5, 1)], f"head{k}")
        for k, value in enumerate((gate, swish, tanh))
    ]
    total = s.op("Add", [s.op("Add", heads[:2], "both"), heads[2]], "total")
    s.op("MeanSquaredError", [total, s.label("t", 3, 1)], "loss")
    return s.graph(optimizer="SGD", momentum=0.9)


@pytest.mark.parametrize("share", [0.9, 0.95])
def test_in_place_beside_another_order_costs_no_more(share: float) -> None:
    check(branches(), ("in_place", "order", "recompute"), int(plan(branches()).arena_bytes * share))


def shared_weight() -> TrainableGraph:
    """Products that share one weight: the graph that is rewritten needs more bytes in its best order."""
    s = Sketch("shared-weight")
    w = s.parameter("w", 1, 1)
    first = s.op("Sigmoid", [s.op("Gemm", [s.input("x", 1, 1), w], "h")], "first")
    second = s.op("Gemm", [first, w], "second")
    third = s.op("Sigmoid", [second], "third")
    branches = (second, third, s.op("Gemm", [third, w], "fourth"), s.op("Tanh", [second], "fifth"))
    total = first
    for k, branch in enumerate(branches):
        total = s.op("Add", [total, branch], f"sum{k}")
    s.op("MeanSquaredError", [total, s.label("t", 1, 1)], "loss")
    return s.graph(optimizer="SGD")


def test_rewriting_beside_another_order_takes_no_more_bytes() -> None:
    check(shared_weight(), ("order", "rewrite"))
