"""The footprint of a target plan: bound, sum, and who runs at the peak."""

from __future__ import annotations

import pytest

from solver.graph import Graph
from solver.layout import max_load
from solver.liveness import analyze
from solver.liveness.footprint import footprint
from solver.schedule import training_program
from solver.targets import TargetPlan
from tests.support.graphs import chain, convolutional, residual


def target(graph: Graph, workers: int = 1) -> TargetPlan:
    return analyze(training_program(graph, scratch_budget=1 << 20, update="immediate", workers=workers))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("graph", [chain(), residual(), convolutional()], ids=lambda g: g.name)
def test_figures(graph: Graph, workers: int) -> None:
    plan = target(graph, workers)
    (pool,) = plan.pools
    found, bound = footprint(plan), max_load(pool.problem())
    assert found.bound == bound.bytes
    assert found.total == sum(buffer.size for buffer in pool.buffers)
    assert bound.witness_step is not None
    times = [t if step.wave is None else step.wave for t, step in enumerate(plan.steps)]
    there = [s.id for t, s in zip(times, plan.steps, strict=True) if t == bound.witness_step]
    assert {name.split(":")[0] for name in there} <= found.at_peak


def test_only_operations_parameters_and_the_seed_are_named() -> None:
    graph = chain((4, 4), 2)
    assert footprint(target(graph)).at_peak <= {"fc1", "mse", "loss", "w1", "b1"}


def test_where_it_is_compares_as_equal() -> None:
    found = footprint(target(chain()))
    assert found == footprint(target(chain()))
    assert found < type(found)(found.bound, found.total + 1)


def test_nothing_is_no_load() -> None:
    assert footprint(TargetPlan((), ())).bound == 0
