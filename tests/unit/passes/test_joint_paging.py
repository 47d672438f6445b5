"""Entry points with tiers: all programs agree on which memory holds what stays between two runs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import CapacityError
from solver.graph import TrainableGraph, evaluation, inference
from solver.pipeline import EntryRequest, plan, plan_deployment, plan_requested
from solver.plan import Deployment, PlanOptions, RequestedOptions
from solver.program import EntryKind, Tier
from solver.reports.records import paging
from solver.verify import check_figures, prove_deployment
from tests.support.graphs import Sketch
from tests.support.random_graphs import random_graphs


def deployed(graph: TrainableGraph, *sizes: int, wide: TrainableGraph | None = None) -> Deployment:
    first, *others = sizes
    slower = [Tier(f"flash{k}", size, 45_000_000, 20_000_000, 1_000) for k, size in enumerate(others)]
    requested = RequestedOptions(PlanOptions(tiers=(Tier("sram", first), *slower)), automatic=False)
    entries = [
        EntryRequest("train", "net", "train", graph, requested),
        EntryRequest("infer", "net", "infer", inference(wide or graph), requested),
        EntryRequest("evaluate", "net", "evaluate", evaluation(graph), requested),
    ]
    return plan_deployment("net", entries)


def check(deployment: Deployment, *sizes: int) -> None:
    """Each plan was proved when it was made; this is what the plans promise each other, and the sizes."""
    assert prove_deployment(deployment) == ()
    for k, entry_point in enumerate(deployment.entry_points):
        plan = entry_point.plan
        assert [*check_figures(plan)] == []
        assert all(used <= size for used, size in zip(plan.sizes, sizes, strict=True))
        staying = [e.reference for e in plan.program.entry if e.kind is not EntryKind.FED]
        assert max(Counter(staying).values()) == 1  # in one memory
        assert {row.values[k] for row in deployment.persistent} == {
            e.value for e in plan.program.entry if e.kind is not EntryKind.FED
        }


@given(random_graphs(), st.integers(40, 100))
def test_all_programs_agree(graph: TrainableGraph, percent: int) -> None:
    sizes = (plan_requested(graph).arena_bytes * percent // 100, 2**20)
    with suppress(CapacityError):
        check(deployed(graph, *sizes), *sizes)


def line(batch: int, layers: int = 3, width: int = 32) -> TrainableGraph:
    s = Sketch("line")
    value = s.input("x", batch, width)
    weights = [s.parameter(f"w{k}", width, width) for k in range(layers)]
    for k, weight in enumerate(weights):
        value = s.op("Relu", [s.op("Gemm", [value, weight], f"h{k}")], f"a{k}")
    s.op("MeanSquaredError", [value, s.label("t", batch, width)], "loss")
    return s.graph(trainable=weights, optimizer="Adam")


def test_what_training_pages_is_where_inference_looks_for_it() -> None:
    graph = line(8)
    whole = plan_requested(graph).arena_bytes
    sizes = (whole * 6 // 10, 2**20)
    deployment = deployed(graph, *sizes)
    check(deployment, *sizes)
    slow = [row.name for row in deployment.persistent if _space(deployment, 0, row.values[0])]
    assert slow
    assert any(not name.count("@") for name in slow) or paging(deployment["infer"].plan) is not None


def test_inference_of_a_larger_batch_sends_the_variables_of_the_optimizer_away() -> None:
    """Training fits; inference beside the optimizer's variables does not, and moves none of its own."""
    graph, wide = line(2), line(256)
    needed = plan(graph).arena_bytes
    alone = plan(inference(wide)).arena_bytes
    sizes = (max(needed, alone), 2**20)
    deployment = deployed(graph, *sizes, wide=wide)
    check(deployment, *sizes)
    away = {row.name for row in deployment.persistent if _space(deployment, 1, row.values[1])}
    assert away
    assert all("@" in name for name in away)
    moved = paging(deployment["infer"].plan)
    assert moved is None or not moved.moved


def test_a_third_memory_takes_what_the_second_has_no_room_for() -> None:
    graph = line(8)
    whole = plan_requested(graph).arena_bytes
    sizes = (whole * 6 // 10, 8_192, 2**20)
    check(deployed(graph, *sizes), *sizes)


def test_memories_that_are_too_small() -> None:
    graph = line(8)
    with pytest.raises(CapacityError) as caught:
        deployed(graph, plan_requested(graph).arena_bytes * 6 // 10, 4_096)
    assert caught.value.path[0] == "tiers"


def _space(deployment: Deployment, k: int, value: int) -> int:
    return deployment.entry_points[k].plan.program.values[value].space
