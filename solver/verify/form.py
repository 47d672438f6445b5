"""The form of a plan: numbers that exist, places inside their spaces, the entry and exit of the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import pairwise

from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import EntryKind, Initial, Program, exact, touched

__all__ = ["check_form"]


def check_form(reference: Program, plan: Plan) -> Iterator[Violation]:
    """What everything else takes for granted. Linear.

    The first check that finds something ends it: the next ones rely on what it has looked at.
    """
    for check in (_check_numbers, _check_times, _check_places, _check_interface):
        found = tuple(check(reference, plan))
        yield from found
        if found:
            return


def _check_numbers(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Nothing refers to what is not there."""
    program = plan.program
    values, steps, spaces = len(program.values), len(program.steps), len(program.spaces)
    found = ""
    if len(plan.offsets) != values:
        found = f"There are {len(plan.offsets):,} offsets for {values:,} values."
    elif not len(plan.sizes) == len(plan.certificates) == spaces:
        found = f"There are {len(plan.sizes)} sizes for {spaces} spaces."
    elif not all(type(number) is int for number in (*plan.offsets, *plan.sizes)):
        found = "An offset or a size is not an integer."
    elif not all(0 <= value.space < spaces for value in program.values):
        found = "A value lies in a space that the plan does not have."
    elif len({value.label for value in program.values}) < values:
        found = "Two values have one label."
    else:
        bound = touched(program).value
        numbers = [int(bound.min()), int(bound.max())] if len(bound) else []
        numbers += [x for alias in program.aliases for x in (alias.value, alias.source)]
        numbers += [entry.value for entry in program.entry] + [exit_.value for exit_ in program.exit]
        numbers += [*program.initial, *plan.holds]
        references = [entry.reference for entry in program.entry] + [e.reference for e in program.exit]
        kernels = [step.reference for step in program.steps if step.reference is not None]
        for what, given, count in (
            ("a value", numbers, values),
            ("a step", [alias.step for alias in program.aliases], steps),
            ("an operation", [step.operation for step in program.steps], len(program.operations)),
            ("a value of the reference", references, len(reference.values)),
            ("a step of the reference", kernels, len(reference.steps)),
        ):
            if given and not 0 <= min(given) <= max(given) < count:
                found = f"The plan refers to {what} that does not exist."
                break
    if found:
        yield Violation("form", (), found)
        return
    at = {alias.value: alias.step for alias in program.aliases}
    if len(at) < len(program.aliases):
        pairs = Counter((alias.value, alias.source) for alias in program.aliases)
        times = Counter(alias.value for alias in program.aliases)
        if max(pairs.values()) > 1 or any(
            times[alias.value] > 1 and not (alias.view and alias.step == at[alias.value])
            for alias in program.aliases
        ):
            yield Violation(
                "form", (), "A value is defined in the bytes of two others, and is not a view of both."
            )
    for alias in program.aliases:
        if alias.value == alias.source or at.get(alias.source, -1) >= alias.step:
            label = program.values[alias.value].label
            yield Violation(
                "form", (label,), f"{label!r} is defined in the bytes of a value that comes later."
            )


def _check_times(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Levels begin with 0 and never fall; only copies last longer; nothing is beyond the iteration."""
    program, before = plan.program, 0
    for t, step in enumerate(program.steps):
        label = program.step_labels[t]
        if step.level < before or step.level > before + 1 or (t == 0 and step.level):
            yield Violation("level", (), f"Step {label!r} is on level {step.level}, behind level {before}.")
            return
        before = step.level
        if step.until < step.level or (step.until > step.level and step.reference is not None):
            yield Violation("level", (), f"Step {label!r} lasts from level {step.level} to {step.until}.")
        elif step.until >= program.duration:
            yield Violation("level", (), f"Step {label!r} lasts beyond the end of the iteration.")
    for number, hold in plan.holds.items():
        if not 0 <= hold.start < hold.end <= program.duration:
            label = program.values[number].label
            yield Violation("level", (label,), f"{label!r} is held on [{hold.start}, {hold.end}).")


def _check_places(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Places lie in their spaces, aligned; kernels touch addressable spaces only."""
    program = plan.program
    for space in program.spaces:
        if space.alignment < 1 or space.alignment & (space.alignment - 1):
            yield Violation(
                "place", (), f"The alignment {space.alignment} of {space.name!r} is not a power of two."
            )
            return
    alignments = [space.alignment for space in program.spaces]
    for value, offset in zip(program.values, plan.offsets, strict=True):
        alignment, size = alignments[value.space], plan.sizes[value.space]
        if not offset % alignment and 0 <= offset <= size - value.type.nbytes:
            continue
        space = program.spaces[value.space]
        if offset % alignment:
            yield Violation(
                "place",
                (value.label,),
                f"{value.label!r} at offset {offset} is not aligned to {space.alignment}.",
            )
        else:
            yield Violation(
                "place",
                (value.label,),
                f"{value.label!r} takes [{offset}, {offset + value.type.nbytes}) of {space.name!r},"
                f" which has {size:,} bytes.",
            )
    if all(space.addressable for space in program.spaces):
        return
    for t, step in enumerate(program.steps):
        for binding in step.bindings:
            value = program.values[binding.value]
            if step.reference is not None and not program.spaces[value.space].addressable:
                yield Violation(
                    "place",
                    (value.label,),
                    f"Step {program.step_labels[t]!r} touches {value.label!r} in"
                    f" {program.spaces[value.space].name!r}, which kernels cannot reach.",
                )


def _check_interface(reference: Program, plan: Plan) -> Iterator[Violation]:
    """What the caller and the iteration before give, and what they find, is what the reference says."""
    program = plan.program
    if program.period != reference.period:
        yield Violation(
            "period",
            (),
            f"The plan runs {program.period} times for each update, the reference {reference.period} times.",
        )
    kinds = {entry.value: entry.kind for entry in reference.entry}
    ranges, entered = [], set()
    for entry in program.entry:
        value, wanted = program.values[entry.value], reference.values[entry.reference]
        if kinds.get(entry.reference) is not entry.kind or (
            value.type is not wanted.type and value.type != wanted.type
        ):
            yield Violation(
                "entry",
                (value.label,),
                f"{value.label!r} does not hold {wanted.label!r} at the start as the reference says it.",
            )
        if value.type.nbytes:
            ranges.append((value.space, plan.offsets[entry.value], entry.value))
        entered.add(entry.reference)
        if entry.kind is EntryKind.FED:
            continue
        ours, theirs = program.initial.get(entry.value), reference.initial.get(entry.reference)
        if ours is not theirs and _contents(ours) != _contents(theirs):
            yield Violation(
                "initial", (value.label,), f"{value.label!r} begins with other values than the reference."
            )
    missing = sorted(kinds.keys() - entered)
    if missing:
        label = reference.values[missing[0]].label
        yield Violation("entry", (label,), f"Nothing holds {label!r} at the start.")
    ranges.sort()
    for (space, low, a), (other, high, b) in pairwise(ranges):
        if space == other and low + program.values[a].type.nbytes > high:
            names = (program.values[a].label, program.values[b].label)
            yield Violation("overlap", names, f"{names[0]!r} and {names[1]!r} share bytes at the start.")
    exits = {exit_.reference for exit_ in reference.exit}
    named = set()
    for exit_ in program.exit:
        value, wanted = program.values[exit_.value], reference.values[exit_.reference]
        if exit_.reference not in exits or (value.type is not wanted.type and value.type != wanted.type):
            yield Violation(
                "exit", (value.label,), f"{value.label!r} is not where {wanted.label!r} must be at the end."
            )
        named.add(exit_.reference)
    for missed in sorted(exits - named):
        label = reference.values[missed].label
        yield Violation("exit", (label,), f"The plan keeps {label!r} nowhere at the end.")


def _contents(initial: Initial | None) -> Hashable:
    """What a carried or constant value holds first, by type and bytes: zeros where nothing is said."""
    first = initial or _ZEROS
    numbers = (float(first.value), float(first.scale), first.seed)
    return exact((first.scheme, *numbers, first.source, first.sha256))


_ZEROS = Initial("zeros")
