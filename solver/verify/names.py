"""Whether the names of a plan lead to the values of the reference: callers feed and read by name."""

from __future__ import annotations

from collections.abc import Iterator

from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import Access, EntryKind, Kind, Program, Value

__all__ = ["check_labels", "check_names"]


def check_names(reference: Program, program: Program) -> Iterator[Violation]:
    """Names of what enters and leaves the reference that lead to other values of the program. Rule ``name``.

    The name of a fed value leads to an entry of it, that of a result to an exit of it, and that of what is
    both to one value that is both. Linear in the entries and exits.
    """
    entries = {(entry.value, entry.reference) for entry in program.entry}
    exits = {(exit_.value, exit_.reference) for exit_ in program.exit}
    kinds = {entry.reference: entry.kind for entry in reference.entry}
    results = {exit_.reference for exit_ in reference.exit}
    for number in sorted(kinds.keys() | results):
        label = reference.values[number].label
        place = (program.by_label.get(label, -1), number)
        if kinds.get(number) is EntryKind.FED and place not in entries:
            detail = f"The name {label!r} leads to something else than what is fed."
        elif number in results and place not in exits:
            detail = f"The name {label!r} leads to something else than the result."
        elif place not in entries and place not in exits:
            detail = f"The name {label!r} leads to something else."
        else:
            continue
        yield Violation("name", (label,), detail)


def check_labels(reference: Program, plan: Plan) -> Iterator[Violation]:
    """The first value or memory that is called as another one, of a plan that is right. Rule ``name``.

    Memories have the names of the tiers, or those of the reference. A value has the origin and the kind of
    the value of the reference that it stands for, and its label, or that label with ``@`` and a suffix. No
    result depends on it, but reports and exporters say so. Linear in the bindings.
    """
    program = plan.program
    memories = [memory.name for memory in plan.options.tiers or reference.spaces]
    called = [space.name for space in program.spaces]
    if memories != called[: len(memories)]:
        yield Violation("name", (), f"The memories are called {called}, not {memories}.")
        return
    ours, theirs = program.values, reference.values
    bound = {(entry.value, entry.reference): False for entry in program.entry}
    bound |= {(exit_.value, exit_.reference): False for exit_ in program.exit}
    stands_for = dict(list(bound))
    copies = []
    for step in program.steps:
        if step.reference is None:
            copies.append(step.bindings)
            continue
        for a, b in zip(step.bindings, reference.steps[step.reference].bindings, strict=True):
            stands_for.setdefault(a.value, b.value)
            if ours[a.value] is not theirs[b.value]:
                pair = (a.value, b.value)
                bound[pair] = bound.get(pair, True) and a.access is Access.SCRATCH
    # What only copies touch stands for what is at the other end.
    for ends in (*copies, *reversed(copies)):
        for here, there in (ends, ends[::-1]):
            if here.value in stands_for and there.value not in stands_for:
                stands_for[there.value] = stands_for[here.value]
                bound[there.value, stands_for[here.value]] = False
    for (value, original), scratch in sorted(bound.items()):
        if not _is_called(ours[value], theirs[original], reference, scratch=scratch):
            label = ours[value].label
            yield Violation(
                "name",
                (label,),
                f"{label!r} stands for {theirs[original].label!r} of the reference, and has another name,"
                " origin or kind.",
            )
            return


def _is_called(value: Value, original: Value, reference: Program, *, scratch: bool) -> bool:
    label = value.label
    if label != original.label and (
        label in reference.by_label or not label.startswith(f"{original.label}@")
    ):
        return False
    # A repetition leaves in scratch what it would update.
    kind = value.kind is original.kind or (scratch and value.kind is Kind.SCRATCH)
    return kind and value.origin == original.origin
