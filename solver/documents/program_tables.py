"""A program as integer-indexed tables: what plan documents carry, and what digests are taken over.

    program ──program_tables──► tables ──► JSON ──► ProgramTables ──to_program──► program
                                rows of tuples      rows of named tuples

Rows are JSON arrays. Numbers in them are positions in other tables, which are numbered by first use, so that
equal programs have equal tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from solver.documents.program_rows import ProgramTables
from solver.documents.rows import REMEDY, check_positions
from solver.errors import PlanError
from solver.graph.ops.base import Node
from solver.graph.types import DType, Operation, TensorType
from solver.program import (
    Access,
    Alias,
    Binding,
    Entry,
    Exit,
    Initial,
    Kind,
    Phase,
    Program,
    Space,
    Step,
    Value,
)

__all__ = ["program_tables", "to_program"]

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


def program_tables(program: Program) -> dict[str, Any]:
    """The tables in a fixed order, without the places of values and the sizes of spaces. Linear."""
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
        values = list(map(_VALUE, step.bindings))
        steps.append((step.operation, form, step.reference, step.level, step.until, values))
    origins: dict[str, int] = {}
    value_rows: _Table = []
    labels: _Table = []
    for i, value in enumerate(program.values):
        label, origin = value.label, value.origin
        suffix = label[len(origin) :]
        if not label.startswith(origin):
            suffix = ""
            labels.append((i, label))
        type_, kind = types.of(value.type), kinds.setdefault(value.kind, len(kinds))
        value_rows.append((suffix, type_, kind, origins.setdefault(origin, len(origins)), value.space))
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
            (value, i.scheme, float(i.value), float(i.scale), i.seed, i.source, i.sha256)
            for value, i in sorted(program.initial.items())
        ],
    }


def _kernel(node: Node) -> tuple[Any, ...]:
    """What a kernel computes, beside the types."""
    return (
        node.operation.type,
        dict(sorted(node.attributes.items())),
        node.constants,
        [(k, [_number(number) for number in numbers]) for k, numbers in sorted(node.floats.items())],
        node.scratch_budget,
    )


def _number(number: float) -> float | str:
    """JSON has no numbers for these."""
    if number != number:
        return "NaN"
    return number if abs(number) != float("inf") else "Infinity" if number > 0 else "-Infinity"


def to_program(document: ProgramTables) -> Program:
    """The program of a document's tables. Raises PlanError where a number names nothing. Linear."""
    check_positions(document)
    types = [TensorType(type_.shape, DType(type_.dtype)) for type_ in document.types]
    kinds, kernels, forms = document.kinds, document.kernels, document.forms
    operations = []
    for row in document.operations:
        kernel = kernels[row.kernel]
        inputs = tuple([None if k is None else types[k] for k in row.inputs])
        names = tuple([f"x{i}" if k is not None else "" for i, k in enumerate(row.inputs)])
        operation = Operation(row.id, kernel.name, names, tuple([f"y{k}" for k in range(len(row.outputs))]))
        floats = {given.input: tuple(map(float, given.elements)) for given in kernel.floats}
        outputs = tuple([types[k] for k in row.outputs])
        operations.append(
            Node(
                operation, inputs, outputs, kernel.constants, kernel.attributes, kernel.scratch_budget, floats
            )
        )
    steps = []
    for t, step in enumerate(document.steps):
        phase, part, due, slots = forms[step.form]
        if len(slots) != len(step.values):
            raise PlanError(
                f"steps[{t}] has {len(step.values)} values; its form has {len(slots)} slots.",
                remedy=REMEDY,
                path=("steps", t, 5),
            )
        bindings = tuple(
            [Binding(name, value, access) for (name, access), value in zip(slots, step.values, strict=True)]
        )
        steps.append(Step(step.operation, phase, bindings, step.reference, step.level, step.until, part, due))
    origins, labels = document.origins, {row.value: row.label for row in document.labels}
    values = [
        Value(
            labels[i] if i in labels else origins[v.origin] + v.suffix,
            types[v.type],
            kinds[v.kind],
            origins[v.origin],
            v.space,
        )
        for i, v in enumerate(document.values)
    ]
    program = Program(
        name=document.name,
        spaces=tuple(Space(*row[:3]) for row in document.spaces),
        values=tuple(values),
        operations=tuple(operations),
        steps=tuple(steps),
        entry=tuple(Entry(*row) for row in document.entry),
        exit=tuple(Exit(*row) for row in document.exit),
        aliases=tuple(Alias(*row) for row in document.aliases),
        period=document.period,
        initial={row.of: Initial(*row[1:]) for row in document.initial},
    )
    _check_program(program)
    return program


def _check_program(program: Program) -> None:
    """What views of a plan rely on: unique labels, levels in order, aliases in order of definition."""
    if len(program.by_label) < len(program.values):
        i = next(i for i, v in enumerate(program.values) if program.by_label[v.label] != i)
        raise PlanError(
            f"values[{i}] is a second value {program.values[i].label!r}.",
            remedy=REMEDY,
            path=("values", i, 0),
        )
    before, end = 0, min(program.duration, len(program.steps))
    for t, step in enumerate(program.steps):
        if not before <= step.level <= step.until < end:
            raise PlanError(
                f"steps[{t}] runs on the levels {step.level} to {step.until}. Levels never fall, and"
                " an iteration has at most as many as steps.",
                remedy=REMEDY,
                path=("steps", t, 3),
            )
        before = step.level
    sources: set[int] = set()
    placed: dict[int, list[Alias]] = {}
    for i, alias in enumerate(program.aliases):
        sources.add(alias.source)
        bound = {binding.value for binding in program.steps[alias.step].bindings}
        spaces = {program.values[alias.value].space, program.values[alias.source].space}
        others = placed.setdefault(alias.value, [])
        unordered = alias.value in sources or any(
            other.step != alias.step or other.source == alias.source or not (other.view and alias.view)
            for other in others
        )
        if unordered or not {alias.value, alias.source} <= bound or len(spaces) > 1:
            raise PlanError(
                f"aliases[{i}] lays {program.values[alias.value].label!r} into"
                f" {program.values[alias.source].label!r}; one step must bind both, in one space, and aliases"
                " stand in order of definition, several of one value for views only.",
                remedy=REMEDY,
                path=("aliases", i),
            )
        others.append(alias)
