"""Programs by label, as tests read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from solver.program import Access, Binding, EntryKind, Kind, Program, Step

__all__ = [
    "at",
    "entries",
    "exits",
    "labels",
    "of_kind",
    "reads",
    "rebound",
    "scratch",
    "slots",
    "step",
    "with_step",
    "with_steps",
    "writes",
]


def at(program: Program, label: str) -> int:
    """The position of the step with this label."""
    return program.step_labels.index(label)


def step(program: Program, label: str) -> Step:
    return program.steps[at(program, label)]


def labels(program: Program, bindings: Sequence[Binding]) -> list[str]:
    return [program.values[binding.value].label for binding in bindings]


def reads(program: Program, found: Step) -> list[str]:
    """Labels of what a step reads, updates included."""
    return labels(program, [b for b in found.bindings if b.access.reads])


def writes(program: Program, found: Step) -> list[str]:
    """Labels of what a step defines, updates included, scratch not."""
    return labels(program, [b for b in found.bindings if b.access in (Access.WRITE, Access.UPDATE)])


def scratch(program: Program, found: Step) -> list[str]:
    return labels(program, [b for b in found.bindings if b.access is Access.SCRATCH])


def slots(found: Step, *accesses: Access) -> list[str]:
    return [binding.slot for binding in found.bindings if binding.access in accesses]


def of_kind(program: Program, kind: Kind) -> set[str]:
    return {value.label for value in program.values if value.kind is kind}


def entries(program: Program) -> dict[str, EntryKind]:
    """The kind of entry of each value that holds something at the start, by label."""
    return {program.values[entry.value].label: entry.kind for entry in program.entry}


def exits(program: Program) -> set[str]:
    return {program.values[exit_.value].label for exit_ in program.exit}


def with_steps(program: Program, steps: Sequence[Step]) -> Program:
    """The program with other steps; labels are those of the new ones."""
    return replace(program, steps=tuple(steps))


def with_step(program: Program, label: str, change: Callable[[Step], Step]) -> Program:
    """The program with one step changed."""
    t = at(program, label)
    return with_steps(program, [change(s) if k == t else s for k, s in enumerate(program.steps)])


def rebound(found: Step, of: str, **changes: object) -> Step:
    """The step with one binding changed: that of a slot."""
    return replace(
        found,
        bindings=tuple(
            replace(b, **changes) if b.slot == of else b  # type: ignore[arg-type]  # any field
            for b in found.bindings
        ),
    )
