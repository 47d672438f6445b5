"""The snapshot adds up as PyTorch's own readers add it up, and holds nothing that runs when it is read."""

from __future__ import annotations

import importlib
import pickle
import pickletools
from typing import Any

import pytest

from solver import pipeline
from solver.exporters.memory_viz import dump_memory_viz, memory_snapshot
from solver.plan import Plan, PlanOptions
from solver.reports.arenas import live_curve
from tests.support.graphs import convolutional


@pytest.fixture(params=["reference", "onert"])
def plan(request: pytest.FixtureRequest) -> Plan:
    return pipeline.plan(convolutional(1), PlanOptions(target=request.param))


def test_segments_add_up(plan: Plan) -> None:
    arenas = [arena for arena in plan.arenas if arena.size]
    for arena, segment in zip(arenas, memory_snapshot(plan)["segments"], strict=True):
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at - segment["address"] == segment["total_size"] == arena.size
        used = sum(b["size"] for b in segment["blocks"] if b["state"] == "active_allocated")
        assert segment["allocated_size"] == segment["active_size"] == used


def test_traces_follow_the_load(plan: Plan) -> None:
    """At no time two live blocks overlap, and the sum at each level is what the plan has live."""
    for arena, trace in zip(plan.arenas, memory_snapshot(plan)["device_traces"], strict=True):
        live: dict[int, int] = {}
        loads: dict[int, int] = {}
        for event in trace:
            if event["action"] == "alloc":
                start, end = event["addr"], event["addr"] + event["size"]
                assert all(end <= a or a + size <= start for a, size in live.items())
                live[start] = event["size"]
            elif event["action"] == "free_requested":
                assert live.pop(event["addr"]) == event["size"]
            loads[event["time_us"]] = sum(live.values())
        curve = live_curve(arena.buffers, plan.duration)
        load = 0
        for level in range(plan.duration):
            load = loads.get(level, load)
            assert load == curve[level]


def test_plain_data(plan: Plan) -> None:
    data = dump_memory_viz(plan)
    assert pickle.loads(data) == memory_snapshot(plan)
    assert {op.name for op, _, _ in pickletools.genops(data)} & {"GLOBAL", "STACK_GLOBAL", "REDUCE"} == set()
    assert data == dump_memory_viz(plan)


@pytest.mark.parity
def test_pytorch_reads_it(plan: Plan) -> None:
    viz: Any = importlib.import_module("torch.cuda._memory_viz")
    snapshot = memory_snapshot(plan)
    assert f"segments: {len(snapshot['segments'])}" in viz.segsum(snapshot)
    assert "Device 0" in viz.trace(snapshot)
