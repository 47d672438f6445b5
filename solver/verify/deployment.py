"""The proof of a deployment: its plans, which are proved one by one, leave each other's values alone.

Each program is proved to leave in its exits what its reference leaves there, and everything that it holds for
others as it was. So if a persistent value has one place in all plans, and what one program leaves there is
what the others take from there, any sequence of runs computes what the references compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from solver.plan.deployment import Deployment, EntryPoint
from solver.plan.validation import Violation
from solver.program import EntryKind, persistent

__all__ = ["prove_deployment"]


def prove_deployment(deployment: Deployment) -> tuple[Violation, ...]:
    """The violations of what the plans of a deployment promise each other; none for a right one.

    Rules: ``form`` (names, numbers, spaces), ``persistent`` (a value that is missing, twice, or elsewhere).
    That each plan is right is for `prove` to say. Linear in the values.
    """
    return (*_check_form(deployment),) or (*_check_places(deployment),)


def _check_form(deployment: Deployment) -> Iterator[Violation]:
    names = Counter(entry_point.name for entry_point in deployment.entry_points)
    if not names or max(names.values()) > 1:
        yield Violation("form", (), "There is no entry point, or two have one name.")
        return
    first = deployment.entry_points[0].plan.program.spaces
    for entry_point in deployment.entry_points:
        if entry_point.plan.program.spaces != first:
            detail = f"Entry point {entry_point.name!r} has other memories than the first one."
            yield Violation("form", (), detail)
    rows = Counter(row.name for row in deployment.persistent)
    if rows and max(rows.values()) > 1:
        yield Violation("form", (), "A persistent value is listed twice.")
    for row in deployment.persistent:
        counts = [len(entry_point.plan.program.values) for entry_point in deployment.entry_points]
        if len(row.values) != len(counts) or not all(
            0 <= value < count for value, count in zip(row.values, counts, strict=True)
        ):
            detail = f"Persistent value {row.name!r} is no value of some entry point."
            yield Violation("form", (row.name,), detail)
            return


def _check_places(deployment: Deployment) -> Iterator[Violation]:
    for k, entry_point in enumerate(deployment.entry_points):
        listed = [row.values[k] for row in deployment.persistent]
        yield from _check_complete(entry_point, listed)
    for row in deployment.persistent:
        places = set()
        for entry_point, number in zip(deployment.entry_points, row.values, strict=True):
            value = entry_point.plan.program.values[number]
            places.add((value.space, entry_point.plan.offsets[number], value.type))
        if len(places) > 1:
            detail = f"{row.name!r} has another place or type in some entry point than in the others."
            yield Violation("persistent", (row.name,), detail)
        held = [_kinds(e)[number] for e, number in zip(deployment.entry_points, row.values, strict=True)]
        if all(kind is EntryKind.HELD for kind in held):
            yield Violation("persistent", (row.name,), f"{row.name!r} is held for no entry point.")


def _check_complete(entry_point: EntryPoint, listed: list[int]) -> Iterator[Violation]:
    """Each value that stays, or is held for others, is listed once; and nothing else."""
    program = entry_point.plan.program
    staying = set(persistent(program))
    staying.update(entry.value for entry in program.entry if entry.kind is EntryKind.HELD)
    odd = staying.symmetric_difference(listed) or {v for v, times in Counter(listed).items() if times > 1}
    if odd:
        label = program.values[min(odd)].label
        detail = f"{label!r} of entry point {entry_point.name!r} is not listed once among what stays."
        yield Violation("persistent", (label,), detail)


def _kinds(entry_point: EntryPoint) -> dict[int, EntryKind]:
    return {entry.value: entry.kind for entry in entry_point.plan.program.entry}
