"""Entry points in several memories: what stays between runs has one home, each plan is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from examples.gallery import GALLERY
from solver.accounting import level_accesses
from solver.documents import load_graph
from solver.graph import TrainableGraph, evaluation, inference
from solver.pipeline import EntryRequest, plan_deployment, plan_requested
from solver.plan import Deployment, PlanOptions, RequestedOptions
from solver.program import Tier
from solver.verify import check_figures, prove_deployment
from solver.verify.cost import check_homes
from tests.support.random_graphs import random_graphs

MNIST = (Path(__file__).resolve().parents[3] / "examples/mnist.json").read_bytes()


def memories(graph: TrainableGraph, share: float) -> tuple[Tier, ...]:
    whole = plan_requested(graph).arena_bytes
    fast = max(64, round(share * whole))
    return Tier("tcm", fast, 4 * 10**9, 4 * 10**9), Tier("psram", 2 * whole, 80 * 10**6, 60 * 10**6)


def deployed(graph: TrainableGraph, **options: object) -> Deployment:
    requested = RequestedOptions(PlanOptions(**options))  # type: ignore[arg-type]  # options by name
    entries = [
        EntryRequest("train", "net", "train", graph, requested),
        EntryRequest("infer", "net", "infer", inference(graph), requested),
        EntryRequest("evaluate", "net", "evaluate", evaluation(graph), requested),
    ]
    return plan_deployment("net", entries)


def check(deployment: Deployment) -> None:
    """One home and place for each persistent value, right figures, and memories that are kept."""
    assert prove_deployment(deployment) == ()
    for row in deployment.persistent:
        places = {
            (e.plan.program.values[value].space, e.plan.offsets[value])
            for e, value in zip(deployment.entry_points, row.values, strict=True)
        }
        assert len(places) == 1
    for entry_point in deployment.entry_points:
        plan = entry_point.plan
        assert [*check_figures(plan)] == []
        assert [*check_homes(plan)] == []
        assert all(size <= m.bytes for size, m in zip(plan.sizes, plan.options.memories, strict=True))


@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("name", ["lenet5", "autoencoder", "transfer"])
def test_what_stays_has_one_home(name: str, share: float) -> None:
    graph = GALLERY[name].model().graph
    deployment = deployed(graph, memories=memories(graph, share))
    check(deployment)
    if share == 1.0:  # everything fits the fast memory
        assert all(e.plan.sizes[1] == 0 for e in deployment.entry_points)


@given(random_graphs())
def test_random_graphs(graph: TrainableGraph) -> None:
    check(deployed(graph, memories=memories(graph, 0.3)))


def test_homes_are_chosen_for_all_entry_points_together() -> None:
    """Sums of accesses are at most those of separate plans whose homes of weights are those of training."""
    graph = load_graph(MNIST, batch=4)
    ours = memories(graph, 0.1)
    deployment = deployed(graph, memories=ours)
    check(deployment)
    placed = sum(sum(level_accesses(e.plan.program, ours)) for e in deployment.entry_points)
    bounds = sum(e.plan.home_bound.nanoseconds for e in deployment.entry_points if e.plan.home_bound)
    assert 0 < bounds <= placed
    place = tuple(
        f"{row.name}={ours[plan.program.values[row.values[0]].space].name}"
        for plan in [deployment.entry_points[0].plan]
        for row in deployment.persistent
        if not row.name.startswith("label")
    )
    alone = plan_requested(graph, RequestedOptions(PlanOptions(memories=ours, place=place)))
    trained = sum(level_accesses(alone.program, ours))
    assert trained <= sum(level_accesses(deployment.entry_points[0].plan.program, ours))
