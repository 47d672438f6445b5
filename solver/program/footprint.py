"""The memory of a program: bytes live on each level of each space.

`loads` adds everything up; `Footprint` keeps the same figures while a pass tries changes, and has the peak
after each of them. A property test holds that the two agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from solver.layout import Lifespan
from solver.program.ir import Program
from solver.program.lives import Region, regions

__all__ = ["Footprint", "loads"]


def loads(
    program: Program, holds: Mapping[int, Lifespan] | None = None, placed: tuple[Region, ...] | None = None
) -> tuple[tuple[int, ...], ...]:
    """For each space the bytes live on each level, alignment included. Linear.

    `placed` are the regions of the program, where they are known already.
    """
    change = [[0] * (program.duration + 1) for _ in program.spaces]
    for region in regions(program, holds) if placed is None else placed:
        for span in region.spans:
            change[region.space][span.start] += region.size
            change[region.space][span.end] -= region.size
    return tuple(tuple(accumulate(row))[:-1] for row in change)


class Footprint:
    """The peak of a program under edits: O(log n) an edit and O(1) a question, for n levels.

    An edit lets two regions share bytes. It returns the regions from before, for a pass that takes it back::

        footprint = Footprint(program)
        before = footprint.peak
        undo = footprint.share(value, source)
        if footprint.peak > before:
            footprint.restore(undo)
    """

    def __init__(self, program: Program, holds: Mapping[int, Lifespan] | None = None) -> None:
        self._curves = [_Curve(max(program.duration, 1)) for _ in program.spaces]
        self._alignments = [space.alignment for space in program.spaces]
        self._regions: dict[int, Region] = {}
        self._root: dict[int, int] = {}
        self._area = 0
        for region in regions(program, holds):
            self._put(region)
            self._root.update(dict.fromkeys(region.members, region.members[0]))

    @property
    def area(self) -> int:
        """Bytes times the levels on which they are held, added up."""
        return self._area

    @property
    def peak(self) -> int:
        """Bytes that the fullest level of each space holds, added up: what no arena can be smaller than."""
        return sum(curve.top for curve in self._curves)

    def region(self, value: int) -> Region:
        """The region that holds a value now."""
        return self._regions[self._root[value]]

    def share(self, value: int, source: int, offset: int = 0) -> tuple[Region, ...]:
        """Let `value` begin `offset` bytes behind `source`, with all that lies in the regions of both.

        Returns what `restore` takes. Both must lie in one space, in different regions.
        """
        inner, outer = self.region(value), self.region(source)
        start = outer.offsets[outer.members.index(source)] + offset
        start -= inner.offsets[inner.members.index(value)]
        if start < 0:
            inner, outer, start = outer, inner, -start
        members = (*outer.members, *inner.members)
        offsets = (*outer.offsets, *(start + other for other in inner.offsets))
        span = Lifespan(
            min(inner.lifespan.start, outer.lifespan.start), max(inner.lifespan.end, outer.lifespan.end)
        )
        nbytes = max(outer.nbytes, start + inner.nbytes)
        alignment = self._alignments[outer.space]
        size = -(-nbytes // alignment) * alignment
        return self._swap((outer, inner), Region(members, offsets, outer.space, nbytes, size, span))

    def restore(self, before: tuple[Region, ...]) -> None:
        """Take the last edit back."""
        self._take(self.region(before[0].members[0]))
        for region in before:
            self._put(region)
            self._root.update(dict.fromkeys(region.members, region.members[0]))

    def _swap(self, before: tuple[Region, ...], after: Region) -> tuple[Region, ...]:
        for region in before:
            self._take(region)
        self._put(after)
        self._root.update(dict.fromkeys(after.members, after.members[0]))
        return before

    def _put(self, region: Region) -> None:
        self._regions[region.members[0]] = region
        for span in region.spans:
            self._curves[region.space].add(span, region.size)
            self._area += region.size * (span.end - span.start)

    def _take(self, region: Region) -> None:
        del self._regions[region.members[0]]
        for span in region.spans:
            self._curves[region.space].add(span, -region.size)
            self._area -= region.size * (span.end - span.start)


class _Curve:
    """Numbers by level: adding to a range, and the largest of all. A segment tree without recursion.

    tops    [            9            ]      a node's top is what was added to all of its levels,
            [     9     ][     4      ]      plus the larger top below it
            [ 3 ][  9   ][ 4  ][  0   ]
    """

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._tops = [0] * (2 * levels)
        self._added = [0] * levels

    @property
    def top(self) -> int:
        return self._tops[1]

    def add(self, span: Lifespan, amount: int) -> None:
        """Add to the levels of a lifespan."""
        low, high = span.start + self._levels, span.end + self._levels
        ends = (low, high - 1)
        while low < high:
            if low & 1:
                self._apply(low, amount)
                low += 1
            if high & 1:
                high -= 1
                self._apply(high, amount)
            low, high = low >> 1, high >> 1
        for end in ends:
            node = end >> 1
            while node:
                left, right = self._tops[2 * node], self._tops[2 * node + 1]
                self._tops[node] = (max(right, left)) + self._added[node]
                node >>= 1

    def _apply(self, node: int, amount: int) -> None:
        self._tops[node] += amount
        if node < self._levels:
            self._added[node] += amount
