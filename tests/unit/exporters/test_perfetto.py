"""The trace keeps the rules of Chrome's trace event format, and its figures are the plan's."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from solver import pipeline
from solver.exporters.perfetto import dump_perfetto
from solver.plan import PlanOptions, PlanView
from solver.reports.arenas import live_curve
from tests.support.graphs import chain, convolutional

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
