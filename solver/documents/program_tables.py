"""A program as integer-indexed tables: what plan documents carry, and what digests of programs are taken over."""

from __future__ import annotations

import json
from typing import Any

from solver.graph.ops.base import Node
from solver.graph.types import TensorType
from solver.program import Access, Kind, Phase, Program

__all__ = ["program_tables"]

_Table = list[tuple[Any, ...]]

#: What the steps of one form have in common.
_Form = tuple[Phase, str, bool, tuple[tuple[str, Access], ...]]


def program_tables(program: Program) -> dict[str, Any]:
    """The tables, field by field in a fixed order; rows are those of `solver.documents.plan`, without places.

    Types, kinds, origins, kernels and forms are numbered by first use, so that equal programs have equal tables.
    Linear.
    """
    types: dict[TensorType, int] = {}
    kinds: dict[Kind, int] = {}
    kernels: dict[str, int] = {}
    kernel_rows: _Table = []
    operations: _Table = []
    for node in program.operations:
        row = _kernel(node)
        kernel = kernels.setdefault(json.dumps(row), len(kernels))
        if kernel == len(kernel_rows):
            kernel_rows.append(row)
        inputs = [None if type_ is None else types.setdefault(type_, len(types)) for type_ in node.inputs]
        outputs = [types.setdefault(type_, len(types)) for type_ in node.outputs]
        operations.append((node.operation.id, kernel, inputs, outputs))
    forms: dict[_Form, int] = {}
    steps: _Table = []
    for step in program.steps:
        slots = tuple([(binding.slot, binding.access) for binding in step.bindings])
        form = forms.setdefault((step.phase, step.part, step.due, slots), len(forms))
        values = [binding.value for binding in step.bindings]
        steps.append((step.operation, form, step.reference, step.level, step.until, values))
    origins: dict[str, int] = {}
    value_rows: _Table = [
        (
            value.label[len(value.origin) :] if value.label.startswith(value.origin) else "",
            types.setdefault(value.type, len(types)),
            kinds.setdefault(value.kind, len(kinds)),
            origins.setdefault(value.origin, len(origins)),
            value.space,
        )
        for value in program.values
    ]
    return {
        "name": program.name,
        "period": program.period,
        "spaces": [(space.name, space.alignment, space.addressable) for space in program.spaces],
        "types": [(type_.shape, type_.dtype.value) for type_ in types],
        "kinds": [kind.value for kind in kinds],
        "origins": list(origins),
        "kernels": kernel_rows,
        "operations": operations,
        "forms": [
            (phase.value, part, due, [(slot, access.value) for slot, access in slots])
            for phase, part, due, slots in forms
        ],
        "values": value_rows,
        "labels": [
            (i, value.label)
            for i, value in enumerate(program.values)
            if not value.label.startswith(value.origin)
        ],
        "aliases": [(a.value, a.source, a.step, a.view, a.offset) for a in program.aliases],
        "steps": steps,
        "entry": [(entry.value, entry.kind.value, entry.reference) for entry in program.entry],
        "exit": [(exit_.value, exit_.reference) for exit_ in program.exit],
        "initial": [
            (value, i.scheme, float(i.value), float(i.scale), i.seed, i.source, i.sha256)
            for value, i in sorted(program.initial.items())
        ],
    }


def _kernel(node: Node) -> tuple[Any, ...]:
    """What a kernel computes, beside the types; JSON has no word for infinities and for what is not a number."""
    return (
        node.operation.type,
        dict(sorted(node.attributes.items())),
        node.constants,
        [(k, [_number(number) for number in numbers]) for k, numbers in sorted(node.floats.items())],
        node.scratch_budget,
    )


def _number(number: float) -> float | str:
    if number != number:
        return "NaN"
    return number if abs(number) != float("inf") else "Infinity" if number > 0 else "-Infinity"
