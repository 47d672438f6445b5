"""Any graph planned for a range of batches trains to the same bits at every size of it, in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from solver.executor import validate
from solver.graph import TrainableGraph
from solver.pipeline import plan_at, plan_requested, reference_of
from solver.plan import RequestedOptions, SizeRange
from solver.verify import prove
from tests.support.random_graphs import random_graphs
from tests.support.sizes import with_symbolic_batch


@given(random_graphs(), st.integers(1, 6), st.integers(0, 5), st.booleans(), st.integers(1, 2))
def test_every_size_is_proved_and_trains_alike(
    fixed: TrainableGraph, least: int, more: int, is_automatic: bool, parallelism: int
) -> None:
    """The plan is no larger than the best of its sizes asks for, and each size is an ordinary plan."""
    graph = with_symbolic_batch(fixed, least + more)
    ranges = (SizeRange("batch", least, least + more),)
    requested = RequestedOptions(automatic=is_automatic, ranges=ranges).having(parallelism=parallelism)
    plan = plan_requested(graph, requested)
    sizes = plan.planned_sizes
    assert sizes is not None
    assert sizes.refused == ()
    assert sizes.proved == tuple((size,) for size in range(least, least + more + 1))
    for (size,) in sizes.proved:
        there = plan_at(plan, graph.at(batch=size))
        assert prove(reference_of(graph.at(batch=size), there.options), there) == ()
        assert there.arena_bytes <= plan.arena_bytes
    assert validate(graph, plan, steps=more + 1, seed=least).identical
