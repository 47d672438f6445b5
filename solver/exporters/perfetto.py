"""A plan as a trace for Perfetto: Chrome's trace event format in JSON, which ui.perfetto.dev opens.

    process 1   arena          counter "live bytes" and "arena bytes"; async slices, one a buffer
    process 2   flash          the same
    process 9   steps          a thread for each step that may run at the same time

One level takes one microsecond of the trace: a plan knows no seconds. The format is described in Google's
"Trace Event Format": phases M (names), C (counters), X (slices with a duration), b and e (async slices).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from solver.plan import PlanView
from solver.reports.arenas import live_curve

__all__ = ["dump_perfetto"]

Event = dict[str, Any]


def dump_perfetto(plan: PlanView) -> bytes:
    """The trace, one event a line. Linear in buffers and steps, but for sorting."""
    events = [*_steps(plan, len(plan.arenas) + 1)]
    for number, arena in enumerate(plan.arenas, 1):
        events += _named(number, f"{arena.name} ({arena.size:,} bytes)", number)
        curve = live_curve(arena.buffers, plan.duration)
        events += _counter(number, "live bytes", curve)
        events += _counter(number, "arena bytes", (arena.size,) * len(curve))
        for k, buffer in enumerate(arena.buffers):
            about = {
                "kind": buffer.kind.word, "bytes": buffer.size, "offset": buffer.offset,
                "dtype": buffer.values[0].elements, "shape": list(buffer.shape),
                "values": [value.id for value in buffer.values],
            }  # fmt: skip
            for span in buffer.spans:
                one = {
                    "cat": buffer.kind.word,
                    "name": buffer.id,
                    "pid": number,
                    "tid": 1,
                    "id": f"{number}.{k}",
                }
                events.append({"ph": "b", "ts": span.start, **one, "args": about})
                events.append({"ph": "e", "ts": span.end, **one})
    other = {
        "graph": plan.graph, "digest": plan.digest, "target": plan.options.target,
        "arena_bytes": plan.arena_bytes, "lower_bound": plan.lower_bound, "unit": "1 us is one level",
    }  # fmt: skip
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    head = json.dumps({"displayTimeUnit": "ns", "otherData": other})[:-1]
    return f'{head}, "traceEvents": [\n{lines}\n]}}\n'.encode()


def _steps(plan: PlanView, process: int) -> Iterator[Event]:
    """Steps of one level stand on threads of their own, so that no two slices of a thread overlap."""
    yield from _named(process, "steps", 0)
    lanes: dict[int, int] = {}
    for level, step in zip(plan.times, plan.steps, strict=True):
        lane = lanes[level] = lanes.get(level, 0) + 1
        about = {"kernel": step.kernel, "uses": step.uses, "defs": step.defs, "scratch": step.scratch}
        yield {
            "ph": "X", "cat": step.kernel, "name": step.id, "pid": process, "tid": lane, "ts": level,
            "dur": 1, "args": about,
        }  # fmt: skip
    for lane in range(1, max(lanes.values(), default=0) + 1):
        name = {"name": f"lane {lane}"}
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": lane, "args": name}


def _named(process: int, name: str, place: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": place}}


def _counter(process: int, name: str, curve: tuple[int, ...]) -> Iterator[Event]:
    """The levels at which the figure changes, and the end."""
    changes = [0, *(level for level, (a, b) in enumerate(pairwise(curve), 1) if a != b)] if curve else []
    for level in changes:
        yield {"ph": "C", "name": name, "pid": process, "ts": level, "args": {"bytes": curve[level]}}
    if curve:
        yield {"ph": "C", "name": name, "pid": process, "ts": len(curve), "args": {"bytes": 0}}
