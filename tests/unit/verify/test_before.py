"""A plan's program without copies and repetitions is the one that passes had before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from solver.accounting import is_copy, paging_problem
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import Order
from solver.pipeline import plan, reference_of
from solver.plan import PlanOptions
from solver.program import Program, Tier, loads
from solver.verify.figures import once, unpaged
from tests.support.graphs import tower
from tests.support.operator_graphs import attention
from tests.support.usual_networks import residual_with_statistics

NETWORKS: dict[str, Callable[[], TrainableGraph]] = {
    "tower": partial(tower, 6, outputs=("h1",), optimizer="Adam"),
    "micro-batches": partial(tower, 6, training=TrainingRules(accumulate=2)),
    "attention": attention,
    "statistics": residual_with_statistics,
}


def idle(program: Program) -> Counter[tuple[str, int, int, int]]:
    return Counter((g.kind.value, g.start, g.end, g.size) for g in paging_problem(program, 0).gaps)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("name", NETWORKS)
def test_without_copies_each_value_lives_and_waits_as_before(name: str, share: float) -> None:
    """Fed values wait in both memories from the start, carried values in either of them."""
    graph = NETWORKS[name]()
    program = Order().run(reference_of(graph, PlanOptions()))
    low, peak = paging_problem(program, 0).smallest, max(loads(program)[0])
    size = low + int(share * (peak - low))
    slow = Tier("slow", 2**24, 10**9, 10**9)
    made = plan(graph, PlanOptions(tiers=(Tier("fast", size + size // 20), slow)))
    assert any(is_copy(made.program, step) for step in made.program.steps)
    before = unpaged(made.program)
    assert loads(before)[0] == loads(program)[0]
    assert idle(before) == idle(program)


def test_without_repetitions_the_order_is_that_of_first_runs() -> None:
    graph = tower(6)
    program = Order().run(reference_of(graph, PlanOptions()))
    made = plan(graph, PlanOptions(capacity=max(loads(program)[0]) * 3 // 4, recompute=True))
    assert any(made.program.runs)
    first = once(reference_of(graph, made.options), made)
    assert first.step_labels == program.step_labels
    assert loads(first) == loads(program)
