"""A program from the tables of a plan document: the way back of `solver.documents.program_tables`."""

from __future__ import annotations

from solver.documents.floats import float_of
from solver.documents.program_rows import ProgramTables
from solver.documents.rows import REMEDY, check_positions
from solver.errors import PlanError
from solver.graph.ops.base import Node
from solver.graph.types import DType, Operation, TensorType
from solver.program import (
    Alias,
    Binding,
    Entry,
    EntryKind,
    Exit,
    Initial,
    Program,
    Space,
    Step,
    Value,
)

__all__ = ["to_program"]


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
        initial={row.of: Initial(row.scheme, float_of(row.value), *row[3:]) for row in document.initial},
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
    _check_names(program)
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


def _check_names(program: Program) -> None:
    """Callers and exporters know what is fed and what is a result by the names that the graph gives them.

    Whether these are the names of this graph is for the proof to say.
    """
    places: list[tuple[EntryKind | None, int, int]]
    places = [(EntryKind.FED, e.value, e.reference) for e in program.entry if e.kind is EntryKind.FED]
    places += [(None, exit_.value, exit_.reference) for exit_ in program.exit]
    staying = {entry.reference for entry in program.entry if entry.kind is not EntryKind.FED}
    known = {(kind, reference, value) for kind, value, reference in places}
    fed = {reference for kind, reference, _ in known if kind is not None}
    for kind, value, reference in places:
        name = program.values[value].origin
        number = program.by_label.get(name)
        # A result that no value is named after cannot be taken for another one.
        if reference in staying or (number is None and reference not in fed):
            continue
        if (kind, reference, number) not in known:
            what = "the result" if kind is None else "what the caller feeds"
            raise PlanError(
                f"values[{value}] is {what} as {name!r}, but the value of this name is another one.",
                remedy=REMEDY,
                path=("values", value, 0),
            )
