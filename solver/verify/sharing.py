"""Obligations *aliases*, *inside a step*, *levels* and *residues*: which bytes may be shared.

All spaces stand one behind the other on one line of addresses, so that places are plain ranges (`Line`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solver.accounting.clocks import channel_of
from solver.graph.ops import lookup
from solver.graph.ops.base import InPlace, Part
from solver.plan import Plan
from solver.program import OWN_KERNELS, RESIDUE, Access, Alias, Binding, Phase, Program, Step, permitted
from solver.reports.validation import Violation

__all__ = ["Line", "check_aliases", "check_levels", "check_overlaps", "check_residues", "step_name"]


class Line:
    """All spaces one behind the other on one line of addresses: places are then plain ranges."""

    def __init__(self, plan: Plan) -> None:
        program = plan.program
        base = [0]
        for size in plan.sizes:
            base.append(base[-1] + max(size, 0) + RESIDUE)
        self.low = [
            base[value.space] + offset for value, offset in zip(program.values, plan.offsets, strict=True)
        ]
        self.high = [low + value.type.nbytes for low, value in zip(self.low, program.values, strict=True)]


def step_name(plan: Plan, t: int) -> str:
    return f"Step {plan.program.step_labels[t]!r}"


_DOES = {
    Access.READ: "reads",
    Access.WRITE: "writes",
    Access.UPDATE: "updates",
    Access.SCRATCH: "uses for scratch",
}


def check_aliases(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Every alias stands in a step that binds both values, by a promise of the operator, at its address.

    What is put together from parts is a view of all of them or of none.
    """
    program = plan.program
    several: dict[int, list[Alias]] = {}
    for alias in program.aliases:
        value, source = program.values[alias.value], program.values[alias.source]
        names = (value.label, source.label)
        step = program.steps[alias.step]
        if plan.offsets[alias.value] != plan.offsets[alias.source] + alias.offset:
            detail = (
                f"{value.label!r} lies at {plan.offsets[alias.value]}, not {alias.offset} bytes behind"
                f" {source.label!r} at {plan.offsets[alias.source]}."
            )
            yield Violation("alias", names, detail)
        elif value.space != source.space:
            yield Violation("alias", names, f"{value.label!r} and {source.label!r} lie in different spaces.")
        elif not any(_promised(reference, program, step, alias)) and not _is_part(program, step, alias):
            how = "is a view of" if alias.view else "may overwrite"
            detail = (
                f"{step_name(plan, alias.step)} does not promise that {value.label!r} {how} {source.label!r}."
            )
            yield Violation("alias", names, detail)
        else:
            several.setdefault(alias.value, []).append(alias)
    for value_, aliases in several.items():
        missed = _missed(program, program.steps[aliases[0].step], aliases)
        if missed:
            label = program.values[value_].label
            detail = (
                f"{step_name(plan, aliases[0].step)} puts {label!r} together from slots that it is not a view"
                f" of: {missed}."
            )
            yield Violation("alias", (label,), detail)


def _is_part(program: Program, step: Step, alias: Alias) -> bool:
    """Whether the operator puts the value together from its source, among others, at this distance."""
    return alias.view and any(_is_of(part, step, alias) for part in _parts(program, step))


def _parts(program: Program, step: Step) -> tuple[Part, ...]:
    node = program.operations[step.operation]
    if step.phase is Phase.EXPLICIT or node.operation.type in OWN_KERNELS:
        return ()
    return lookup(node.operation.type).parts(node, step.phase is Phase.FORWARD)


def _is_of(part: Part, step: Step, alias: Alias) -> bool:
    ends = {(b.slot, b.value, b.access) for b in step.bindings}
    return (
        alias.offset == part.start - part.target_start
        and (part.source, alias.source, Access.READ) in ends
        and (part.target, alias.value, Access.WRITE) in ends
    )


def _missed(program: Program, step: Step, aliases: Sequence[Alias]) -> list[str]:
    """The slots whose parts the target of these aliases is not a view of; none where it is whole anyway."""
    slots = {b.slot for b in step.bindings if b.value == aliases[0].value and b.access is Access.WRITE}
    parts = [part for part in _parts(program, step) if part.target in slots]
    if not aliases[0].view:  # then it is the only one, which the form says
        return []
    return [part.source for part in parts if not any(_is_of(part, step, alias) for alias in aliases)]


def _promised(reference: Program, program: Program, step: Step, alias: Alias) -> Iterator[InPlace]:
    """The operator's promises for an alias in a step. What a repetition has as scratch, it writes too."""
    node = program.operations[step.operation]
    explicit = step.phase is Phase.EXPLICIT
    if node.operation.type in OWN_KERNELS or alias.offset or (explicit and alias.view):
        return
    value, source = program.values[alias.value].type, program.values[alias.source].type
    if value.elements != source.elements or value.dtype is not source.dtype:
        return
    if value.storage is not None or source.storage is not None:
        return  # no promise is about packed bytes
    # No copy comes this far, so the step is one of the reference.
    original = reference.steps[step.reference or 0]
    results = sum(b.access.defines for b in original.bindings)
    bound = {(b.slot, b.value, b.access) for b in step.bindings}
    if explicit:
        # What the reference permits, and not what the plan says of itself.
        promises = permitted(reference.operations[original.operation])
    elif alias.view:
        promises = tuple(lookup(node.operation.type).copies(node, step.phase is Phase.FORWARD))
    else:
        promises = tuple(lookup(node.operation.type).in_place(node))
    for promise in promises:
        if (
            (promise.source, alias.source, Access.READ) in bound
            and (promise.target, alias.value, Access.WRITE) in bound
            and not (promise.alone and results > 1)
        ):
            yield promise


def check_overlaps(plan: Plan, line: Line) -> Iterator[Violation]:
    """Inside a step nothing overlaps but what it leaves as it is, and what an alias of the step exempts.

    It leaves what it reads, and what it defines as a view: two views of one source may lie in one place. A
    value that it defines has one binding: of two, a promise may speak of one only.
    """
    program = plan.program
    exempt: dict[int, set[tuple[int, int]]] = {}
    views: dict[int, set[int]] = {}
    for alias in program.aliases:
        exempt.setdefault(alias.step, set()).add((alias.source, alias.value))
        if alias.view:
            views.setdefault(alias.step, set()).add(alias.value)
    low, high = line.low, line.high
    for t, step in enumerate(program.steps):
        top = -1
        for value in sorted([b.value for b in step.bindings], key=low.__getitem__):
            if low[value] < top:
                break
            top = high[value]
        else:
            continue
        left = [b.access is Access.READ or b.value in views.get(t, ()) for b in step.bindings]
        for i, j in _meetings(step.bindings, left, low, high):
            a, b = step.bindings[i], step.bindings[j]
            reader, writer = (a, b) if a.access is Access.READ else (b, a)
            pair = (reader.value, writer.value)
            if pair in exempt.get(t, ()) and _exempts(program, step, reader, writer):
                continue
            names = tuple(program.values[x.value].label for x in (a, b))
            detail = (
                f"{step_name(plan, t)} {_DOES[b.access]} {names[1]!r} (slot {b.slot}) in bytes that it"
                f" {_DOES[a.access]} as {names[0]!r} (slot {a.slot})."
            )
            yield Violation("overlap", names, detail)
            return


def _meetings(
    bindings: Sequence[Binding], left: Sequence[bool], low: Sequence[int], high: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Positions of two bindings that share bytes, by address. Without those of two values that are both left
    as they are, and of two reads of one value.

    A sweep over addresses. Who stops at the first pair that is not exempt has taken O(b log b) steps for b
    bindings, however often one value is read.
    """

    def ends_behind(i: int, address: int) -> bool:
        return high[bindings[i].value] > address

    changed, unchanged = list[int](), list[int]()
    same: dict[tuple[int, bool], int] = {}
    places = [
        (low[b.value], high[b.value], j) for j, b in enumerate(bindings) if low[b.value] < high[b.value]
    ]
    for address, _, j in sorted(places):
        value, reads = bindings[j].value, bindings[j].access is Access.READ
        changed = [i for i in changed if ends_behind(i, address)]
        if left[j]:
            others = [same.get((value, False)), None if reads else same.get((value, True))]
            meets = changed + [i for i in others if i is not None]
            unchanged.append(j)
            same.setdefault((value, reads), j)
        else:
            unchanged = [i for i in unchanged if ends_behind(i, address)]
            meets = changed + unchanged
            changed.append(j)
        for i in sorted(meets):
            yield i, j


def _exempts(program: Program, step: Step, reader: Binding, writer: Binding) -> bool:
    """Whether a promise speaks of these very slots: an alias does not exempt another slot of its source."""
    node = program.operations[step.operation]
    explicit = step.phase is Phase.EXPLICIT
    promises = permitted(node) if explicit else lookup(node.operation.type).in_place(node)
    return any((promise.source, promise.target) == (reader.slot, writer.slot) for promise in promises)


def check_levels(plan: Plan, line: Line) -> Iterator[Violation]:
    """Steps whose levels meet share bytes only if neither writes them; a channel runs one copy at a time.

    Between two memories there is one channel, whatever a plan says.
    """
    program = plan.program
    views = {(alias.step, alias.value) for alias in program.aliases if alias.view}
    active: list[int] = []
    for t, step in enumerate(program.steps):
        active = [s for s in active if program.steps[s].until >= step.level]
        if active:
            if len(active) >= plan.options.parallelism and step.reference is not None:
                together = [s for s in active if program.steps[s].reference is not None]
                if len(together) >= plan.options.parallelism:
                    detail = (
                        f"Level {step.level} has more steps than the {plan.options.parallelism} that may"
                        " run at the same time."
                    )
                    yield Violation("level", (), detail)
                    return
            for s in active:
                yield from _apart(plan, line, views, s, t)
        active.append(t)


def _apart(plan: Plan, line: Line, views: set[tuple[int, int]], s: int, t: int) -> Iterator[Violation]:
    program = plan.program
    first, second = program.steps[s], program.steps[t]
    if (
        first.reference is None
        and second.reference is None
        and channel_of(program, first) == channel_of(program, second)
    ):
        detail = f"{step_name(plan, t)} begins while {step_name(plan, s)} has the channel."
        yield Violation("level", (), detail)
    for a in first.bindings:
        for b in second.bindings:
            if max(line.low[a.value], line.low[b.value]) < min(line.high[a.value], line.high[b.value]):
                writes = (a.access.writes and (s, a.value) not in views) or (
                    b.access.writes and (t, b.value) not in views
                )
                if writes:
                    names = (program.values[a.value].label, program.values[b.value].label)
                    detail = (
                        f"{step_name(plan, t)} touches {names[1]!r} while {step_name(plan, s)} runs, which"
                        f" touches {names[0]!r} in the same bytes; one of them writes."
                    )
                    yield Violation("level", names, detail)
                    return


def check_residues(plan: Plan) -> Iterator[Violation]:
    """Repetitions of a reference step find each slot at the same address modulo 64."""
    first: dict[int, int] = {}
    program = plan.program
    for t, step in enumerate(program.steps):
        if step.reference is None:
            continue
        s = first.setdefault(step.reference, t)
        if s == t:
            continue
        for ours, theirs in zip(step.bindings, program.steps[s].bindings, strict=True):
            apart = plan.offsets[ours.value] - plan.offsets[theirs.value]
            spaces = {program.values[x.value].space for x in (ours, theirs)}
            # Bases of two spaces differ by any multiple of their alignments.
            unknown = len(spaces) > 1 and any(program.spaces[x].alignment % RESIDUE for x in spaces)
            if apart % RESIDUE or unknown:
                names = (program.values[ours.value].label, program.values[theirs.value].label)
                detail = (
                    f"{step_name(plan, t)} has slot {ours.slot} at another address modulo {RESIDUE} than"
                    f" {step_name(plan, s)}, which it repeats."
                )
                yield Violation("residue", names, detail)
                return
