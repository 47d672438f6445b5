"""Programs that run in the memory of others: each holds what the others keep from one run to the next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import astuple, replace

from solver.program.dependencies import touched
from solver.program.digest import exact
from solver.program.ir import Entry, EntryKind, Initial, Phase, Program, Value

__all__ = ["contents_at_first", "first_contents", "holding", "persistent"]


def persistent(program: Program) -> tuple[int, ...]:
    """The values that take memory from one run of the program to the next, by number. Linear.

    They are its constant and carried values that a step touches; what it holds for others is left out.
    """
    return program.once("persistent", _persistent)


def _persistent(program: Program) -> tuple[int, ...]:
    kept = {e.value for e in program.entry if e.kind in (EntryKind.CONSTANT, EntryKind.CARRIED)}
    return tuple(sorted(kept.intersection(touched(program).value.tolist())))


def first_contents(program: Program, value: int) -> Hashable:
    """The first contents of a constant or carried value, by type and bytes: zeros by default.

    Values that a graph states are the same ones wherever they stand.
    """
    first = program.initial.get(value) or Initial("zeros")
    numbers = (float(first.value), float(first.scale), first.seed)
    rows = () if first.rows is None else astuple(first.rows)
    return exact((first.scheme, *numbers, first.sha256, *rows))


def contents_at_first(program: Program, value: int) -> Hashable | None:
    """The same, or None for an explicit program: callers write its values, and nothing is known of them."""
    if any(step.phase is Phase.EXPLICIT for step in program.steps[:1]):
        return None
    return first_contents(program, value)


def holding(program: Program, values: Sequence[Value]) -> Program:
    """The program with values of other programs behind its own, each held for the whole run. Linear.

    A label that the program has already gets ``@held`` behind it, as often as needed.
    """
    if not values:
        return program
    labels = set(program.by_label)
    added = []
    for value in values:
        label = _unused(value.label, labels)
        labels.add(label)
        added.append(Value(label, value.type, value.kind, label))
    first = len(program.values)
    entry = (Entry(number, EntryKind.HELD, number) for number in range(first, first + len(added)))
    held = replace(program, values=(*program.values, *added), entry=(*program.entry, *entry))
    held.once("touched", lambda _: touched(program))  # no step touches what is held
    return held


def _unused(label: str, labels: Iterable[str]) -> str:
    while label in labels:
        label = f"{label}@held"
    return label
