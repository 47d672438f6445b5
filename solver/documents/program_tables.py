"""A program as integer-indexed tables: what plan documents carry, and what digests of programs are taken over."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from solver.graph.ops.base import Node
from solver.graph.types import TensorType
from solver.program import Access, Kind, Phase, Program

__all__ = ["program_tables"]

K = TypeVar("K", bound=Hashable)

_Table = list[tuple[Any, ...]]

#: What the steps of one form have in common.
_Form = tuple[Phase, str, bool, tuple[tuple[str, Access], ...]]


class _Numbers(Generic[K]):
    """Numbers things by first use. Hashing is slow for types and words, and most are the same object again."""

    def __init__(self) -> None:
        self.found: dict[K, int] = {}
        self._by_id: dict[int, int] = {}

    def __getitem__(self, key: K) -> int:
        number = self._by_id.get(id(key))
        if number is None:
            number = self._by_id[id(key)] = self.found.setdefault(key, len(self.found))
        return number


def program_tables(program: Program) -> dict[str, Any]:
    """The tables, field by field in a fixed order; rows are those of `solver.documents.plan`, without places.

    Types, kinds, origins, kernels and forms are numbered by first use, so that equal programs have equal tables.
    Linear.
    """
    types: _Numbers[TensorType] = _Numbers()
    kinds: _Numbers[Kind] = _Numbers()
    kernels: dict[str, int] = {}
    kernel_rows: _Table = []
    operations: _Table = []
    for node in program.operations:
        row = _kernel(node)
        kernel = kernels.setdefault(json.dumps(row), len(kernels))
        if kernel == len(kernel_rows):
            kernel_rows.append(row)
        inputs = [None if type_ is None else types[type_] for type_ in node.inputs]
        outputs = [types[type_] for type_ in node.outputs]
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
            types[value.type],
            kinds[value.kind],
            origins.setdefault(value.origin, len(origins)),
            value.space,
        )
        for value in program.values
    ]
    return {
        "name": program.name,
        "period": program.period,
        "spaces": [(space.name, space.alignment, space.addressable) for space in program.spaces],
        "types": [(type_.shape, type_.dtype.value) for type_ in types.found],
        "kinds": [kind.value for kind in kinds.found],
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
