"""The figures of planning: graphs of the sizes asked for, and a cost that leaves no stage out."""

from __future__ import annotations

import json

import pytest

from solver.documents import load_graph
from tests.benchmarks.planning import STAGES, cost
from tests.support.deep_graphs import DEEP


@pytest.mark.parametrize("shape", DEEP)
@pytest.mark.parametrize("size", [64, 200])
def test_deep_graphs_are_as_large_as_asked(shape: str, size: int) -> None:
    graph = load_graph(DEEP[shape](size))
    assert 0.8 * size <= len(graph.operations) <= size + 2


@pytest.mark.parametrize("shape", DEEP)
def test_every_stage_is_counted(shape: str) -> None:
    found = cost(json.dumps(DEEP[shape](64)).encode(), seconds=0, fewest=2)
    assert set(found.stages) == set(STAGES)
    assert found.steps > found.operations
    assert 0 < found.proved == sum(found.stages.values()) - found.stages["write"]
