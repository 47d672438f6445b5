"""A problem as NumPy arrays: what bounds, checks and solvers compute with.

Bounds and checks take its steps as they are, solvers its sections. A section is a stretch of steps that
ends where some buffer dies and a later one is born. Steps of one section see the same conflicts, so a
section stands for the set of all buffers that touch it::

    steps      0   1   2   3   4   5   6
    a          |=======|                        a: sections [0, 1)
    b              |===========|                b: sections [0, 2)
    c                      |===========|        c: sections [1, 2)
    sections   |-----0-----|-----1-----|

Two buffers conflict over steps exactly when they conflict over sections, and the load of a section
is the largest load of its steps. Proof: inside a section no birth follows a death, so between its last
birth and its first death all that touch it are live; and buffers that share a step share its section.
Dead time, in which no buffer lives, belongs to no section. Inverse: none is needed, offsets stay what they
are. There are at most as many sections as buffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.collector import collector_paused
from solver.layout.model.problem import MAX_BYTES, Buffer, Layout, LayoutProblem
from solver.layout.model.sorting import ranks

__all__ = [
    "FREE",
    "Indices",
    "Instance",
    "Integers",
    "arrays_kept",
    "layout_of",
    "round_up",
]

Integers: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = npt.NDArray[np.int32]
_Flags: TypeAlias = npt.NDArray[np.bool_]

#: The offset of a buffer that no pin holds.
FREE: Final = -1

#: Numbers of a hole, or of a piece.
HOLE_FIELDS: Final = 5

#: Buffers looked at in one go: their values stand in lists beside the arrays meanwhile.
AT_ONCE: Final = 4096


def round_up(value: int, granule: int) -> int:
    """The smallest multiple of `granule` that is at least `value`."""
    return -(-value // granule) * granule


def _no_rows() -> Integers:
    return np.empty((0, HOLE_FIELDS), np.int64)


@dataclass(frozen=True, slots=True)
class Instance:
    """Arrays of length n in the order of `LayoutProblem.buffers`; lifespans are half-open over sections.

    Every offset is a multiple of the smallest alignment, so a buffer takes its `exact` bytes
    rounded up to that granule from the buffers above: this is its `size` here. Only at the top of
    the arena do the `exact` bytes count.
    """

    start: Integers
    end: Integers
    size: Integers
    exact: Integers
    alignment: Integers
    offset: Integers
    sections: int
    #: Of a problem with holes, what each buffer holds and when: rows of first step, one past the last, the
    #: bytes [low, high) and the buffer, in the order of buffers and then of time. Steps are ranks among all.
    pieces: Integers | None = None
    #: Rows like these, of what is held during holes. Of `in_steps` alone, whose steps they count in.
    holes: Integers = field(default_factory=_no_rows)

    @classmethod
    def of(cls, problem: LayoutProblem) -> Instance:
        """O(n log n). The problem must have passed `check_problem`: every sum below fits 63 bits."""
        return cls.of_whole(problem).with_pieces(problem)

    @classmethod
    def of_whole(cls, problem: LayoutProblem) -> Instance:
        """As if there were no holes: a layout of this is one with them."""
        steps = cls.in_steps(problem)
        if steps is None:
            raise ValueError("a number of the problem, or their sum, does not fit 63 bits")
        return steps.compact()

    @classmethod
    def in_steps(cls, problem: LayoutProblem) -> Instance | None:
        """With each step a section of its own. None where a number or their sum does not fit 63 bits."""
        buffers, kept = problem.buffers, _KEPT.get(id(problem.buffers))
        return kept[1] if kept is not None and kept[0] is buffers else _read(buffers)

    @classmethod
    def of_arrays(
        cls,
        size: Integers,
        start: Integers,
        end: Integers,
        alignment: Integers,
        offset: Integers,
        holes: Integers | None = None,
    ) -> Instance:
        """Of one value a buffer, in bytes and steps."""
        padding = -size % alignment.min(initial=MAX_BYTES)
        rounded = size + padding if padding.any() else size
        steps = int(end.max(initial=0))
        return cls(
            start, end, rounded, size, alignment, offset, steps, None, _no_rows() if holes is None else holes
        )

    def __len__(self) -> int:
        return len(self.size)

    @property
    def pinned(self) -> bool:
        """Whether any buffer is pinned."""
        return bool((self.offset != FREE).any())

    @property
    def misaligning(self) -> bool:
        """Whether a sum of sizes can be an offset that some buffer's alignment forbids."""
        return len(self) > 0 and bool((self.size % self.alignment.max()).any())

    @property
    def unit(self) -> int:
        """The greatest common divisor of sizes and pins, and of alignments if they matter; 1 for no buffers.

        Bytes. Search may count in units of it. Proof: move every buffer of a layout that is not pinned down
        as far as its alignment lets it; nothing ends higher than before, and each bottom is the ground or the
        top of another, rounded up to its alignment; by induction a multiple of the unit, for an alignment is
        one, or divides the unit (both are powers of two then) and rounds nothing. Inverse: times the unit.
        """
        if not len(self):
            return 1
        pins = self.offset[self.offset != FREE]
        unit = math.gcd(int(np.gcd.reduce(self.size)), int(np.gcd.reduce(pins)))
        most = int(self.alignment.max())
        return math.gcd(unit, most) if unit % most else unit

    def load(self) -> Integers:
        """Bytes (of rounded sizes) live in each section."""
        change = np.zeros(self.sections + 1, dtype=np.int64)
        np.add.at(change, self.start, self.size)
        np.subtract.at(change, self.end, self.size)
        return change.cumsum()[: self.sections]

    def peak_load_seen(self) -> Integers:
        """The largest load that each buffer lives through: running maxima over 1, 2, 4 ... sections.

        O(S log S), of which one row is kept at a time.
        """
        seen, width = np.zeros(len(self), dtype=np.int64), self.end - self.start
        maxima, level = self.load(), np.frexp(width.astype(np.float64))[1] - 1
        for k in range(int(level.max(initial=-1)) + 1):
            if k:
                half = 2 ** (k - 1)
                maxima = np.maximum(maxima[:-half], maxima[half:])
            chosen = np.flatnonzero(level == k)
            left, right = self.start[chosen], self.end[chosen] - 2**k
            seen[chosen] = np.maximum(maxima[left], maxima[right])
        return seen

    @property
    def rows(self) -> Integers:
        """`pieces`; of a problem without holes, each buffer over its sections, padded."""
        if self.pieces is not None:
            return self.pieces
        return np.stack(
            (self.start, self.end, np.zeros_like(self.size), self.size, np.arange(len(self))), axis=1
        )

    def whole(self) -> Instance:
        """The same buffers without holes."""
        return replace(self, pieces=None)

    def with_pieces(self, problem: LayoutProblem) -> Instance:
        """With the pieces of the problem's holes, if it has any: 40 bytes each."""
        steps = Instance.in_steps(problem)
        if steps is None or not len(steps.holes):
            return self
        rows = np.ascontiguousarray(steps.held("C"))
        rows[:, 0], rows[:, 1] = ranks(rows[:, 0], rows[:, 1])
        return replace(self, pieces=rows)

    def before_holes(self) -> Integers:
        """Of `in_steps`: where each hole's buffer begins, or the hole before it ends."""
        stop, owner = self.holes[:, 1], self.holes[:, 4]
        after: Integers = self.start[owner]
        follows = np.flatnonzero(owner[1:] == owner[:-1]) + 1
        after[follows] = stop[follows - 1]
        return after

    def held(self, order: Literal["C", "F"] = "F") -> Integers:
        """Of `in_steps`: what is held, as rows of `pieces`; none is empty, except of a buffer of 0 bytes.

        In memory it is column after column, or (`C`) row after row.
        """
        size = self.exact
        if not len(self.holes):
            return np.stack((self.start, self.end, np.zeros_like(size), size, np.arange(len(size)))).T
        everyone = np.arange(len(size), dtype=np.int32)
        begin, stop, low, high, owner = self.holes.T
        after, last = self.before_holes(), self.start.copy()
        last[owner] = stop  # of several, the last one
        # Before each hole, each hole, and after the last: where they stand follows from how many there are.
        before = 2 * np.arange(len(owner), dtype=np.int32) + owner.astype(np.int32)
        rest = everyone + 2 * np.bincount(owner, minlength=len(size)).cumsum(dtype=np.int32)
        held: tuple[tuple[npt.NDArray[np.int32], _Flags, tuple[npt.NDArray[Any] | None, ...]], ...] = (
            (before, after < begin, (after, begin, None, size[owner], owner)),
            (before + 1, low < high, (begin, stop, low, high, owner)),
            (rest, last < self.end, (last, self.end, None, size, everyone)),
        )
        place = np.zeros(len(size) + 2 * len(owner), np.int32)
        for at, some, _ in held:
            place[at] = some
        place.cumsum(out=place)
        made = np.empty((int(place[-1]), HOLE_FIELDS), np.int64, order)
        for at, some, values in held:
            to = place[at[some]] - 1
            for column, value in zip(made.T, values, strict=True):
                column[to] = 0 if value is None else value[some]
        return made

    def alone(self) -> Instance:
        """Of `in_steps`: each piece a buffer of its own, with the smallest alignment if all can keep it."""
        if not len(self.holes):
            return self
        start, end, low, high, _ = self.held().T
        granule = int(self.alignment.min())
        granule = 1 if bool((low % granule).any()) else granule
        same, free = (np.broadcast_to(np.int64(value), len(start)) for value in (granule, FREE))
        return Instance.of_arrays(high - low, start, end, same, free)

    def degree(self) -> Integers:
        """How many buffers each one conflicts with."""
        born_before = np.bincount(self.start + 1, minlength=self.sections + 1).cumsum()
        dead_before = np.bincount(self.end, minlength=self.sections + 1).cumsum()
        others: Integers = born_before[self.end] - dead_before[self.start] - 1
        return others

    def subset(self, members: Integers) -> Instance:
        """Fewer buffers over the same sections."""
        return Instance(
            start=self.start[members],
            end=self.end[members],
            size=self.size[members],
            exact=self.exact[members],
            alignment=self.alignment[members],
            offset=self.offset[members],
            sections=self.sections,
        )

    def compact(self) -> Instance:
        """The same buffers over no more sections than they need, without holes."""
        start, end, sections = _sections(self.start, self.end)
        return replace(self, start=start, end=end, sections=sections, holes=_no_rows())


def _sections(start: Integers, end: Integers) -> tuple[Integers, Integers, int]:
    """First section and one past the last of each buffer, and the number of sections."""
    if not len(start):
        return start, end, 0
    start, end = ranks(start, end)
    born = np.zeros(int(end.max()) + 1, bool)
    born[start] = True
    # A birth begins a section where something has died since the birth before.
    births = np.flatnonzero(born)
    gone = np.bincount(end).cumsum()[births]
    section = np.cumsum(np.diff(gone, prepend=gone[:1]) > 0)
    # Of each step, the section of the last birth until then.
    at = section[born.cumsum() - 1]
    end -= 1
    return at[start], at[end] + 1, int(section[-1]) + 1


def _read(buffers: tuple[Buffer, ...]) -> Instance | None:
    """The arrays of buffers, if they fit."""
    columns = [np.empty(len(buffers), np.int64) for _ in range(5)]
    holes, total, highest = [_no_rows()], 0, 0
    for first in range(0, len(buffers), AT_ONCE):
        some = buffers[first : first + AT_ONCE]
        spans, lent = [b.lifespan for b in some], [hole for b in some for hole in b.holes]
        sizes, alignments = [b.size for b in some], [b.alignment for b in some]
        starts, ends = [span.start for span in spans], [span.end for span in spans]
        pins = [b.offset for b in some if b.offset is not None]
        begins, stops = [hole.lifespan.start for hole in lent], [hole.lifespan.end for hole in lent]
        lows, highs = [hole.low for hole in lent], [hole.high for hole in lent]
        for numbers in filter(None, (sizes, starts, ends, alignments, pins, begins, stops, lows, highs)):
            if not {int}.issuperset(map(type, numbers)) or min(numbers) < 0 or max(numbers) > MAX_BYTES:
                return None
        if min(alignments) < 1:
            return None
        total += sum(sizes) + sum(alignments)
        highest = max(highest, *pins) if pins else highest
        pinned = [FREE if b.offset is None else b.offset for b in some] if pins else FREE
        for column, values in zip(columns, (sizes, starts, ends, alignments, pinned), strict=True):
            column[first : first + AT_ONCE] = values
        if lent:
            owners = np.repeat(np.arange(first, first + len(some)), [len(b.holes) for b in some])
            holes.append(np.array((begins, stops, lows, highs, owners), np.int64).T)
    if total + highest > MAX_BYTES:
        return None
    size, start, end, alignment, pin = columns
    return Instance.of_arrays(size, start, end, _once(alignment), _once(pin), np.concatenate(holes))


def _once(values: Integers) -> Integers:
    """The same values; where they are all one, in the memory of one, and read-only."""
    once: Integers = np.broadcast_to(values[:1].copy(), values.shape)
    return values if bool((values != once).any()) else once


#: Buffers and their arrays, by the identity of the tuple.
_KEPT: Final[dict[int, tuple[tuple[Buffer, ...], Instance | None]]] = {}


@contextmanager
def arrays_kept(problem: LayoutProblem) -> Iterator[None]:
    """Within it, arrays of these buffers are made once: .5 s for a million, 40 bytes a buffer."""
    key, before = id(problem.buffers), _KEPT.get(id(problem.buffers))
    if before is not None and before[0] is problem.buffers:
        yield
        return
    _KEPT[key] = (problem.buffers, Instance.in_steps(problem))
    try:
        yield
    finally:
        _KEPT.pop(key, None)  # another thread may have solved the same buffers


@collector_paused()
def layout_of(instance: Instance, offsets: Integers) -> Layout:
    """The layout with these offsets, as exact Python integers."""
    peak = int((offsets + instance.exact).max()) if len(instance) else 0
    return Layout(tuple(offsets.tolist()), peak)
