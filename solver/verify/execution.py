"""Symbolic execution: a plan and its reference run on terms, and what both leave is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from solver.graph.ops import lookup
from solver.graph.ops.base import OperationType, Part
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import OWN_KERNELS, Access, Binding, EntryKind, Phase, Program, Step, expiring
from solver.verify.addresses import Line, step_name
from solver.verify.contents import EMPTY, UNDEFINED, Bytes, Terms

__all__ = ["check_contents"]


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
    plain: dict[str, bool] = dict.fromkeys(OWN_KERNELS, True)
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
    if step.phase is not Phase.EXPLICIT and node.operation.type not in OWN_KERNELS:
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


def check_contents(reference: Program, plan: Plan, line: Line) -> tuple[Violation, ...]:
    """Run both on terms and compare what they leave: with the steps that are due, and without them."""
    facts = _facts(reference)
    for due in (True, False) if reference.period > 1 else (True,):
        found = tuple(_check_iteration(reference, plan, line, facts, due=due))
        if found:
            return found
    return ()


def _check_iteration(
    reference: Program, plan: Plan, line: Line, facts: Sequence[tuple[_Fact, ...]], *, due: bool
) -> Iterator[Violation]:
    terms = Terms()
    wanted, finds, leaves = _run_reference(reference, terms, facts, due=due)
    program, low, high = plan.program, line.low, line.high
    terms.close()
    # What is there at the start lies apart, which the form says: in order of address, it is written behind.
    memory = Bytes(terms)
    for entry in sorted(program.entry, key=lambda entry: low[entry.value]):
        memory.write(low[entry.value], high[entry.value], terms.number(("entry", entry.reference)))
    pending: list[tuple[int, int, int, int]] = []
    expired, level = expiring(program), 0
    for t, step in enumerate(program.steps):
        if pending:
            for _, start, end, number in [copy for copy in pending if copy[0] < step.level]:
                memory.write(start, end, number)
            pending = [copy for copy in pending if copy[0] >= step.level]
        while level < step.level:
            for value in expired.get(level, ()):
                memory.write(low[value], high[value], UNDEFINED)
            level += 1
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
        results, numbers, reads = facts[step.reference], leaves[step.reference], finds[step.reference]
        if found != reads:
            torn = _torn(reference, step.reference, terms, bindings, results, found)
            if torn is not None:
                yield _undefined(plan, t, torn)
                return
            if not results:
                yield Violation(
                    "value", (), f"{step_name(plan, t)} does not find what it reads in the reference program."
                )
                return
            numbers = [
                _again(reference, step.reference, terms, fact, number, reads, found)
                for fact, number in zip(results, numbers, strict=True)
            ]
        for binding in bindings:
            if binding.access is Access.SCRATCH:
                memory.write(low[binding.value], high[binding.value], UNDEFINED)
        for fact, number in zip(results, numbers, strict=True):
            binding = bindings[fact.position]
            if binding.access is not Access.SCRATCH:
                memory.write(low[binding.value], high[binding.value], number)
    for _, start, end, number in pending:
        memory.write(start, end, number)
    yield from _check_end(reference, plan, terms, wanted, memory, line)


def _run_reference(
    reference: Program, terms: Terms, facts: Sequence[tuple[_Fact, ...]], *, due: bool
) -> tuple[dict[int, int], list[list[int]], list[list[int]]]:
    """What each value of the reference holds at the end; for each step what it finds in its slots, UNDEFINED
    where it does not look, and what it leaves, fact by fact. Steps that do not run have empty lists.

    Every step runs once, so each of its results is a term like no other.
    """
    empty = {i for i, value in enumerate(reference.values) if not value.type.nbytes}
    now = {entry.value: terms.number(("entry", entry.reference)) for entry in reference.entry}
    now |= dict.fromkeys(empty, EMPTY)
    finds: list[list[int]] = []
    leaves: list[list[int]] = []
    for step, results in zip(reference.steps, facts, strict=True):
        found: list[int] = []
        numbers: list[int] = []
        if due or not step.due:
            bindings = step.bindings
            found = [now[b.value] if b.access.reads else UNDEFINED for b in bindings]
            for fact in results:
                number = terms.new() if fact.computed else _copied(terms, fact, found)
                numbers.append(number)
                if bindings[fact.position].value not in empty:
                    now[bindings[fact.position].value] = number
        finds.append(found)
        leaves.append(numbers)
    return now, finds, leaves


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
        f"{step_name(plan, t)} reads {label!r} (slot {binding.slot}), but its bytes"
        f" [{plan.offsets[binding.value]}, ...) do not hold a whole value.",
    )


def _check_end(
    reference: Program,
    plan: Plan,
    terms: Terms,
    wanted: dict[int, int],
    memory: Bytes,
    line: Line,
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
        given = (
            terms.number(("entry", entry.reference))
            if line.low[entry.value] < line.high[entry.value]
            else EMPTY
        )
        if entry.kind is EntryKind.CONSTANT and holds(entry.value) != given:
            yield Violation("value", (label,), f"Constant {label!r} is overwritten.")
