"""The figures of planning: graphs of the sizes asked for, and a cost that leaves no stage out."""

from __future__ import annotations

import json

from solver.documents import load_graph
from tests.benchmarks.planning import STAGES, cost
from tests.support.deep_graphs import DEEP


def test_deep_graphs_are_as_large_as_asked() -> None:
    for shape, make in DEEP.items():
        for size in (64, 200):
            assert 0.8 * size <= len(load_graph(make(size)).operations) <= size + 2, (shape, size)


def test_every_stage_is_counted() -> None:
    for shape, make in DEEP.items():
        counted = cost(json.dumps(make(64)).encode(), seconds=0, fewest=2)
        assert set(counted.stages) == set(STAGES), shape
        assert counted.steps > counted.operations, shape
        assert 0 < counted.proved == sum(counted.stages.values()) - counted.stages["write"], shape
