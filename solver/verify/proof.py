"""The symbolic proof: a plan run on terms instead of numbers, in the arena's bytes, beside its reference.

    reference    each value has bytes of its own            x ─► t1     w ─► t2     conv(t1, t2) ─► t3
    plan         bytes [0, 64) hold t1, [64, 128) t2 ...    step 3 reads [0, 64): t1, [64, 128): t2
                                                            writes [128, 192): t3, and ends what was there

What the reference leaves at the end of an iteration, the plan must leave at the places where it says so; then
the next iteration begins alike, and by induction all of them do. No pass is known here: whatever order,
level, alias, repetition or copy a plan has, it is judged by what its bytes hold.

Validation of the result instead of the optimizer, as for register allocation: Rideau and Leroy, *Validating
register allocation and spilling*, CC 2010; the checker of Cranelift's regalloc2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from solver.graph.ops import lookup
from solver.graph.ops.base import InPlace, OperationType, Part
from solver.layout import Lifespan
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import (
    ACCUMULATE,
    CLIP,
    CONVERT,
    COPY,
    SEED,
    UPDATE,
    Access,
    Alias,
    Binding,
    EntryKind,
    Phase,
    Program,
    Step,
    permitted,
)
from solver.schedules.costs import step_costs
from solver.verify.contents import UNDEFINED, Bytes, Terms
from solver.verify.cost import check_cost_bound, check_recomputation
from solver.verify.figures import check_figures
from solver.verify.form import check_form

__all__ = ["prove"]

#: Kernels of the program's own steps: all that they read decides all that they write.
_OWN = frozenset({SEED, ACCUMULATE, CLIP, UPDATE, COPY, CONVERT})

#: SIMD kernels may round differently at another address modulo the widest vector register, in bytes.
_RESIDUE = 64

_DOES = {
    Access.READ: "reads",
    Access.WRITE: "writes",
    Access.UPDATE: "updates",
    Access.SCRATCH: "uses for scratch",
}


def prove(
    reference: Program, plan: Plan, holds: Mapping[int, Lifespan] | None = None
) -> tuple[Violation, ...]:
    """Everything that keeps `plan` from computing what `reference` computes, none for a right one.

    A plan that passes leaves, after each iteration, the bits of the reference in every exit, on a machine
    whose kernels keep the facts that operators state, with the threads and libraries of the reference; and
    its figures are those of its own buffers (`check_figures`). `holds` are the lives that the target makes
    longer; where they are given, the plan's must be the same, for longer lives raise its bounds.

    Rules: ``form``, ``place``, ``entry``, ``exit``, ``initial``, ``period``, ``step``, ``hold``, ``alias``,
    ``overlap``, ``level``, ``residue``, ``undefined``, ``value``; the first that fails ends the proof.
    Figures come last, with the rules of `check_figures`, ``record`` and ``cost``.
    O(b log r) for b bindings and r ranges of bytes.
    """
    found = tuple(check_form(reference, plan)) or tuple(_check_steps(reference, plan))
    if found:
        return found
    if holds is not None and dict(holds) != dict(plan.holds):
        return (Violation("hold", (), "The plan holds values longer than its target does, or not as long."),)
    line = _Line(plan)
    # What an alias exempts is asked for only where every alias is a promise of an operator.
    found = tuple(_check_aliases(reference, plan)) or (
        *_check_overlaps(plan, line),
        *_check_levels(plan, line),
        *_check_residues(plan),
    )
    if found:
        return found
    facts = _facts(reference)
    for due in (True, False) if reference.period > 1 else (True,):
        found = tuple(_check_contents(reference, plan, line, facts, due=due))
        if found:
            return found
    return (*check_figures(plan), *_check_cost(reference, plan))


def _check_cost(reference: Program, plan: Plan) -> Iterator[Violation]:
    """What is claimed of the cost of recomputation, where anything is."""
    if plan.cost_bound is None and all(record.name != "recompute" for record in plan.records):
        return
    cost = step_costs(reference, plan.options.costs)
    yield from check_recomputation(reference, plan, cost)
    if plan.cost_bound is not None:
        shared = plan.options.in_place or bool(plan.program.aliases)
        yield from check_cost_bound(reference, plan.cost_bound, cost, in_place=shared)


class _Line:
    """All spaces one behind the other on one line of addresses: places are then plain ranges."""

    def __init__(self, plan: Plan) -> None:
        program = plan.program
        base = [0]
        for size in plan.sizes:
            base.append(base[-1] + max(size, 0) + _RESIDUE)
        self.low = [
            base[value.space] + offset for value, offset in zip(program.values, plan.offsets, strict=True)
        ]
        self.high = [low + value.type.nbytes for low, value in zip(self.low, program.values, strict=True)]


def _name(plan: Plan, t: int) -> str:
    return f"Step {plan.program.step_labels[t]!r}"


# --------------------------------------------------------------------- steps and what they may touch


def _check_steps(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Every step is a copy, or equals the reference step that it names."""
    program = plan.program
    same_values = program.values is reference.values
    known: dict[tuple[int, int], bool] = {}
    for t, step in enumerate(program.steps):
        node = program.operations[step.operation]
        if step.reference is None:
            if node.operation.type != COPY or [b.access for b in step.bindings] != [
                Access.READ,
                Access.WRITE,
            ]:
                yield Violation("step", (), f"{_name(plan, t)} is neither a copy nor a reference step.")
                return
            source, target = (program.values[binding.value] for binding in step.bindings)
            if source.type != target.type:
                yield Violation(
                    "step",
                    (source.label, target.label),
                    f"{_name(plan, t)} copies {source.type} to {target.type}.",
                )
            continue
        wanted = reference.steps[step.reference]
        if step is wanted and same_values and program.operations is reference.operations:
            continue
        original = reference.operations[wanted.operation]
        pair = (step.operation, wanted.operation)
        if node is not original and pair not in known:
            known[pair] = node == original
        alike = step.phase is wanted.phase and step.part == wanted.part and step.due == wanted.due
        if not alike or not (node is original or known[pair]):
            yield Violation(
                "step",
                (),
                f"{_name(plan, t)} says that it is step {reference.step_labels[step.reference]!r} of the"
                " reference; its kernel, attributes or condition differ.",
            )
            return
        if (step.bindings is wanted.bindings or step.bindings == wanted.bindings) and same_values:
            continue
        detail = _binds_alike(reference, program, wanted, step)
        if detail:
            yield Violation("step", (), f"{_name(plan, t)} {detail}")
            return


def _binds_alike(reference: Program, program: Program, wanted: Step, step: Step) -> str:
    """What is wrong with the bindings of a step, beside those of its reference step; empty if nothing.

    A result may go to scratch, where a repetition must not define it again.
    """
    if [b.slot for b in step.bindings] != [b.slot for b in wanted.bindings]:
        return f"binds the slots {[b.slot for b in step.bindings]}, not {[b.slot for b in wanted.bindings]}."
    for ours, theirs in zip(step.bindings, wanted.bindings, strict=True):
        dropped = ours.access is Access.SCRATCH and theirs.access.writes
        if ours.access is not theirs.access and not dropped:
            return f"has {ours.access.value} access to slot {ours.slot}, not {theirs.access.value}."
        found, type_ = program.values[ours.value].type, reference.values[theirs.value].type
        if found is not type_ and found != type_:
            return f"binds {found} to slot {ours.slot}, not {type_}."
    return ""


class _Fact(NamedTuple):
    """What one slot of a step gets: a copy of `copied`, pieces of `pieces`, or else a term.

    Slots are positions in the bindings of the step; what is `computed` is a term. A piece is the position of
    a slot with the first and last byte of it, exclusive, and the bytes that it has.
    """

    position: int
    copied: int | None = None
    pieces: tuple[tuple[int, int, int, int], ...] = ()
    computed: bool = True


def _facts(reference: Program) -> list[tuple[_Fact, ...]]:
    """What the operators say about each result of each step."""
    found: list[tuple[_Fact, ...]] = []
    # Where an operator copies nothing, its steps are alike if their bindings have the same access.
    plain: dict[str, bool] = dict.fromkeys(_OWN, True)
    alike: dict[tuple[Access, ...], tuple[_Fact, ...]] = {}
    for step in reference.steps:
        bindings = step.bindings
        node = reference.operations[step.operation]
        type_ = node.operation.type
        if step.phase is not Phase.EXPLICIT and type_ not in plain:
            plain[type_] = _copies_nothing(type_)
        if step.phase is Phase.EXPLICIT or plain[type_]:
            accesses = tuple([b.access for b in bindings])
            if accesses not in alike:
                alike[accesses] = tuple([_Fact(i) for i, access in enumerate(accesses) if access.defines])
            found.append(alike[accesses])
            continue
        kind, forward = lookup(type_), step.phase is Phase.FORWARD
        promises, parts = kind.copies(node, forward), kind.parts(node, forward)
        copies: dict[str, int | None] = {}
        if promises:
            slots = {b.slot: i for i, b in enumerate(bindings) if b.access.reads}
            copies = {promise.target: slots.get(promise.source) for promise in promises}
        pieces = _pieces(reference, step, parts) if parts else {}
        facts = []
        for i, binding in enumerate(bindings):
            if not binding.access.defines:
                continue
            source, of = copies.get(binding.slot), pieces.get(binding.slot, ())
            facts.append(_Fact(i, source, of, source is None and not of))
        found.append(tuple(facts))
    return found


def _copies_nothing(type_: str) -> bool:
    """Whether an operator promises no copy and no parts."""
    kind = type(lookup(type_))
    return (
        kind.copies is OperationType.copies
        and kind.in_place is OperationType.in_place
        and kind.parts is OperationType.parts
    )


def _needs(reference: Program, t: int, fact: _Fact) -> tuple[int, ...]:
    """The slots that a result depends on: asked only where a step does not find what the reference finds."""
    if fact.pieces:
        return tuple([piece[0] for piece in fact.pieces])
    step = reference.steps[t]
    node = reference.operations[step.operation]
    ignored: frozenset[str] = frozenset()
    if step.phase is not Phase.EXPLICIT and node.operation.type not in _OWN:
        kind, forward = lookup(node.operation.type), step.phase is Phase.FORWARD
        ignored = kind.ignores(node, forward, step.bindings[fact.position].slot)
    return tuple([i for i, b in enumerate(step.bindings) if b.access.reads and b.slot not in ignored])


def _pieces(
    reference: Program, step: Step, parts: Sequence[Part]
) -> dict[str, tuple[tuple[int, int, int, int], ...]]:
    """By slot, what it is put together from, in order; without the slots whose sources are not all there."""
    reads = {b.slot: i for i, b in enumerate(step.bindings) if b.access is Access.READ}
    found: dict[str, list[tuple[int, int, int, int]]] = {}
    for part in sorted(parts, key=lambda part: part.target_start):
        i = reads.get(part.source)
        if i is not None:
            size = reference.values[step.bindings[i].value].type.nbytes
            found.setdefault(part.target, []).append((i, part.start, part.start + part.nbytes, size))
    sources = Counter(part.target for part in parts)
    return {slot: tuple(pieces) for slot, pieces in found.items() if len(pieces) == sources[slot]}


def _check_aliases(reference: Program, plan: Plan) -> Iterator[Violation]:
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
                f"{_name(plan, alias.step)} does not promise that {value.label!r} {how} {source.label!r}.",
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
                f"{_name(plan, aliases[0].step)} puts {label!r} together from slots that it is not a view of:"
                f" {missed}.",
            )


def _is_part(program: Program, step: Step, alias: Alias) -> bool:
    """Whether the operator puts the value together from its source, among others, at this distance."""
    return alias.view and any(_is_of(part, step, alias) for part in _parts(program, step))


def _parts(program: Program, step: Step) -> tuple[Part, ...]:
    node = program.operations[step.operation]
    if step.phase is Phase.EXPLICIT or node.operation.type in _OWN:
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
    if node.operation.type in _OWN or alias.offset or (explicit and alias.view):
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


def _check_overlaps(plan: Plan, line: _Line) -> Iterator[Violation]:
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
                f"{_name(plan, t)} {_DOES[b.access]} {names[1]!r} (slot {b.slot}) in bytes that it"
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
    places = [(low[b.value], high[b.value], j) for j, b in enumerate(bindings)]
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


# ------------------------------------------------------------------------------- levels and addresses


def _check_levels(plan: Plan, line: _Line) -> Iterator[Violation]:
    """Steps whose levels meet share bytes only if neither writes them; a channel runs one copy at a time."""
    program = plan.program
    views = {(alias.step, alias.value) for alias in program.aliases if alias.view}
    active: list[int] = []
    for t, step in enumerate(program.steps):
        active = [s for s in active if program.steps[s].until >= step.level]
        if active:
            if len(active) >= plan.options.parallelism and step.reference is not None:
                together = [s for s in active if program.steps[s].reference is not None]
                if len(together) >= plan.options.parallelism:
                    yield Violation(
                        "level",
                        (),
                        f"Level {step.level} has more steps than the {plan.options.parallelism} that may"
                        " run at the same time.",
                    )
                    return
            for s in active:
                yield from _apart(plan, line, views, s, t)
        active.append(t)


def _apart(plan: Plan, line: _Line, views: set[tuple[int, int]], s: int, t: int) -> Iterator[Violation]:
    program = plan.program
    first, second = program.steps[s], program.steps[t]
    if (
        first.reference is None
        and second.reference is None
        and _channel(program, first) == _channel(program, second)
    ):
        yield Violation("level", (), f"{_name(plan, t)} begins while {_name(plan, s)} has the channel.")
    for a in first.bindings:
        for b in second.bindings:
            if line.low[a.value] < line.high[b.value] and line.low[b.value] < line.high[a.value]:
                writes = (a.access.writes and (s, a.value) not in views) or (
                    b.access.writes and (t, b.value) not in views
                )
                if writes:
                    names = (program.values[a.value].label, program.values[b.value].label)
                    yield Violation(
                        "level",
                        names,
                        f"{_name(plan, t)} touches {names[1]!r} while {_name(plan, s)} runs, which touches"
                        f" {names[0]!r} in the same bytes; one of them writes.",
                    )
                    return


def _channel(program: Program, step: Step) -> object:
    return program.operations[step.operation].attributes.get("channel", 0)


def _check_residues(plan: Plan) -> Iterator[Violation]:
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
            unknown = len(spaces) > 1 and any(program.spaces[x].alignment % _RESIDUE for x in spaces)
            if apart % _RESIDUE or unknown:
                names = (program.values[ours.value].label, program.values[theirs.value].label)
                yield Violation(
                    "residue",
                    names,
                    f"{_name(plan, t)} has slot {ours.slot} at another address modulo {_RESIDUE} than"
                    f" {_name(plan, s)}, which it repeats.",
                )
                return


# -------------------------------------------------------------------------------------- what bytes hold


def _check_contents(
    reference: Program, plan: Plan, line: _Line, facts: Sequence[tuple[_Fact, ...]], *, due: bool
) -> Iterator[Violation]:
    """Run both on terms, with the due steps or without, and compare what they leave."""
    terms = Terms()
    wanted, ran = _run_reference(reference, terms, facts, due=due)
    program, low, high = plan.program, line.low, line.high
    terms.close()
    # What is there at the start lies apart, which the form says: in order of address, it is written behind.
    memory = Bytes(terms)
    for entry in sorted(program.entry, key=lambda entry: low[entry.value]):
        memory.write(low[entry.value], high[entry.value], terms.number(("entry", entry.reference)))
    pending: list[tuple[int, int, int, int]] = []
    for t, step in enumerate(program.steps):
        if pending:
            for _, start, end, number in [copy for copy in pending if copy[0] < step.level]:
                memory.write(start, end, number)
            pending = [copy for copy in pending if copy[0] >= step.level]
        if step.due and not due:
            continue
        bindings = step.bindings
        if step.reference is None:
            source, target = bindings
            number = memory.read(low[source.value], high[source.value])
            if not terms.is_value(number):
                yield _undefined(plan, t, source)
                return
            if step.until > step.level:
                memory.write(low[target.value], high[target.value], UNDEFINED)
                pending.append((step.until, low[target.value], high[target.value], number))
            else:
                memory.write(low[target.value], high[target.value], number)
            continue
        found = [memory.read(low[b.value], high[b.value]) if b.access.reads else UNDEFINED for b in bindings]
        reads, results = ran[step.reference]
        if found != reads:
            torn = _torn(reference, step.reference, terms, bindings, facts[step.reference], found)
            if torn is not None:
                yield _undefined(plan, t, torn)
                return
            if not results:
                yield Violation(
                    "value", (), f"{_name(plan, t)} does not find what it reads in the reference program."
                )
                return
            results = [
                (fact, _again(reference, step.reference, terms, fact, number, reads, found))
                for fact, number in results
            ]
        for binding in bindings:
            if binding.access is Access.SCRATCH:
                memory.write(low[binding.value], high[binding.value], UNDEFINED)
        for fact, number in results:
            binding = bindings[fact.position]
            if binding.access is not Access.SCRATCH:
                memory.write(low[binding.value], high[binding.value], number)
    for _, start, end, number in pending:
        memory.write(start, end, number)
    yield from _check_end(reference, plan, terms, wanted, memory, line)


class _Ran(NamedTuple):
    """What a reference step finds in its slots, UNDEFINED where it does not look, and what it leaves."""

    reads: list[int]
    results: list[tuple[_Fact, int]]


def _run_reference(
    reference: Program, terms: Terms, facts: Sequence[tuple[_Fact, ...]], *, due: bool
) -> tuple[dict[int, int], dict[int, _Ran]]:
    """What each value of the reference holds at the end, and what each step finds and leaves.

    Every step runs once, so each of its results is a term like no other.
    """
    now = {entry.value: terms.number(("entry", entry.reference)) for entry in reference.entry}
    ran: dict[int, _Ran] = {}
    for t, step in enumerate(reference.steps):
        if step.due and not due:
            continue
        bindings = step.bindings
        found = [now[b.value] if b.access.reads else UNDEFINED for b in bindings]
        results = []
        for fact in facts[t]:
            number = terms.new() if fact.computed else _copied(terms, fact, found)
            results.append((fact, number))
            now[bindings[fact.position].value] = number
        ran[t] = _Ran(found, results)
    return now, ran


def _copied(terms: Terms, fact: _Fact, found: Sequence[int]) -> int:
    """What a slot gets that is a copy, or is put together from copies."""
    if fact.copied is not None:
        return found[fact.copied]
    return terms.joined([(found[i], start, stop, size) for i, start, stop, size in fact.pieces])


def _again(
    reference: Program,
    t: int,
    terms: Terms,
    fact: _Fact,
    number: int,
    reads: Sequence[int],
    found: Sequence[int],
) -> int:
    """What a slot gets where a step does not find all that it reads in the reference.

    It is the reference's `number` if the slot depends on nothing that is different.
    """
    if not fact.computed:
        return _copied(terms, fact, found)
    needs = _needs(reference, t, fact)
    if all(found[i] == reads[i] for i in needs):
        return number
    return terms.number((t, fact.position, tuple([found[i] for i in needs])))


def _torn(
    reference: Program,
    t: int,
    terms: Terms,
    bindings: Sequence[Binding],
    facts: Sequence[_Fact],
    found: Sequence[int],
) -> Binding | None:
    """The first slot that a result depends on and that does not hold a whole value."""
    for fact in facts:
        if bindings[fact.position].access is not Access.SCRATCH:
            for i in _needs(reference, t, fact):
                if not terms.is_value(found[i]):
                    return bindings[i]
    return None


def _undefined(plan: Plan, t: int, binding: Binding) -> Violation:
    label = plan.program.values[binding.value].label
    return Violation(
        "undefined",
        (label,),
        f"{_name(plan, t)} reads {label!r} (slot {binding.slot}), but its bytes"
        f" [{plan.offsets[binding.value]}, ...) do not hold a whole value.",
    )


def _check_end(
    reference: Program,
    plan: Plan,
    terms: Terms,
    wanted: dict[int, int],
    memory: Bytes,
    line: _Line,
) -> Iterator[Violation]:
    """The reference's exits at their places; carried values where they enter; constants untouched."""
    program = plan.program

    def holds(value: int) -> int:
        return memory.read(line.low[value], line.high[value])

    for exit_ in program.exit:
        if holds(exit_.value) != wanted.get(exit_.reference, UNDEFINED):
            label = program.values[exit_.value].label
            yield Violation(
                "value",
                (label,),
                f"{label!r} does not hold at the end what the reference leaves in"
                f" {reference.values[exit_.reference].label!r}.",
            )
    exits = {(exit_.value, exit_.reference) for exit_ in program.exit}
    for entry in program.entry:
        label = program.values[entry.value].label
        if entry.kind is EntryKind.CARRIED and (entry.value, entry.reference) not in exits:
            yield Violation("exit", (label,), f"{label!r} carries over, but is not among the exits.")
        given = terms.number(("entry", entry.reference))
        if entry.kind is EntryKind.CONSTANT and holds(entry.value) != given:
            yield Violation("value", (label,), f"Constant {label!r} is overwritten.")
