"""A plan as runtimes that only want addresses read it: one row a value, with its place and its life."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the other exporters know no plans, and their callers wait for every import
    from solver.plan import Deployment, PlanView

__all__ = ["dump_offsets", "dump_offsets_csv", "dump_offsets_json", "offset_rows"]

_COLUMNS = ("arena", "value", "kind", "dtype", "shape", "offset", "bytes", "start", "end")


def offset_rows(plan: PlanView | Deployment) -> list[dict[str, Any]]:
    """One row for each value, in the order of arenas and buffers.

    `offset` and `bytes` (as needed, without padding) are bytes; the value lives on the levels
    ``[start, end)``, which are steps where one runs after the other. Of a deployment the persistent values
    come first, once: they have no entry point, start or end. All others have the levels of their entry point.
    Linear.
    """
    from solver.plan import Deployment, persistent_rows

    if not isinstance(plan, Deployment):
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
    rows: list[dict[str, Any]] = [
        {
            "entry_point": None,
            "arena": row.space,
            "value": row.name,
            "kind": row.kind,
            "dtype": row.dtype,
            "shape": list(row.shape),
            "offset": row.offset,
            "bytes": row.nbytes,
            "start": None,
            "end": None,
        }
        for row in persistent_rows(plan)
    ]
    for k, entry_point in enumerate(plan.entry_points):
        values = entry_point.plan.program.values
        persistent = {values[row.values[k]].label for row in plan.persistent}
        rows += [
            {"entry_point": entry_point.name, **row}
            for row in offset_rows(entry_point.plan)
            if row["value"] not in persistent
        ]
    return rows


def dump_offsets(plan: PlanView | Deployment, *, as_csv: bool) -> bytes:
    """The rows as CSV (RFC 4180, a shape as ``32x28x28``), or as a JSON list."""
    rows = offset_rows(plan)
    if not as_csv:
        return (json.dumps(rows, indent=1) + "\n").encode()
    text = io.StringIO(newline="")
    columns = tuple(rows[0]) if rows else _COLUMNS
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        row["shape"] = "x".join(map(str, row["shape"]))
        writer.writerow(row[column] for column in columns)
    return text.getvalue().encode()


def dump_offsets_csv(plan: PlanView | Deployment) -> bytes:
    """The rows as CSV."""
    return dump_offsets(plan, as_csv=True)


def dump_offsets_json(plan: PlanView | Deployment) -> bytes:
    """The rows as a JSON list."""
    return dump_offsets(plan, as_csv=False)
