"""The checks that run on every reference program, wherever it comes from."""

from __future__ import annotations

import numpy as np

from solver.errors import (
    DanglingOperandError,
    DuplicateDefError,
    DuplicateNameError,
    GraphError,
    StateError,
    TrainableError,
    UseBeforeDefError,
)
from solver.program.dependencies import touched
from solver.program.ir import UPDATE, Access, Kind, Phase, Program

__all__ = ["check_program"]


def check_program(program: Program) -> None:
    """Check what every later stage relies on. Linear.

    Labels and steps are unique, bindings name declared values, nothing is read before it is defined or
    defined a second time without being read (which is how derivatives accumulate), scratch is private
    to its step, every gradient is applied to its weight, and no state is touched by a step beside the
    one that updates it. Since each read follows a definition in the order given, the dependencies are
    acyclic. Raises the GraphError that names step and value.
    """
    _check_names(program)
    _check_definitions(program)
    _check_scratch(program)
    _check_gradients(program)
    _check_states(program)


def _check_definitions(program: Program) -> None:
    rows = touched(program)
    first = np.full(len(program.values), len(program.steps))
    np.minimum.at(first, rows.value[rows.defines], rows.step[rows.defines])
    first[[entry.value for entry in program.entry]] = -1
    before = first[rows.value] < rows.step
    if before[rows.reads].all() and not before[rows.has(Access.WRITE)].any():
        return
    defined = {entry.value for entry in program.entry}
    for t, step in enumerate(program.steps):
        results, again = [], []
        for binding in step.bindings:
            access = binding.access
            if access.defines:
                results.append(binding.value)
                if access is Access.WRITE and binding.value in defined:
                    again.append(binding.value)
            if access.reads and binding.value not in defined:
                raise UseBeforeDefError(
                    f"Step {program.step_labels[t]} uses {program.values[binding.value].label!r} before any"
                    " step defines it.",
                    remedy="Move the step behind the definition.",
                )
        if again and step.phase is not Phase.EXPLICIT:
            raise DuplicateDefError(
                f"Step {program.step_labels[t]} defines {program.values[again[0]].label!r} again"
                " without reading it.",
                remedy="Define a partial and accumulate it.",
            )
        defined.update(results)


def _check_names(program: Program) -> None:
    if len(program.by_label) < len(program.values):
        twice = next(v.label for i, v in enumerate(program.values) if program.by_label[v.label] != i)
        raise DuplicateNameError(f"There are two values {twice!r}.", remedy="Labels are unique.")
    values = touched(program).value
    declared = bool(((values >= 0) & (values < len(program.values))).all())
    # The label of a repeated step says that it repeats one: its number is looked at, too.
    kernels = [step.reference for step in program.steps if step.reference is not None]
    unique = len(set(program.step_labels)) == len(program.steps) and len(set(kernels)) == len(kernels)
    if declared and unique:
        return
    steps: set[str] = set()
    references: dict[int, str] = {}
    for t, step in enumerate(program.steps):
        label = program.step_labels[t]
        if step.reference is not None:
            label = references.setdefault(step.reference, label)
        if label in steps:
            raise DuplicateNameError(
                f"Step {label} occurs twice.", remedy="Give each step a part of its own."
            )
        steps.add(label)
        for binding in step.bindings:
            if not 0 <= binding.value < len(program.values):
                raise DanglingOperandError(
                    f"Step {label} touches value {binding.value}, which the program does not declare.",
                    remedy="Declare every value that a step reads or writes.",
                )


def _check_scratch(program: Program) -> None:
    rows = touched(program)
    scratch = rows.has(Access.SCRATCH)
    if (np.bincount(rows.value)[rows.value[scratch]] == 1).all():
        return  # nearly always: then nothing has to be looked for
    owner: dict[int, int] = {}
    for value, t in zip(rows.value[scratch].tolist(), rows.step[scratch].tolist(), strict=True):
        owner.setdefault(value, t)
    for t, step in enumerate(program.steps):
        for binding in step.bindings:
            first = owner.get(binding.value)
            if first is None:
                continue
            twice = sum(other.value == binding.value for other in step.bindings) > 1
            if first != t or binding.access is not Access.SCRATCH or twice:
                raise GraphError(
                    f"Scratch {program.values[binding.value].label!r} of step {program.step_labels[first]} is"
                    f" touched again by {program.step_labels[t]}.",
                    remedy="Scratch means nothing outside its step: use a saved value.",
                )


def _check_gradients(program: Program) -> None:
    applied = {
        (binding.value, program.operations[step.operation].operation.id)
        for step in program.steps
        if program.kernel(step) == UPDATE
        for binding in step.bindings
    }
    for i, value in enumerate(program.values):
        if value.kind is Kind.GRADIENT and (i, value.origin) not in applied:
            raise TrainableError(
                f"The gradient of {value.origin!r} is never applied.",
                remedy="Add its update, or leave it out of the trainable set.",
            )


def _check_states(program: Program) -> None:
    """A state that one step updates and another step touches: the order would decide what the other finds."""
    states = {i for i, value in enumerate(program.values) if value.kind is Kind.STATE}
    if not states:
        return
    updated = {b.value for s in program.steps for b in s.bindings if b.value in states and b.access.writes}
    touching: dict[int, int] = {}
    for t, step in enumerate(program.steps):
        for value in updated.intersection(b.value for b in step.bindings):
            first = touching.setdefault(value, t)
            if first != t:
                raise StateError(
                    f"State {program.values[value].label!r} is touched by {program.step_labels[first]} and by"
                    f" {program.step_labels[t]}, and one updates it.",
                    remedy="Save what later steps need of it.",
                )
