"""A plan as runtimes that only want addresses read it: one row a value, with its place and its life."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the other exporters know no plans, and their callers wait for every import
    from solver.plan import PlanView

__all__ = ["dump_offsets", "dump_offsets_csv", "dump_offsets_json", "offset_rows"]

_COLUMNS = ("arena", "value", "kind", "dtype", "shape", "offset", "bytes", "start", "end")


def offset_rows(plan: PlanView) -> list[dict[str, Any]]:
    """One row for each value, in the order of arenas and buffers.

    `offset` and `bytes` (as needed, without padding) are bytes; the value lives on the levels
    ``[start, end)``, which are steps where one runs after the other. Linear.
    """
    return [
        {
            "arena": arena.name,
            "value": value.id,
            "kind": value.kind.value,
            "dtype": value.dtype,
            "shape": list(value.shape),
            "offset": value.offset,
            "bytes": value.nbytes,
            "start": value.lifespan.start,
            "end": value.lifespan.end,
        }
        for arena in plan.arenas
        for buffer in arena.buffers
        for value in buffer.values
    ]


def dump_offsets(plan: PlanView, *, as_csv: bool) -> bytes:
    """The rows as CSV (RFC 4180, a shape as ``32x28x28``), or as a JSON list."""
    rows = offset_rows(plan)
    if not as_csv:
        return (json.dumps(rows, indent=1) + "\n").encode()
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    for row in rows:
        row["shape"] = "x".join(map(str, row["shape"]))
        writer.writerow(row[column] for column in _COLUMNS)
    return text.getvalue().encode()


def dump_offsets_csv(plan: PlanView) -> bytes:
    """The rows as CSV."""
    return dump_offsets(plan, as_csv=True)


def dump_offsets_json(plan: PlanView) -> bytes:
    """The rows as a JSON list."""
    return dump_offsets(plan, as_csv=False)
