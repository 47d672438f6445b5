"""No verdict says of a capacity that nothing fits where a plan with less scratch does."""

from __future__ import annotations

import pytest

from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions
from solver.reports.verdict import VerdictStatus
from solver.verdict import choose_trainable, explain, largest
from tests.support.graphs import Sketch
from tests.support.sizes import with_symbolic_batch


def convolution(side: int, channels: int) -> TrainableGraph:
    """One convolution, whose derivative has more scratch than anything else has bytes."""
    s = Sketch("convolution")
    x, w = s.input("x", 1, side, side, channels), s.parameter("w", channels, 3, 3, channels)
    y = s.op("Conv", [x, w], "y", "conv", auto_pad="SAME_UPPER", data_layout="NHWC")
    s.op("MeanSquaredError", [y, s.label("t", 1, side, side, channels)], "loss")
    return with_symbolic_batch(s.graph(), 1)


@pytest.mark.parametrize(("side", "channels"), [(4, 4), (6, 2), (3, 7)])
def test_what_fits_with_little_scratch_is_not_said_not_to_fit(side: int, channels: int) -> None:
    graph = convolution(side, channels)
    small = RequestedOptions(PlanOptions(scratch_budget=256))
    capacity = plan_requested(graph, small).arena_bytes
    requested = RequestedOptions(PlanOptions(capacity=capacity))
    with pytest.raises(CapacityError):
        plan_requested(graph, requested)

    choice = choose_trainable(graph, requested)
    assert choice.trainable == ("w",)
    most = largest(graph, requested, "batch", training=False)
    assert most.size >= 1
    for found in (choice.plan, most.plan):
        assert found is not None
        at, budget = graph.at(batch=most.size if found is most.plan else 1), found.options.scratch_budget
        again = plan_requested(at, requested.having(scratch_budget=budget))
        assert again.arena_bytes == found.arena_bytes <= capacity
        with pytest.raises(CapacityError):
            plan_requested(at, requested.having(scratch_budget=2 * budget))

    verdict = explain(graph, requested, training=False)
    assert verdict.status is VerdictStatus.IMPOSSIBLE
    assert verdict.floor > capacity
    assert any("scratch_budget" in remedy.options for remedy in verdict.remedies)
    assert all(remedy.arena_bytes <= capacity for remedy in verdict.remedies)
