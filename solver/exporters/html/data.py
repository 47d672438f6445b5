"""The tables of a plan for its page: columns of numbers as base64, words once and then by number."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from solver.plan import Deployment, JoinedPlan, PlanView, deployment_notes, entry_point_reports
from solver.reports.arenas import certificate_note
from solver.reports.comparison import (
    PlanDifference,
    deployment_difference,
    difference,
    layers,
    options_in_words,
)
from solver.reports.rows import rows

__all__ = ["change_facts", "deployment_change_facts", "deployment_facts", "overview_facts", "plan_facts"]

#: How a step touches a value; `page.js` has the words.
_READ, _WRITE, _UPDATE, _SCRATCH = range(4)

#: The kind of buffers that hold persistent values of a deployment.
_PERSISTENT = "persistent"


class _Words:
    """Words by number, in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)


def _packed(numbers: Sequence[int]) -> dict[str, str]:
    """A column: the type of its elements, and little-endian bytes as base64.

    The narrowest that holds all of them; beyond 32 bits doubles, which are exact up to 2**53.
    """
    most = max(numbers, default=0)
    kind, code = next(
        (name, code)
        for name, code, bits in (("u1", "B", 8), ("u2", "H", 16), ("u4", "I", 32), ("f8", "d", 999))
        if most < 1 << bits
    )
    column = array(code, numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return {"t": kind, "d": base64.b64encode(column.tobytes()).decode()}


def plan_facts(plan: PlanView, persistent: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The facts of a plan that the page shows. Linear.

    Buffers of `persistent` values are all of one kind, so that the page paints them in one colour.
    """
    kinds, types, groups, lifetimes = _Words(), _Words(), _Words(), _Words()
    layer = layers(plan)
    buffers: dict[str, list[int]] = {
        name: []
        for name in ("space", "kind", "layer", "lifetime", "offset", "size", "start", "end", "values")
    }
    values: dict[str, list[int]] = {
        name: [] for name in ("kind", "type", "offset", "bytes", "start", "end", "how")
    }
    lent: dict[str, list[int]] = {name: [] for name in ("buffer", "start", "end")}
    labels: list[str] = []
    number: dict[str, int] = {}
    for k, arena in enumerate(plan.arenas):
        for buffer in arena.buffers:
            for span in buffer.lent:
                lent["buffer"].append(len(buffers["size"]))
                lent["start"].append(span.start)
                lent["end"].append(span.end)
            held = buffer.values
            kind = _PERSISTENT if buffer.id in persistent else buffer.kind.word
            row = (
                k, kinds.number(kind), groups.number(layer.get(buffer.id, buffer.id)),
                lifetimes.number(buffer.lifetime.value), buffer.offset, buffer.size, buffer.lifespan.start,
                buffer.lifespan.end, len(held),
            )  # fmt: skip
            for column, figure in zip(buffers.values(), row, strict=True):
                column.append(figure)
            for value in held:
                number[value.id] = len(labels)
                labels.append(value.id)
                type_ = f"{value.dtype} {'×'.join(map(str, value.shape)) or 'scalar'}"
                stored = f", stored as {value.storage}" if value.storage else ""
                how = 0 if value.source is None else 1 if value.view else 2
                facts = (
                    kinds.number(value.kind.word), types.number(type_ + stored), value.offset,
                    value.nbytes, value.lifespan.start, value.lifespan.end, how,
                )  # fmt: skip
                for column, figure in zip(values.values(), facts, strict=True):
                    column.append(figure)
    kernels, kernel = _Words(), []
    touched: list[int] = []
    access: list[int] = []
    counts: list[int] = []
    for step in plan.steps:
        kernel.append(kernels.number(step.kernel))
        uses, defs = set(step.uses), set(step.defs)
        accesses = [(name, _UPDATE if name in defs else _READ) for name in step.uses]
        accesses += [(name, _WRITE) for name in step.defs if name not in uses]
        accesses += [(name, _SCRATCH) for name in step.scratch]
        accesses = [(name, how) for name, how in accesses if name in number]
        counts.append(len(accesses))
        touched += [number[name] for name, _ in accesses]
        access += [how for _, how in accesses]
    unit = "step" if plan.options.parallelism == 1 else "level"
    return {
        "graph": plan.graph,
        "digest": plan.digest,
        "target": plan.options.target,
        "parallelism": plan.options.parallelism,
        "deterministic": plan.deterministic,
        "levels": plan.duration,
        "spaces": [
            {
                "name": arena.name,
                "size": arena.size,
                "bound": arena.certificate.lower_bound,
                "status": arena.certificate.status.value,
                "proof": arena.certificate.proof.value if arena.certificate.proof else "",
                "witness": arena.certificate.witness_step,
                "solver": arena.certificate.solver,
                "note": certificate_note(arena.certificate, unit),
            }
            for arena in plan.arenas
        ],
        "options": [
            [name, text]
            for name, text in options_in_words(plan.options).items()
            if text not in ("not set", "no")
        ],
        "records": [[r.name, [[k, v] for k, v in sorted(r.facts.items())]] for r in plan.records],
        "notes": [sentence.strip() for row in rows(plan) for sentence in row.sentences],
        "steps": {
            "labels": [step.id for step in plan.steps],
            "kernels": [*kernels],
            "kernel": _packed(kernel),
            "level": _packed(plan.times),
            "first": _packed([0, *accumulate(counts)]),
            "value": _packed(touched),
            "access": _packed(access),
        },
        "words": {"kinds": [*kinds], "types": [*types], "layers": [*groups], "lifetimes": [*lifetimes]},
        "buffers": {name: _packed(column) for name, column in buffers.items()},
        "values": {"labels": labels, **{name: _packed(column) for name, column in values.items()}},
        "lent": {name: _packed(column) for name, column in lent.items()},
    }


def deployment_facts(deployment: Deployment) -> list[dict[str, Any]]:
    """The facts of all entry points as one plan, and then those of each of them. Linear."""
    joined = JoinedPlan(deployment)
    marks = [
        [start, entry_point.name]
        for start, entry_point in zip(joined.starts, deployment.entry_points, strict=False)
    ]
    plans = [{**plan_facts(joined, joined.persistent), "marks": marks}]
    for k, entry_point in enumerate(deployment.entry_points):
        values = entry_point.plan.program.values
        persistent = frozenset(values[row.values[k]].label for row in deployment.persistent)
        plans.append(plan_facts(entry_point.plan, persistent))
    return plans


def overview_facts(deployment: Deployment) -> dict[str, Any]:
    """The table of the entry points, and sentences about them."""
    return {
        "rows": [asdict(row) | {"proof": row.proof and row.proof.value}
                 for row in entry_point_reports(deployment)],
        "notes": list(deployment_notes(deployment)),
    }  # fmt: skip


def deployment_change_facts(old: Deployment, new: Deployment) -> dict[str, Any]:
    """The differences of two deployments, as the page shows them."""
    compared = deployment_difference(old, new)
    return {
        **_change_facts(compared.whole),
        "entry_points": [[one.name, one.before, one.after] for one in compared.entry_points],
        "moves": [[move.name, move.before, move.after, move.nbytes] for move in compared.moves],
    }


def change_facts(old: PlanView, new: PlanView) -> dict[str, Any]:
    """The differences of two plans, as the page shows them."""
    return _change_facts(difference(old, new))


def _change_facts(compared: PlanDifference) -> dict[str, Any]:
    return {
        "before": compared.before,
        "after": compared.after,
        "bounds": [compared.bound_before, compared.bound_after],
        "steps": [compared.steps_before, compared.steps_after],
        "arenas": [asdict(arena) for arena in compared.arenas],
        "groups": {
            name: [[change.name, change.before, change.after] for change in changes]
            for name, changes in (
                ("operand", compared.operands), ("kind", compared.kinds), ("layer", compared.layers),
            )
        },
        "idle": [compared.idle.before, compared.idle.after],
        "options": [[o.name, o.before, o.after] for o in compared.options],
        "same_graph": compared.same_graph,
    }  # fmt: skip
