"""Recomputation beside weights that no step writes: paging brings these, wherever they are read."""

from __future__ import annotations

import pytest

from arenaplan.builder import Tape, adam, layers, ops
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.passes.recompute import read_only_bytes
from solver.pipeline import plan, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import Tier
from solver.reports.records import paging

#: Bytes of a frozen layer of 128 features.
WEIGHT = 128 * 128 * 4


def frozen_tower(depth: int = 8, batch: int = 48) -> TrainableGraph:
    """Frozen layers, of which the bias is trained: all activations wait for the backward pass."""
    tape = Tape("tower", batch=batch)
    x, target = tape.input("x", 128), tape.label("target", 128)
    for k in range(depth):
        x = tape.apply("Tanh", layers.dense(x, 128, name=f"layer{k}"))
    biases = [f"layer{k}.bias" for k in range(depth)]
    return tape.minimise(ops.mean_squared_error(x, target), adam(0.01), trainable=biases).graph


def in_tiers(graph: TrainableGraph, most: int, write: int = 1_000_000, *, in_place: bool = False) -> Plan:
    tiers = (Tier("ram", most), Tier("flash", 10**9, read=10**9, write=write))
    return plan(graph, PlanOptions(tiers=tiers, recompute=True, in_place=in_place))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_tier_smaller_than_the_weights(in_place: bool) -> None:
    graph = frozen_tower()
    assert read_only_bytes(reference_of(graph, PlanOptions())) == 8 * WEIGHT
    smaller = in_tiers(graph, 4 * WEIGHT, in_place=in_place)
    moved = paging(smaller)
    assert smaller.sizes[0] <= 4 * WEIGHT
    assert any(smaller.program.runs)
    assert moved is not None
    assert moved.moved_in >= 8 * WEIGHT
    assert moved.moved_out < WEIGHT  # activations are made again, not written
    assert 0 < moved.bound <= moved.moved
    assert 0 < moved.least_time <= moved.time
    assert validate(graph, smaller, steps=2).identical


def test_fast_writes_make_no_plan_slower() -> None:
    slow, fast = (paging(in_tiers(frozen_tower(), 4 * WEIGHT, write)) for write in (1_000_000, 10**12))
    assert slow is not None
    assert fast is not None
    assert fast.time <= slow.time


@pytest.mark.parametrize("write", [1_000_000, 10**12])
def test_large_programs_compare_the_ends_only(monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    graph = frozen_tower()
    every = in_tiers(graph, 4 * WEIGHT, write)
    monkeypatch.setattr("solver.pipeline.scheduling.MANY_STEPS", 10)
    few = in_tiers(graph, 4 * WEIGHT, write)
    assert few.sizes[0] <= 4 * WEIGHT
    assert paging(every).time <= paging(few).time  # type: ignore[union-attr]
