"""The proof of a deployment: its plans, which are proved one by one, leave each other's values alone.

Each program is proved to leave in its exits what its reference leaves there, and everything that it holds for
others as it was. So if a persistent value has one place in all plans, and what one program leaves there is
what the others take from there, any sequence of runs computes what the references compute.
docs/explanation/proof.md has the induction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from solver.plan.deployment import Deployment, EntryPoint
from solver.program import Entry, EntryKind, Kind, Program, Value, contents_at_first, holding, persistent
from solver.reports.validation import Violation

__all__ = ["check_deployment_form", "held_references", "prove_deployment"]


def prove_deployment(
    deployment: Deployment, references: Sequence[Program] | None = None
) -> tuple[Violation, ...]:
    """The violations of what the plans of a deployment promise each other; none for a right one.

    `references` has the reference program of each entry point, with what it holds for others
    (`held_references`); without them nothing is said on names. Rules: ``form`` (names, numbers, spaces),
    ``persistent`` (a value that is missing, twice, elsewhere, or another one), ``initial``, ``period``. That
    each plan is right is for `prove` to say, and asked before. Linear in the values.
    """
    return (
        check_deployment_form(deployment)
        or (*_check_places(deployment),)
        or (*_check_names(deployment, references or ()), *_check_periods(deployment))
    )


def held_references(deployment: Deployment, programs: Sequence[Program]) -> tuple[Program, ...]:
    """The reference `programs` of the entry points, each with the values that its plan holds for others.

    The form of the deployment must be right. A value that no entry point has for itself is left out, which
    `prove` then notices. Linear.
    """
    entries = [_entries(entry_point) for entry_point in deployment.entry_points]
    held: list[list[Value]] = [[] for _ in programs]
    for row in deployment.persistent:
        there = [of.get(number) for of, number in zip(entries, row.values, strict=True)]
        own = (
            program.values[entry.reference]
            for entry, program in zip(there, programs, strict=True)
            if entry and entry.kind is not EntryKind.HELD and 0 <= entry.reference < len(program.values)
        )
        first = next(own, None)
        for entry, values in zip(there, held, strict=True):
            if first and entry and entry.kind is EntryKind.HELD:
                values.append(replace(first, label=row.name))
    return tuple(map(holding, programs, held))


def check_deployment_form(deployment: Deployment) -> tuple[Violation, ...]:
    """The violations of the form that everything else relies on: rule ``form``. Linear."""
    return (*_check_form(deployment),)


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
    counts = [len(entry_point.plan.program.values) for entry_point in deployment.entry_points]
    for row in deployment.persistent:
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
    entries = [_entries(entry_point) for entry_point in deployment.entry_points]
    plans = [(e.plan.program.values, e.plan.offsets) for e in deployment.entry_points]
    for row in deployment.persistent:
        places = [
            (values[number].space, offsets[number], values[number].type)
            for (values, offsets), number in zip(plans, row.values, strict=True)
        ]
        if any(place != places[0] for place in places):
            detail = f"{row.name!r} has another place or type in some entry point than in the others."
            yield Violation("persistent", (row.name,), detail)
        there = [of.get(number) for of, number in zip(entries, row.values, strict=True)]
        if all(entry is not None and entry.kind is EntryKind.HELD for entry in there):
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


def _check_names(deployment: Deployment, references: Sequence[Program]) -> Iterator[Violation]:
    """Each persistent value is one value of a model, by its label, in all programs of the model.

    Otherwise a program could find under the name of one weight what another program left in another weight.
    Constants of one label are one value where they have one type and the same contents.
    """
    entries = [_entries(entry_point) for entry_point in deployment.entry_points]
    rows: dict[Hashable, str] = {}
    for row in deployment.persistent if references else ():
        labels: dict[str, str] = {}
        contents = set()
        changes = any(
            of[number].kind is EntryKind.CARRIED for of, number in zip(entries, row.values, strict=True)
        )
        for k, (entry_point, number) in enumerate(zip(deployment.entry_points, row.values, strict=True)):
            entry, model = entries[k][number], entry_point.model
            value = references[k].values[entry.reference]
            if entry.kind is EntryKind.HELD:
                if value.label != row.name and not value.label.startswith(f"{row.name}@held"):
                    detail = f"Entry point {entry_point.name!r} holds {value.label!r} for {row.name!r}."
                    yield Violation("persistent", (row.name,), detail)
                continue
            key: Hashable = (model, value.label)
            if value.kind is Kind.CONSTANT or not changes:
                first = contents_at_first(references[k], entry.reference)
                if first is not None:
                    contents.add(first)
                if value.kind is Kind.CONSTANT:
                    key = (model, value.label, value.type, first)
            known = labels.setdefault(model, value.label), rows.setdefault(key, row.name)
            if known != (value.label, row.name):
                detail = (
                    f"{value.label!r} is {row.name!r} in entry point {entry_point.name!r}, and not in another"
                    f" one of model {model!r}."
                )
                yield Violation("persistent", (row.name,), detail)
        names = [deployment.name_of(model, label) for model, label in labels.items()]
        if row.name not in names and not any(row.name.startswith(f"{name}@") for name in names):
            yield Violation("persistent", (row.name,), f"No entry point has a value {row.name!r}.")
        if len(contents) > 1 and not changes:
            detail = f"{row.name!r} begins with other values in some entry point, and no program changes it."
            yield Violation("initial", (row.name,), detail)


def _check_periods(deployment: Deployment) -> Iterator[Violation]:
    """The programs that train one model count their runs together, so each must update after as many."""
    first: dict[str, EntryPoint] = {}
    for entry_point in deployment.entry_points:
        if entry_point.purpose == "train":
            other = first.setdefault(entry_point.model, entry_point)
            ours, theirs = (each.plan.program.period for each in (entry_point, other))
            if ours != theirs:
                detail = (
                    f"Entry point {entry_point.name!r} updates weights after {ours} micro-batches,"
                    f" {other.name!r} of the same model after {theirs}."
                )
                yield Violation("period", (), detail)


def _entries(entry_point: EntryPoint) -> Mapping[int, Entry]:
    return {entry.value: entry for entry in entry_point.plan.program.entry}
