"""The largest size within a capacity, beside plans of every size."""

from __future__ import annotations

import pytest

from examples.gallery import GALLERY
from solver.documents import load_graph
from solver.errors import CapacityError, OptionsError
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested, reference_of
from solver.plan import PlanOptions, RequestedOptions
from solver.verdict import largest
from solver.verify import prove
from tests.support.graphs import chain
from tests.support.sizes import SEQUENCES, with_symbolic_batch

GRAPH = with_symbolic_batch(chain((6, 9, 4)), 8)


def within(capacity: int) -> RequestedOptions:
    return RequestedOptions(PlanOptions(capacity=capacity))


def fits(graph: TrainableGraph, capacity: int) -> bool:
    try:
        plan_requested(graph, within(capacity), advise=False)
    except CapacityError:
        return False
    return True


@pytest.mark.parametrize("capacity", [1_500, 2_048, 3_000, 5_000, 9_999])
def test_it_is_the_largest_of_all_that_fit(capacity: int) -> None:
    """Every size up to some beyond is planned; those said to be impossible do not fit."""
    result = largest(GRAPH, within(capacity), "batch", training=False)
    fitting = [size for size in range(1, result.impossible_from + 5) if fits(GRAPH.at(batch=size), capacity)]
    assert result.size == max(fitting, default=0)
    assert all(size < result.impossible_from for size in fitting)
    assert (result.plan is None) == (not fitting)
    if result.plan is not None:
        assert result.plan.arena_bytes <= capacity
        assert result.plan.options.batch == result.size
        there = GRAPH.at(batch=result.size)
        assert prove(reference_of(there, result.plan.options), result.plan) == ()
    assert result.exact == (not result.open)
    assert result.size + 1 in result.open or result.size + 1 >= result.impossible_from or result.exact


def test_scratch_that_falls_behind_a_size_does_not_hide_a_larger_one() -> None:
    """Sizes 5 and 6 of this network take more than 7 and 8."""
    graph = load_graph(GALLERY["lenet5"].model().document)
    result = largest(graph, within(2_450_000), "batch", training=False)
    assert result.size == 8
    assert not fits(graph.at(batch=6), 2_450_000)
    assert result.exact
    assert result.next_floor > 2_450_000


def test_another_dimension() -> None:
    graph = load_graph(SEQUENCES)
    result = largest(graph, within(20_000), "seq", training=False)
    assert result.exact
    assert fits(graph.at(seq=result.size), 20_000)
    assert not fits(graph.at(seq=result.size + 1), 20_000)
    assert result.plan is not None
    assert result.plan.planned_sizes is not None
    assert result.plan.planned_sizes.largest == {"seq": result.size}


def test_what_makes_the_next_size_fit_is_planned() -> None:
    result = largest(GRAPH, within(3_000), "batch")
    assert result.more is not None
    for remedy in result.more.remedies:
        assert remedy.arena_bytes <= 3_000
        assert "batch" not in remedy.names


@pytest.mark.parametrize(
    ("graph", "requested", "name", "message"),
    [
        (GRAPH, RequestedOptions(), "batch", "which capacity"),
        (GRAPH, within(5_000), "seq", "no symbolic dimension 'seq'"),
        (chain(), within(5_000), "batch", "no symbolic dimension 'batch'"),
        (GRAPH, within(2**60), "batch", "room for every batch"),
    ],
)
def test_what_cannot_be_asked(
    graph: TrainableGraph, requested: RequestedOptions, name: str, message: str
) -> None:
    with pytest.raises(OptionsError, match=message):
        largest(graph, requested, name)
