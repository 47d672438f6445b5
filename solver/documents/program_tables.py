"""A program as integer-indexed tables: what plan documents carry, and what digests are taken over.

    program ──program_tables──► tables ──► JSON ──► ProgramTables ──to_program──► program
              (this module)     rows of tuples      rows of named tuples  (`program_read`)

Rows are JSON arrays. Numbers in them are positions in other tables, which are numbered by first use, so that
equal programs have equal tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from solver.documents.floats import word_for
from solver.graph.ops.base import Node
from solver.graph.types import TensorType
from solver.program import (
    Access,
    Binding,
    Kind,
    Phase,
    Program,
)

__all__ = ["program_tables"]

_Table = list[tuple[Any, ...]]

#: What the steps of one form have in common.
_Form = tuple[Phase, str, bool, tuple[tuple[str, Access], ...]]


_SLOT: Callable[[Binding], tuple[str, Access]] = attrgetter("slot", "access")
_VALUE: Callable[[Binding], int] = attrgetter("value")


class _Numbers:
    """Numbers types by first use. Hashing them is slow, and most are the same object again."""

    def __init__(self) -> None:
        self.found: dict[TensorType, int] = {}
        self._by_id: dict[int, int] = {}

    def of(self, type_: TensorType) -> int:
        """The number of a type, which has to live as long as this."""
        number = self._by_id.get(id(type_))
        if number is None:
            number = self._by_id[id(type_)] = self.found.setdefault(type_, len(self.found))
        return number


def program_tables(program: Program, offsets: Sequence[int]) -> dict[str, Any]:
    """The tables in a fixed order, without the sizes of spaces; `offsets` are those of the values. Linear."""
    types = _Numbers()
    kinds: dict[Kind, int] = {}
    kernels: dict[str, int] = {}
    kernel_rows: _Table = []
    operations: _Table = []
    alike: dict[tuple[object, ...], int] = {}
    for node in program.operations:
        # Updates of all weights share their attributes, which are then not written to be compared.
        same = (node.operation.type, id(node.attributes), node.constants, node.scratch_budget)
        kernel = None if node.floats else alike.get(same)
        if kernel is None:
            row = _kernel(node)
            kernel = kernels.setdefault(json.dumps(row), len(kernels))
            if kernel == len(kernel_rows):
                kernel_rows.append(row)
            if not node.floats:
                alike[same] = kernel
        inputs = [None if type_ is None else types.of(type_) for type_ in node.inputs]
        outputs = [types.of(type_) for type_ in node.outputs]
        operations.append((node.operation.id, kernel, inputs, outputs))
    forms: dict[_Form, int] = {}
    steps: _Table = []
    for step in program.steps:
        slots = tuple(map(_SLOT, step.bindings))
        form = forms.setdefault((step.phase, step.part, step.due, slots), len(forms))
        values = tuple(map(_VALUE, step.bindings))
        steps.append((step.operation, form, step.reference, step.level, step.until, values))
    origins: dict[str, int] = {}
    value_rows: _Table = []
    labels: _Table = []
    for i, (value, offset) in enumerate(zip(program.values, offsets, strict=True)):
        label, origin = value.label, value.origin
        suffix = label[len(origin) :]
        if not label.startswith(origin):
            suffix = ""
            labels.append((i, label))
        type_, kind = types.of(value.type), kinds.setdefault(value.kind, len(kinds))
        source = origins.setdefault(origin, len(origins))
        value_rows.append((suffix, type_, kind, source, value.space, offset))
    return {
        "name": program.name,
        "period": program.period,
        "spaces": [(space.name, space.alignment, space.addressable) for space in program.spaces],
        "types": [(type_.shape, type_.dtype.value) for type_ in types.found],
        "kinds": [kind.value for kind in kinds],
        "origins": list(origins),
        "kernels": kernel_rows,
        "operations": operations,
        "forms": [
            (phase.value, part, due, [(slot, access.value) for slot, access in slots])
            for phase, part, due, slots in forms
        ],
        "values": value_rows,
        "labels": labels,
        "aliases": [(a.value, a.source, a.step, a.view, a.offset) for a in program.aliases],
        "steps": steps,
        "entry": [(entry.value, entry.kind.word, entry.reference) for entry in program.entry],
        "exit": [(exit_.value, exit_.reference) for exit_ in program.exit],
        "initial": [
            (value, i.scheme, word_for(float(i.value)), float(i.scale), i.seed, i.source, i.sha256)
            for value, i in sorted(program.initial.items())
        ],
    }


def _kernel(node: Node) -> tuple[Any, ...]:
    """What a kernel computes, beside the types."""
    return (
        node.operation.type,
        {name: word_for(value) for name, value in sorted(node.attributes.items())},
        node.constants,
        [(k, [word_for(number) for number in numbers]) for k, numbers in sorted(node.floats.items())],
        node.scratch_budget,
    )
