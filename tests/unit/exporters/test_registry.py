"""Exporters are found by name; what offsets, snapshots and traces of other tools hold."""

from __future__ import annotations

import csv
import importlib
import io
import json
import pickle
import pickletools
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from clients.results import PlanResult
from solver import pipeline
from solver.documents import dump_plan
from solver.errors import OptionsError
from solver.exporters import EXPORTERS, dump_offsets, exporter_named, exporter_of_file, offset_rows
from solver.exporters.memory_viz import dump_memory_viz, memory_snapshot
from solver.exporters.perfetto import dump_perfetto
from solver.plan import Plan, PlanOptions, PlanView
from solver.program import lives
from solver.reports.arenas import live_curve
from tests.support.entry_points import small_deployment
from tests.support.graphs import chain, convolutional


def test_names() -> None:
    assert [*EXPORTERS] == [
        "c-header", "report", "perfetto", "memory-viz", "offsets-csv", "offsets-json", "minimalloc",
    ]  # fmt: skip
    assert all(exporter_named(name).name == name for name in EXPORTERS)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.h", "c-header"),
        ("A.HTML", "report"),
        ("a.trace.json", "perfetto"),
        ("a.json", "offsets-json"),
        ("a.minimalloc.csv", "minimalloc"),
    ],
)
def test_by_the_name_of_a_file(file: str, name: str) -> None:
    assert exporter_of_file(file).name == name


def test_refusals_list_what_there_is() -> None:
    with pytest.raises(OptionsError, match=r"'a\.elf' does not say.* \.h \(c-header\)"):
        exporter_of_file("a.elf")
    with pytest.raises(OptionsError, match=r"no exporter 'elf'.*c-header, report"):
        exporter_named("elf")


@pytest.mark.parametrize("name", EXPORTERS)
def test_plans_without_steps_can_be_written(name: str) -> None:
    """A document may hold next to nothing."""
    made = pipeline.plan(chain((1, 1), 1))
    program = replace(
        made.program, values=(), operations=(), steps=(), entry=(), exit=(), aliases=(), initial={}
    )
    empty = replace(made, program=program, offsets=(), sizes=(0,), holds={}, records=())
    assert EXPORTERS[name].dump(empty)
    assert EXPORTERS[name].dump(made)


@pytest.mark.parametrize("name", EXPORTERS)
def test_deployments_can_be_written(name: str) -> None:
    """Equal deployments give equal bytes, and those of one entry point are others."""
    deployment = small_deployment()
    whole = EXPORTERS[name].dump(deployment)
    assert whole == EXPORTERS[name].dump(replace(deployment))
    assert whole != EXPORTERS[name].dump(deployment["infer"].plan)


# ---------------------------------------------------------------------------------------------------- offsets


def test_every_value_has_a_row_with_its_own_place_and_life() -> None:
    made = pipeline.plan(convolutional(), PlanOptions(in_place=True))
    program, spans = made.program, lives(made.program)
    assert program.aliases
    rows = {row["value"]: row for row in offset_rows(made)}
    assert rows.keys() == program.by_label.keys()
    for label, number in program.by_label.items():
        row, type_ = rows[label], program.values[number].type
        assert (row["offset"], row["bytes"]) == (made.offsets[number], type_.nbytes)
        assert (row["start"], row["end"]) == (spans[number].start, spans[number].end)
        assert (tuple(row["shape"]), row["dtype"]) == (type_.shape, type_.dtype.value)


def test_csv_and_json_say_the_same() -> None:
    made = pipeline.plan(convolutional())
    rows = offset_rows(made)
    assert json.loads(dump_offsets(made, as_csv=False)) == rows
    table = list(csv.DictReader(io.StringIO(dump_offsets(made, as_csv=True).decode(), newline="")))
    assert [row["value"] for row in table] == [row["value"] for row in rows]
    assert [int(row["offset"]) for row in table] == [row["offset"] for row in rows]
    assert table[0]["shape"] == "x".join(map(str, rows[0]["shape"]))


def test_the_client_reads_the_same_places_from_the_document() -> None:
    made = pipeline.plan(convolutional(), PlanOptions(target="onert"))
    found = PlanResult.of(json.loads(dump_plan(made))).offsets
    assert found == {row["value"]: (row["arena"], row["offset"]) for row in offset_rows(made)}


# --------------------------------------------------------------------------------------- snapshots of PyTorch


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


# ------------------------------------------------------------------------------------------- traces of Chrome


#: What each phase of an event must have (Trace Event Format, "Event Types").
REQUIRED = {
    "M": {"name", "pid", "args"},
    "C": {"name", "pid", "ts", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "b": {"name", "cat", "id", "pid", "tid", "ts"},
    "e": {"name", "cat", "id", "pid", "tid", "ts"},
}


def events(plan: PlanView) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dump_perfetto(plan))["traceEvents"]
    return found


@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(parallelism=3), PlanOptions(target="onert")])
def test_form(options: PlanOptions) -> None:
    opened: dict[tuple[str, str, str], int] = defaultdict(int)
    busy: dict[tuple[int, int], int] = {}
    for event in events(pipeline.plan(convolutional(1), options)):
        assert REQUIRED[event["ph"]] <= set(event)
        if event["ph"] in "be":
            opened[event["cat"], event["id"], event["name"]] += 1 if event["ph"] == "b" else -1
        if event["ph"] == "X":
            thread = event["pid"], event["tid"]
            assert event["ts"] >= busy.get(thread, 0)
            busy[thread] = event["ts"] + event["dur"]
    assert set(opened.values()) == {0}


def test_the_counter_is_the_load() -> None:
    plan = pipeline.plan(chain((3, 2), 1))
    changes = {
        event["ts"]: event["args"]["bytes"]
        for event in events(plan)
        if event["ph"] == "C" and event["name"] == "live bytes"
    }
    load, found = 0, []
    for level in range(plan.duration):
        load = changes.get(level, load)
        found.append(load)
    assert tuple(found) == live_curve(plan.arenas[0].buffers, plan.duration)
    assert changes[plan.duration] == 0


def test_every_step_is_there() -> None:
    plan = pipeline.plan(chain((3, 2), 1))
    assert [event["name"] for event in events(plan) if event["ph"] == "X"] == [s.id for s in plan.steps]
