"""Lives: when the bytes of a value must stay, and of the buffers that several values share.

    level       0   1   2   3   4   5   6
    fed         [--------)                      entry to last touch
    activation      [----------)                first write to last touch
    scratch                 [--)                its one level
    result                      [----------     first write to the end: it is in `exit`
    weight      [---------------------------    constant and carried values: the whole iteration
    paged out   [----)         [------------    ... but for the levels before a copy brings it back

A life is computed, never believed; a target may lengthen it. It is one interval, with one exception: a value
that is there at the start and at the end of the iteration, and that a copy restores in between, lends its
bytes from its last touch to the copy. In a program with memory that only copies reach, a step that writes
all of the value restores it as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from solver.layout import Lifespan
from solver.program.dependencies import touched
from solver.program.ir import COPY, Access, EntryKind, Program

__all__ = [
    "Region",
    "alias_sets",
    "conflict_pairs",
    "conflict_sets",
    "expiring",
    "held_lives",
    "lent",
    "lives",
    "regions",
    "renewing",
    "without",
]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes that the values of an alias set share: what a layout places.

    `members` are numbers of values, the first one in front; member k begins `offsets[k]` bytes behind the
    region's beginning. `nbytes` are needed; `size` is that rounded up to the alignment of the space.
    During `lent`, parts of the lifespan in order of time, other regions may have the bytes.
    """

    members: tuple[int, ...]
    offsets: tuple[int, ...]
    space: int
    nbytes: int
    size: int
    lifespan: Lifespan
    lent: tuple[Lifespan, ...] = ()

    @property
    def spans(self) -> tuple[Lifespan, ...]:
        """When the bytes are held, as intervals in order of time."""
        return without(self.lifespan, self.lent) if self.lent else (self.lifespan,)


def without(whole: Lifespan, gone: tuple[Lifespan, ...]) -> tuple[Lifespan, ...]:
    """The remaining parts of an interval; `gone` are parts of its inside, apart and in order of time."""
    if not gone:
        return (whole,)
    starts = (whole.start, *(span.end for span in gone))
    ends = (*(span.start for span in gone), whole.end)
    return tuple(Lifespan(start, end) for start, end in zip(starts, ends, strict=True))


def lives(program: Program) -> dict[int, Lifespan]:
    """The half-open lifespan, in levels, of every value that a step touches, in the order of values. Linear.

    A value that no step touches has no life, even where the caller or the iteration before defines it;
    but for what is held for other programs.
    """
    end, rows = program.duration, touched(program)
    first = np.full(len(program.values), np.iinfo(np.int64).max)
    last = np.full(len(program.values), -1)
    levels, untils = [step.level for step in program.steps], [step.until for step in program.steps]
    np.minimum.at(first, rows.value, np.array(levels, np.int64)[rows.step])
    np.maximum.at(last, rows.value, np.array(untils, np.int64)[rows.step])
    living = np.zeros(len(program.values), bool)
    living[rows.value] = True
    living[[entry.value for entry in program.entry if entry.kind is EntryKind.HELD]] = True
    first[[entry.value for entry in program.entry]] = 0
    last[[entry.value for entry in program.entry if entry.kind is not EntryKind.FED]] = end - 1
    last[[exit_.value for exit_ in program.exit]] = end - 1
    spans = zip(np.flatnonzero(living).tolist(), first[living].tolist(), last[living].tolist(), strict=True)
    return {value: Lifespan(begin, stop + 1) for value, begin, stop in spans}


def renewing(program: Program, t: int) -> frozenset[int]:
    """The values that step t writes whole in every iteration, and of which it reads nothing."""
    step = program.steps[t]
    if step.due and program.period > 1:
        return frozenset()
    others = {b.value for b in step.bindings if b.access is not Access.WRITE}
    return frozenset(b.value for b in step.bindings if b.access is Access.WRITE) - others


def lent(program: Program) -> dict[int, tuple[Lifespan, ...]]:
    """By value the levels on which its bytes are lent: from its last touch to the step that restores it.

    Only constant and carried values lend theirs, and only those that share them with no alias, and that are
    restored in every iteration. Values that a target holds lend nothing: `regions` sees to that. Linear.
    """
    copied_to = any(not space.addressable for space in program.spaces)
    restoring = {
        t: renewing(program, t)
        for t, step in enumerate(program.steps)
        if copied_to or (step.reference is None and program.operations[step.operation].operation.type == COPY)
    }
    if not restoring:
        return {}
    shared = {value for alias in program.aliases for value in (alias.value, alias.source)}
    staying = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED} - shared
    lent_by_value: dict[int, list[Lifespan]] = {}
    # Behind level 0, where it is there already: the caller has fed others before that level.
    held = dict.fromkeys(staying & set().union(*restoring.values()), 1)
    for t, step in enumerate(program.steps):
        for binding in step.bindings:
            value = binding.value
            if value not in held:
                continue
            if value in restoring.get(t, ()) and held[value] < step.level:
                lent_by_value.setdefault(value, []).append(Lifespan(held[value], step.level))
            held[value] = max(held[value], step.until + 1)
    return {value: tuple(spans) for value, spans in lent_by_value.items()}


def alias_sets(program: Program) -> dict[int, list[tuple[int, int]]]:
    """By the first value of each alias set: its members with offsets in bytes, in order of definition.

    The first value begins where the set begins; a view of several values brings their sets together.
    """
    place: dict[int, tuple[int, int]] = {}
    members_by_first: dict[int, list[tuple[int, int]]] = {}
    for alias in sorted(program.aliases, key=lambda alias: alias.step):
        root, offset = place.get(alias.source, (alias.source, 0))
        at, members = offset + alias.offset, members_by_first.setdefault(root, [(root, 0)])
        joined = [(alias.value, at)]
        if alias.value in place:
            other, inside = place[alias.value]
            if other == root:
                continue
            joined = [(member, at - inside + shift) for member, shift in members_by_first.pop(other)]
        members += joined
        place.update((member, (root, shift)) for member, shift in joined)
        place[root] = (root, 0)
    if all(shift >= 0 for members in members_by_first.values() for _, shift in members):
        return members_by_first
    return dict(_from_the_front(members) for members in members_by_first.values())


def expiring(program: Program) -> dict[int, list[int]]:
    """By level the values whose bytes hold nothing behind it: the last value in them has had its last touch.

    A value that is lent until a copy restores it is among them at the last level before. Linear.
    """
    kept = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
    kept.update(exit_.value for exit_ in program.exit)
    sets, spans = alias_sets(program), lives(program)
    inner = {value for members in sets.values() for value, _ in members[1:]}
    values_by_level: dict[int, list[int]] = {}
    for value, span in spans.items():
        if value in sets:
            members = [member for member, _ in sets[value]]
            if kept.isdisjoint(members):
                end = max(spans[member].end for member in members) - 1
                values_by_level.setdefault(end, []).extend(members)
        elif value not in inner and value not in kept:
            values_by_level.setdefault(span.end - 1, []).append(value)
    for value, times in lent(program).items():
        for levels in times:
            values_by_level.setdefault(levels.start - 1, []).append(value)
    return values_by_level


def _from_the_front(members: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """The value that lies in front, and the members with it as the first, counted from there."""
    low = min(shift for _, shift in members)
    front = next(member for member, shift in members if shift == low)
    moved = [(member, shift - low) for member, shift in members if member != front]
    return front, [(front, 0), *moved]


def regions(program: Program, holds: Mapping[int, Lifespan] | None = None) -> tuple[Region, ...]:
    """The regions of a program, each in the place of its first value in the order of values. Linear.

    `holds` are lives that a target makes longer than the program needs.
    """
    if not holds:
        return program.once("regions", _regions_without_holds)
    return tuple(_regions(program, held_lives(program, holds), holds))


def _regions_without_holds(program: Program) -> tuple[Region, ...]:
    return tuple(_regions(program, lives(program), {}))


def held_lives(program: Program, holds: Mapping[int, Lifespan]) -> dict[int, Lifespan]:
    """The life of each value, made longer where a target holds it, in the order of values. Linear."""
    spans = lives(program)
    if not holds:
        return spans
    for value, hold in holds.items():
        span = spans.get(value, hold)
        spans[value] = Lifespan(min(span.start, hold.start), max(span.end, hold.end))
    return dict(sorted(spans.items()))


def _regions(
    program: Program, spans: Mapping[int, Lifespan], holds: Mapping[int, Lifespan]
) -> Iterator[Region]:
    sets, lending = alias_sets(program), lent(program)
    inner = {value for members in sets.values() for value, _ in members[1:]}
    alignments = [space.alignment for space in program.spaces]
    for value, span in spans.items():
        if value in inner:
            continue
        first = program.values[value]
        alignment, nbytes = alignments[first.space], first.type.nbytes
        if value not in sets:
            size = -(-nbytes // alignment) * alignment
            gone = () if value in holds else lending.get(value, ())
            yield Region((value,), (0,), first.space, nbytes, size, span, gone)
            continue
        members = sets[value]
        of = [spans[member] for member, _ in members]
        nbytes = max(offset + program.values[member].type.nbytes for member, offset in members)
        yield Region(
            tuple(member for member, _ in members),
            tuple(offset for _, offset in members),
            first.space,
            nbytes,
            -(-nbytes // alignment) * alignment,
            Lifespan(min(span.start for span in of), max(span.end for span in of)),
        )


def conflict_pairs(lifespans: Mapping[K, Lifespan]) -> Iterator[tuple[K, K]]:
    """Every pair with overlapping lifespans, once, by a sweep over starts.

    O(n log n + output): each interval meets exactly those still live when it starts.
    """
    live: list[tuple[int, int, K]] = []
    for order, (key, span) in enumerate(sorted(lifespans.items(), key=lambda item: item[1].start)):
        while live and live[0][0] <= span.start:
            heapq.heappop(live)
        for _, _, other in live:
            yield other, key
        heapq.heappush(live, (span.end, order, key))


def conflict_sets(lifespans: Mapping[K, Lifespan]) -> dict[K, frozenset[K]]:
    """The conflict set of each key: all others whose lifespan overlaps its own."""
    sets: dict[K, set[K]] = {key: set() for key in lifespans}
    for a, b in conflict_pairs(lifespans):
        sets[a].add(b)
        sets[b].add(a)
    return {key: frozenset(others) for key, others in sets.items()}
