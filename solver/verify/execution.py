"""Obligation *contents*: plan and reference are run on terms, and what both leave is compared.

A term stands for a value that a kernel computed: the reference step, the slot, and the terms of the slots
that the result depends on. Terms are interned, not hashed: two results have one number exactly if the same
kernel of the same operation made them from the same terms, so equal numbers mean equal bits.

    addresses   0        64       128            a write ends each value that it touches a byte of: the bytes
    before      [ term 3 ][    term 5     )      that remain of it are undefined, and no step may read them
    write           [ term 9 )
    after       [undefined[ term 9 )undefined)

A value that is cut out of another one, or put together from several, consists of pieces of terms, interned
too. Where the reference program has such values, a write leaves the bytes that it does not touch, and ranges
are read in part or together::

    before      [          term 3          )     bytes 16 to 48 of term 3 are read, or written: no change
    write             [ term 9 )
    after       [3: 0-20)[ term 9 )[3: 40-64)    bytes 0 to 16 of term 3 are still there
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from solver.graph.ops import lookup
from solver.graph.ops.base import OperationType, Part
from solver.plan import Plan
from solver.program import OWN_KERNELS, Access, Binding, EntryKind, Phase, Program, Step, expiring
from solver.reports.validation import Violation
from solver.verify.sharing import Line, step_name

__all__ = ["EMPTY", "UNDEFINED", "Bytes", "Terms", "check_contents"]

#: The contents of every tensor of 0 bytes: one term, beyond the numbers of all others.
EMPTY = 1 << 62

#: What is not a whole value: bytes that nothing has written, scratch behind its step, a copy on its way.
UNDEFINED = -1

#: A term, the first and the last of its bytes, exclusive, and how many it has.
_Piece = tuple[int, int, int, int]


class Terms:
    """All terms that occur in one proof, by number; what consists of pieces has numbers below UNDEFINED."""

    def __init__(self) -> None:
        self._count = 0
        self._numbers: dict[Hashable, int] = {}
        self._joined: dict[tuple[_Piece, ...], int] = {}
        self._pieces: list[tuple[_Piece, ...]] = []
        self._known = 0

    def new(self) -> int:
        """The number of a term that is like no other one."""
        self._count += 1
        return self._count - 1

    def number(self, key: Hashable) -> int:
        """The number of a term, the same for the same key."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self.new()
        return number

    def joined(self, pieces: Iterable[_Piece]) -> int:
        """The number of what consists of pieces of these terms, or of pieces again, one behind the other."""
        merged: list[_Piece] = []
        for number, start, stop, size in pieces:
            if number == UNDEFINED:
                return UNDEFINED
            position = 0
            for root, first, last, whole in (
                ((number, 0, size, size),) if number >= 0 else self._pieces[UNDEFINED - 1 - number]
            ):
                low, high = max(start, position), min(stop, position + last - first)
                if low < high:
                    piece = (root, first + low - position, first + high - position, whole)
                    if merged and merged[-1][0] == root and merged[-1][2] == piece[1]:
                        piece = (root, merged.pop()[1], piece[2], whole)
                    merged.append(piece)
                position += last - first
        if not merged:
            return EMPTY
        if len(merged) == 1 and merged[0][2] - merged[0][1] == merged[0][3]:
            return merged[0][0]
        key = tuple(merged)
        number = self._joined.setdefault(key, UNDEFINED - 1 - len(self._pieces))
        if UNDEFINED - 1 - number == len(self._pieces):
            self._pieces.append(key)
        return number

    def close(self) -> None:
        """From now on, a term that is put together from pieces is not a value of the reference program."""
        self._known = len(self._pieces)

    @property
    def has_pieces(self) -> bool:
        """Whether a value of the reference program consists of pieces."""
        return self._known > 0

    def is_value(self, number: int) -> bool:
        """Whether a number stands for a whole value: a term, or what a value of the reference consists of."""
        return number >= 0 or 0 <= UNDEFINED - 1 - number < self._known


class Bytes:
    """The contents of ranges on one line of addresses. Ranges do not overlap; all other bytes are undefined.

    `terms` are those of the reference program, closed. O(log n) a write or read for n ranges, and what a
    write ends.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._cuts = terms.has_pieces
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, int]] = {}

    def write(self, low: int, high: int, number: int) -> None:
        """Let the bytes ``[low, high)`` hold what has this number, or nothing.

        A view of a part writes what is there already; what it is a part of can still be read as a whole.
        """
        if low == high:
            return
        starts, ranges = self._starts, self._ranges
        held = ranges.get(low)
        if held is not None and held[0] == high and number != UNDEFINED:
            ranges[low] = (high, number)
            return
        first = bisect_left(starts, low)
        if first and ranges[starts[first - 1]][0] > low:
            if self._cuts:
                self._cut(first - 1, low)
            else:
                first -= 1
        last = first
        while last < len(starts) and starts[last] < high:
            if self._cuts and ranges[starts[last]][0] > high:
                self._cut(last, high)
            del ranges[starts[last]]
            last += 1
        if number == UNDEFINED:
            del starts[first:last]
        else:
            starts[first:last] = [low]
            ranges[low] = (high, number)

    def read(self, low: int, high: int) -> int:
        """The number of what the bytes ``[low, high)`` hold; UNDEFINED if they do not hold it all."""
        if low == high:
            return EMPTY
        held = self._ranges.get(low)
        if held is not None and held[0] == high:
            return held[1]
        if not self._cuts:
            return UNDEFINED
        pieces: list[_Piece] = []
        starts, ranges = self._starts, self._ranges
        k, position = max(bisect_right(starts, low) - 1, 0), low
        while position < high:
            if k == len(starts) or starts[k] > position:
                return UNDEFINED
            start = starts[k]
            end, number = ranges[start]
            if end <= position:
                return UNDEFINED
            pieces.append((number, position - start, min(end, high) - start, end - start))
            position, k = end, k + 1
        return self._terms.joined(pieces)

    def _cut(self, k: int, at: int) -> None:
        """Let range k end at an address inside of it, and another one begin there."""
        start = self._starts[k]
        end, number = self._ranges[start]
        size = end - start
        self._starts.insert(k + 1, at)
        self._ranges[start] = (at, self._terms.joined([(number, 0, at - start, size)]))
        self._ranges[at] = (end, self._terms.joined([(number, at - start, size, size)]))


class _Fact(NamedTuple):
    """The contents that one slot of a step gets: a copy of `copied`, pieces of `pieces`, or else a term.

    Slots are positions in the bindings of the step; what is `computed` is a term. A piece is the position of
    a slot with the first and last byte of it, exclusive, and the bytes that it has.
    """

    position: int
    copied: int | None = None
    pieces: tuple[tuple[int, int, int, int], ...] = ()
    computed: bool = True


def _facts(reference: Program) -> list[tuple[_Fact, ...]]:
    """For each step, the facts that its operator states about each of its results."""
    facts_by_step: list[tuple[_Fact, ...]] = []
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
            facts_by_step.append(alike[accesses])
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
        facts_by_step.append(tuple(facts))
    return facts_by_step


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
    pieces_by_slot: dict[str, list[tuple[int, int, int, int]]] = {}
    for part in sorted(parts, key=lambda part: part.target_start):
        i = reads.get(part.source)
        if i is not None:
            size = reference.values[step.bindings[i].value].type.nbytes
            pieces_by_slot.setdefault(part.target, []).append((i, part.start, part.start + part.nbytes, size))
    sources = Counter(part.target for part in parts)
    return {slot: tuple(pieces) for slot, pieces in pieces_by_slot.items() if len(pieces) == sources[slot]}


def check_contents(reference: Program, plan: Plan, line: Line) -> tuple[Violation, ...]:
    """Run both on terms and compare what they leave: with the steps that are due, and without them."""
    facts = _facts(reference)
    for due in (True, False) if reference.period > 1 else (True,):
        violations = tuple(_check_iteration(reference, plan, line, facts, due=due))
        if violations:
            return violations
    return ()


def _check_iteration(
    reference: Program, plan: Plan, line: Line, facts: Sequence[tuple[_Fact, ...]], *, due: bool
) -> Iterator[Violation]:
    terms = Terms()
    terms_at_end, finds, leaves = _run_reference(reference, terms, facts, due=due)
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
        terms_read = [
            memory.read(low[b.value], high[b.value]) if b.access.reads else UNDEFINED for b in bindings
        ]
        results, numbers, reads = facts[step.reference], leaves[step.reference], finds[step.reference]
        if terms_read != reads:
            torn = _torn(reference, step.reference, terms, bindings, results, terms_read)
            if torn is not None:
                yield _undefined(plan, t, torn)
                return
            if not results:
                detail = f"{step_name(plan, t)} does not find what it reads in the reference program."
                yield Violation("value", (), detail)
                return
            numbers = [
                _again(reference, step.reference, terms, fact, number, reads, terms_read)
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
    yield from _check_end(reference, plan, terms, terms_at_end, memory, line)


def _run_reference(
    reference: Program, terms: Terms, facts: Sequence[tuple[_Fact, ...]], *, due: bool
) -> tuple[dict[int, int], list[list[int]], list[list[int]]]:
    """The term that each value of the reference holds at the end; for each step the terms that it reads from
    its slots, UNDEFINED where it does not read, and those that it leaves, fact by fact. Steps that do not run
    have empty lists.

    Every step runs once, so each of its results is a term like no other.
    """
    empty = {i for i, value in enumerate(reference.values) if not value.type.nbytes}
    now = {entry.value: terms.number(("entry", entry.reference)) for entry in reference.entry}
    now |= dict.fromkeys(empty, EMPTY)
    finds: list[list[int]] = []
    leaves: list[list[int]] = []
    for step, results in zip(reference.steps, facts, strict=True):
        terms_read: list[int] = []
        numbers: list[int] = []
        if due or not step.due:
            bindings = step.bindings
            terms_read = [now[b.value] if b.access.reads else UNDEFINED for b in bindings]
            for fact in results:
                number = terms.new() if fact.computed else _copied(terms, fact, terms_read)
                numbers.append(number)
                if bindings[fact.position].value not in empty:
                    now[bindings[fact.position].value] = number
        finds.append(terms_read)
        leaves.append(numbers)
    return now, finds, leaves


def _copied(terms: Terms, fact: _Fact, terms_read: Sequence[int]) -> int:
    """The term of a slot that is a copy, or is put together from copies."""
    if fact.copied is not None:
        return terms_read[fact.copied]
    return terms.joined([(terms_read[i], start, stop, size) for i, start, stop, size in fact.pieces])


def _again(
    reference: Program,
    t: int,
    terms: Terms,
    fact: _Fact,
    number: int,
    reads: Sequence[int],
    terms_read: Sequence[int],
) -> int:
    """The term that a slot gets where a step does not read the same terms as in the reference.

    It is the reference's `number` if the slot depends on nothing that is different.
    """
    if not fact.computed:
        return _copied(terms, fact, terms_read)
    needs = _needs(reference, t, fact)
    if all(terms_read[i] == reads[i] for i in needs):
        return number
    return terms.number((t, fact.position, tuple([terms_read[i] for i in needs])))


def _torn(
    reference: Program,
    t: int,
    terms: Terms,
    bindings: Sequence[Binding],
    facts: Sequence[_Fact],
    terms_read: Sequence[int],
) -> Binding | None:
    """The first slot that a result depends on and that does not hold a whole value."""
    for fact in facts:
        if bindings[fact.position].access is not Access.SCRATCH:
            for i in _needs(reference, t, fact):
                if not terms.is_value(terms_read[i]):
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
    terms_at_end: dict[int, int],
    memory: Bytes,
    line: Line,
) -> Iterator[Violation]:
    """The reference's exits at their places; carried values where they enter; constants untouched."""
    program = plan.program

    def holds(value: int) -> int:
        return memory.read(line.low[value], line.high[value])

    for exit_ in program.exit:
        if holds(exit_.value) != terms_at_end.get(exit_.reference, UNDEFINED):
            label = program.values[exit_.value].label
            detail = (
                f"{label!r} does not hold at the end what the reference leaves in"
                f" {reference.values[exit_.reference].label!r}."
            )
            yield Violation("value", (label,), detail)
    exits = {(exit_.value, exit_.reference) for exit_ in program.exit}
    for entry in program.entry:
        label = program.values[entry.value].label
        if entry.kind is EntryKind.CARRIED and (entry.value, entry.reference) not in exits:
            yield Violation("exit", (label,), f"{label!r} carries over, but is not among the exits.")
        term_at_start = (
            terms.number(("entry", entry.reference))
            if line.low[entry.value] < line.high[entry.value]
            else EMPTY
        )
        stays = entry.kind in (EntryKind.CONSTANT, EntryKind.HELD)
        if stays and holds(entry.value) != term_at_start:
            what = "Constant" if entry.kind is EntryKind.CONSTANT else "Another program's value"
            yield Violation("value", (label,), f"{what} {label!r} is overwritten.")
