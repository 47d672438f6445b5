"""A problem as NumPy arrays over sections of time: what the solvers compute with.

A section is a stretch of steps that ends where some buffer dies and a later one is born. Steps of
one section see the same conflicts, so a section stands for the set of all buffers that touch it::

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
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.model.columns import UNPINNED, Columns
from solver.layout.model.pieces import has_holes, pieces
from solver.layout.model.problem import MAX_BYTES, Layout, LayoutProblem
from solver.layout.model.sorting import ranks

__all__ = ["FREE", "Indices", "Instance", "Integers", "layout_of", "round_up"]

Integers: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = npt.NDArray[np.int32]

#: The offset of a buffer that no pin holds.
FREE = UNPINNED

#: Buffers from which columns are worth asking for.
_FROM = 64


def round_up(value: int, granule: int) -> int:
    """The smallest multiple of `granule` that is at least `value`."""
    return -(-value // granule) * granule


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

    @classmethod
    def of(cls, problem: LayoutProblem) -> Instance:
        """O(n log n). The problem must have passed `check_problem`: every sum below fits 63 bits."""
        return cls.of_whole(problem).with_pieces(problem)

    @classmethod
    def of_whole(cls, problem: LayoutProblem) -> Instance:
        """As if there were no holes: a layout of this is one with them."""
        buffers = problem.buffers
        columns = Columns.of(problem) if len(buffers) >= _FROM else None
        if columns is not None:
            start, end, sections = _sections(columns.start, columns.end)
            padding = -columns.size % columns.alignment.min()
            size = columns.size + padding if padding.any() else columns.size
            return cls(start, end, size, columns.size, columns.alignment, columns.pin, sections)
        start, end, sections = _sections(*_steps(problem))
        exact = np.array([buffer.size for buffer in buffers], dtype=np.int64)
        alignment = np.array([buffer.alignment for buffer in buffers], dtype=np.int64)
        padding = -exact % alignment.min() if buffers else exact
        offset = np.array([FREE if b.offset is None else b.offset for b in buffers], dtype=np.int64)
        return cls(start, end, exact + padding, exact, alignment, offset, sections)

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
        return replace(self, pieces=_pieces(problem)) if has_holes(problem) else self

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
        """The same buffers over no more sections than they need: for a subset of a larger problem."""
        start, end, sections = _sections(self.start, self.end)
        return replace(self, start=start, end=end, sections=sections)


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


def _pieces(problem: LayoutProblem) -> Integers:
    """See `Instance.pieces`."""
    columns = Columns.of(problem)
    if columns is not None:
        rows = np.ascontiguousarray(columns.pieces("C"))
        rows[:, 0], rows[:, 1] = ranks(rows[:, 0], rows[:, 1])
        return rows
    held = pieces(problem)
    exact = sorted({step for p in held for step in (p.lifespan.start, p.lifespan.end)})
    rank = {step: k for k, step in enumerate(exact)}
    listed = [(rank[p.lifespan.start], rank[p.lifespan.end], p.low, p.high, p.owner) for p in held]
    return np.array(listed, np.int64).reshape(-1, 5)


def _steps(problem: LayoutProblem) -> tuple[Integers, Integers]:
    """Starts and ends, or, where they are too large for 64 bits, their ranks."""
    starts, ends = [b.lifespan.start for b in problem.buffers], [b.lifespan.end for b in problem.buffers]
    if max(ends, default=0) > MAX_BYTES:
        rank = {step: k for k, step in enumerate(sorted({*starts, *ends}))}
        starts, ends = [rank[s] for s in starts], [rank[e] for e in ends]
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def layout_of(instance: Instance, offsets: Integers) -> Layout:
    """The layout with these offsets, as exact Python integers."""
    peak = int((offsets + instance.exact).max()) if len(instance) else 0
    return Layout(tuple(offsets.tolist()), peak)
