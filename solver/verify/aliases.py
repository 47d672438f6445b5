"""Whether what shares bytes inside a step may: what operators promise, and what overlaps beside that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solver.graph.ops import lookup
from solver.graph.ops.base import InPlace, Part
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import OWN_KERNELS, Access, Alias, Binding, Phase, Program, Step, permitted
from solver.verify.addresses import Line, step_name

__all__ = ["check_aliases", "check_overlaps"]

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
            yield Violation(
                "alias",
                names,
                f"{value.label!r} lies at {plan.offsets[alias.value]}, not {alias.offset} bytes behind"
                f" {source.label!r} at {plan.offsets[alias.source]}.",
            )
        elif value.space != source.space:
            yield Violation("alias", names, f"{value.label!r} and {source.label!r} lie in different spaces.")
        elif not any(_promised(reference, program, step, alias)) and not _is_part(program, step, alias):
            how = "is a view of" if alias.view else "may overwrite"
            yield Violation(
                "alias",
                names,
                f"{step_name(plan, alias.step)} does not promise that {value.label!r} {how}"
                f" {source.label!r}.",
            )
        else:
            several.setdefault(alias.value, []).append(alias)
    for value_, aliases in several.items():
        missed = _missed(program, program.steps[aliases[0].step], aliases)
        if missed:
            label = program.values[value_].label
            yield Violation(
                "alias",
                (label,),
                f"{step_name(plan, aliases[0].step)} puts {label!r} together from slots that it is not a view"
                f" of: {missed}.",
            )


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
            yield Violation(
                "overlap",
                names,
                f"{step_name(plan, t)} {_DOES[b.access]} {names[1]!r} (slot {b.slot}) in bytes that it"
                f" {_DOES[a.access]} as {names[0]!r} (slot {a.slot}).",
            )
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
