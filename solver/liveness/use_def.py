"""Use-def chains over (operand, is_forward), and the verification that always runs.

A chain lists the steps that define an operand and the steps that use it, in execution order
(Samsung ONE's TrainableGraph, with the accumulations it leaves implicit made explicit).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solver.errors import (
    DanglingOperandError,
    DuplicateDefError,
    DuplicateNameError,
    GraphError,
    StateError,
    TrainableError,
    UseBeforeDefError,
)
from solver.training.program import (
    OperandKind,
    Phase,
    TrainingOperandIndex,
    TrainingOperationIndex,
    TrainingProgram,
    TrainingStep,
)

__all__ = ["UseDefChain", "use_def_chains", "verify_program", "verify_reordering"]


@dataclass(frozen=True, slots=True)
class UseDefChain:
    """Steps that define `operand` and steps that use it, in execution order.

    An in-place step stands in both. Scratch is defined and used by its one step.
    """

    operand: TrainingOperandIndex
    defs: tuple[TrainingOperationIndex, ...]
    uses: tuple[TrainingOperationIndex, ...]


def use_def_chains(program: TrainingProgram) -> dict[TrainingOperandIndex, UseDefChain]:
    """Chains of all operands. Linear in the number of bindings. Verifies nothing."""
    defs: dict[TrainingOperandIndex, list[TrainingOperationIndex]] = {i: [] for i in program.operands}
    uses: dict[TrainingOperandIndex, list[TrainingOperationIndex]] = {i: [] for i in program.operands}
    for step in program.steps:
        scratch = tuple(b.operand for b in step.scratch)
        for operand in dict.fromkeys((*step.defs, *scratch)):
            defs[operand].append(step.index)
        for operand in dict.fromkeys((*step.uses, *scratch)):
            uses[operand].append(step.index)
    return {i: UseDefChain(i, tuple(defs[i]), tuple(uses[i])) for i in program.operands}


def verify_program(program: TrainingProgram) -> None:
    """Check what every later stage relies on. Linear.

    No undeclared operand, no step twice, no use before def, no second def except in place (which is
    how derivatives accumulate), scratch private to its step, every gradient applied to its weight, and no
    state touched by a step beside the one that updates it.
    Because each use follows a def in the order given, the dependencies are acyclic over forward
    and backward. Raises the GraphError that names step and operand.
    """
    _check_steps_unique(program)
    defined = {i for i, operand in program.operands.items() if operand.is_defined_by_caller}
    for step in program.steps:
        _check_declared(program, step)
        _check_uses(step, defined)
        _check_defs(step, defined)
        defined.update(step.defs)
    _check_scratch(program)
    _check_gradients(program)
    _check_states(program)


def _check_steps_unique(program: TrainingProgram) -> None:
    seen: set[TrainingOperationIndex] = set()
    for step in program.steps:
        if step.index in seen:
            raise DuplicateNameError(
                f"Step {step.index} occurs twice.", remedy="Give each step an index of its own."
            )
        seen.add(step.index)


def _check_declared(program: TrainingProgram, step: TrainingStep) -> None:
    for operand in step.touched():
        if operand not in program.operands:
            raise DanglingOperandError(
                f"Step {step.index} touches {str(operand)!r}, which the program does not declare.",
                remedy="Declare every operand that a step reads or writes.",
            )


def _check_uses(step: TrainingStep, defined: set[TrainingOperandIndex]) -> None:
    for operand in step.uses:
        if operand not in defined:
            raise UseBeforeDefError(
                f"Step {step.index} uses {str(operand)!r} before any step defines it.",
                remedy="Move the step behind the definition.",
            )


def _check_defs(step: TrainingStep, defined: set[TrainingOperandIndex]) -> None:
    for operand in step.defs:
        if operand in defined and operand not in step.uses:
            raise DuplicateDefError(
                f"Step {step.index} defines {str(operand)!r} again without reading it.",
                remedy="Define a partial and accumulate it.",
            )


def _check_scratch(program: TrainingProgram) -> None:
    owner: dict[TrainingOperandIndex, TrainingOperationIndex] = {}
    for step in program.steps:
        outside = {*step.uses, *step.defs}
        for binding in step.scratch:
            first = owner.setdefault(binding.operand, step.index)
            if first != step.index or binding.operand in outside:
                raise GraphError(
                    f"Scratch {str(binding.operand)!r} of step {first} is touched again by {step.index}.",
                    remedy="Scratch means nothing outside its step: use a saved operand.",
                )


def _check_gradients(program: TrainingProgram) -> None:
    applied = {
        (operand, step.index.operation)
        for step in program.steps
        if step.index.phase is Phase.APPLY_GRADIENT
        for operand in step.uses
    }
    for index, operand in program.operands.items():
        if operand.kind is OperandKind.GRADIENT and (index, operand.origin) not in applied:
            raise TrainableError(
                f"The gradient of {operand.origin!r} is never applied.",
                remedy="Add its update, or leave it out of the trainable set.",
            )


def _check_states(program: TrainingProgram) -> None:
    """What one step updates, another would find old or new, as the order has it."""
    touching: dict[TrainingOperandIndex, TrainingOperationIndex] = {}
    updated = {
        i for step in program.steps for i in step.defs if program.operands[i].kind is OperandKind.STATE
    }
    for step in program.steps:
        for operand in updated.intersection(step.touched()):
            first = touching.setdefault(operand, step.index)
            if first != step.index:
                raise StateError(
                    f"State {str(operand)!r} is touched by {first} and by {step.index}, and one updates it.",
                    remedy="Save what later steps need of it.",
                )


def verify_reordering(before: TrainingProgram, after: TrainingProgram) -> None:
    """Check that `after` runs the steps of `before` in an order that computes the same values.

    For each operand the sequence of writes, and the reads between two writes, must be the same
    (RAW, WAR and WAW dependencies). Linear. Raises UseBeforeDefError naming the operand.
    """
    if _epochs(before) != _epochs(after):
        culprit = next((str(i) for i, e in _epochs(before).items() if _epochs(after).get(i) != e), "a step")
        raise UseBeforeDefError(
            f"The new execution order changes which definition of {culprit!r} a step reads.",
            remedy="Keep reads and writes of one operand in their order.",
        )


def _epochs(
    program: TrainingProgram,
) -> Mapping[TrainingOperandIndex, frozenset[tuple[TrainingOperationIndex, int, bool]]]:
    """For each operand: which step touched it after how many writes, and whether it wrote."""
    writes: dict[TrainingOperandIndex, int] = {}
    seen: dict[TrainingOperandIndex, set[tuple[TrainingOperationIndex, int, bool]]] = {}
    for step in program.steps:
        for operand in step.uses:
            seen.setdefault(operand, set()).add((step.index, writes.get(operand, 0), False))
        for operand in step.defs:
            seen.setdefault(operand, set()).add((step.index, writes.get(operand, 0), True))
            writes[operand] = writes.get(operand, 0) + 1
    return {operand: frozenset(entries) for operand, entries in seen.items()}
