"""Is this a problem, and is this a layout of it? Shares no code with the solvers.

Comparing neighbours in the order of offsets is not enough to find every overlap: a long buffer may
cover several others. The sweep below asks every live interval, through a segment tree over the
offsets, and reports each conflicting pair once::

    offsets   |0      |10     |30     |70        elementary intervals between distinct offsets
    tree      [      0..3     ]                  an interval hangs on O(log n) nodes that tile it,
              [ 0..1 ][  2..3 ]                  a point is covered by the intervals that hang on
              [0][1]   [2][3]                    the path from its leaf to the root
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.errors import ProblemError
from solver.layout.model.columns import UNPINNED, Columns
from solver.layout.model.pieces import Piece, pieces
from solver.layout.model.problem import MAX_BYTES, Buffer, Hole, Layout, LayoutProblem, Lifespan
from solver.layout.model.sorting import in_order

__all__ = ["Violation", "check_holes", "check_problem", "find_violations", "known_sound"]

_Integers: TypeAlias = npt.NDArray[np.int64]
_Indices: TypeAlias = npt.NDArray[np.int32]

#: Buffers from which the common answer, that a problem is one, is sought in columns first.
COLUMNS_FROM: Final = 64

#: Pairs up to which each is looked at, in less time than a sweep takes in Python, and so many at a time. From
#: so many buffers on the compiled sweep is worth loading.
PAIRS: Final = 4_000_000
PAIRS_AT_ONCE: Final = 1 << 12
SWEPT_FROM: Final = 4000


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` is one of count, offset, pin, alignment, overlap, peak, capacity; `buffers` are ids."""

    rule: str
    buffers: tuple[str, ...]
    detail: str


def check_problem(problem: LayoutProblem) -> None:
    """Raise `ProblemError` naming the first buffer that no layout solver can take. O(n log n).

    A buffer larger than the capacity is not an error: the answer to such a problem is infeasible.
    """
    if problem.capacity is not None and (not _is_int(problem.capacity) or problem.capacity < 0):
        raise ProblemError(
            f"The capacity {problem.capacity!r} is not a whole number of bytes.",
            remedy="Give zero or more bytes, or leave it out.",
            path=("capacity",),
        )
    if not _plainly_right(problem):
        _check_each(problem)
    _check_pins(problem)


def _plainly_right(problem: LayoutProblem) -> bool:
    """Whether a glance at the columns of a large problem already shows that it is one, but for its pins."""
    if len(problem.buffers) < COLUMNS_FROM or not _ids_differ(problem.buffers):
        return False
    columns = Columns.unsummed(problem)
    return columns is not None and columns.well_formed() and (columns.summable or _sums_fit(columns))


def _sums_fit(columns: Columns) -> bool:
    """Whether the bytes that live at any one step, and the end of each pin, fit 63 bits.

    Loads are added up modulo 2**64. Each is the one before and at most 2**63 - 1 bytes more, so the first
    that does not fit 63 bits still fits 64, and shows as a negative number.
    """
    if bool((columns.pin > MAX_BYTES - columns.size).any()):
        return False
    start, end, low, high, _ = columns.pieces().T
    size, by_start, by_end = high - low, in_order(start), in_order(end)
    gone = np.concatenate(([0], size[by_end].cumsum()))
    load = size[by_start].cumsum() - gone[end[by_end].searchsorted(start[by_start], side="right")]
    return not bool((load < 0).any())


def _ids_differ(buffers: tuple[Buffer, ...]) -> bool:
    """Whether no two ids have one hash: 8 bytes a buffer, where a set takes up to a hundred."""
    hashes = np.fromiter((hash(buffer.id) for buffer in buffers), np.int64, len(buffers))
    hashes.sort()
    return not bool((hashes[1:] == hashes[:-1]).any())


def _check_each(problem: LayoutProblem) -> None:
    seen: set[str] = set()
    for index, buffer in enumerate(problem.buffers):
        if buffer.id in seen:
            raise _bad(index, buffer, "has the id of another buffer", "Give every buffer its own id.", "id")
        seen.add(buffer.id)
        _check_buffer(index, buffer)
    _check_load(problem)


def _is_int(value: object) -> bool:
    return type(value) is int


def _bad(index: int, buffer: Buffer, what: str, remedy: str, field: str) -> ProblemError:
    return ProblemError(f"Buffer {buffer.id!r} {what}.", remedy=remedy, path=("buffers", index, field))


def _check_buffer(index: int, buffer: Buffer) -> None:
    size, span, alignment = buffer.size, buffer.lifespan, buffer.alignment
    if not _is_int(size) or not 0 <= size <= MAX_BYTES:
        raise _bad(index, buffer, f"has size {size!r}", "A size is 0 to 2**63 - 1 bytes.", "size")
    if not _is_int(span.start) or not _is_int(span.end) or span.start < 0:
        what = f"has lifespan [{span.start!r}, {span.end!r})"
        raise _bad(index, buffer, what, "Steps are whole numbers from 0.", "lifespan")
    if span.end <= span.start:
        what = f"has the empty lifespan [{span.start}, {span.end})"
        raise _bad(index, buffer, what, "A lifespan ends after its start.", "lifespan")
    if not _is_int(alignment) or alignment < 1 or alignment & (alignment - 1):
        what = f"has alignment {alignment!r}"
        raise _bad(index, buffer, what, "An alignment is a power of two.", "alignment")
    if buffer.offset is not None:
        _check_pin(index, buffer, buffer.offset)
    check_holes(index, buffer)


def check_holes(index: int, buffer: Buffer) -> None:
    """Raise `ProblemError` for holes that do not lie in the lifespan, in order, or that leave no byte."""
    span, before, empty = buffer.lifespan, buffer.lifespan.start, 0
    for hole in buffer.holes:
        _check_hole(index, buffer, hole, before)
        before = hole.lifespan.end
        empty += before - hole.lifespan.start if hole.low == hole.high else 0
    if buffer.size and empty == span.end - span.start:
        what = f"holds no bytes at any step of its lifespan [{span.start}, {span.end})"
        raise _bad(index, buffer, what, "Remove the buffer, or shorten its gaps.", "gaps")


def _check_hole(index: int, buffer: Buffer, hole: Hole, before: int) -> None:
    """Inside the lifespan, from step `before` on, and its bytes inside the buffer."""
    span = hole.lifespan
    what = f"has the hole [{span.start!r}, {span.end!r})"
    if not _is_int(span.start) or not _is_int(span.end):
        raise _bad(index, buffer, what, "Steps are whole numbers.", "gaps")
    if span.end <= span.start:
        raise _bad(index, buffer, what, "It ends after its start.", "gaps")
    life = buffer.lifespan
    if span.start < life.start or span.end > life.end:
        raise _bad(index, buffer, what, f"It lies inside the lifespan [{life.start}, {life.end}).", "gaps")
    if span.start < before:
        remedy = f"Holes lie apart and in order of time; the one before ends at {before}."
        raise _bad(index, buffer, what, remedy, "gaps")
    what += f", which holds bytes [{hole.low!r}, {hole.high!r}) of {buffer.size}"
    if not _is_int(hole.low) or not _is_int(hole.high):
        raise _bad(index, buffer, what, "Bytes are whole numbers.", "gaps")
    if not 0 <= hole.low <= hole.high <= buffer.size:
        raise _bad(index, buffer, what, "They lie inside the buffer; none where the two are equal.", "gaps")


def _check_pin(index: int, buffer: Buffer, offset: int) -> None:
    if not _is_int(offset) or offset < 0:
        raise _bad(index, buffer, f"is pinned at {offset!r}", "An offset is 0 or more bytes.", "offset")
    if offset % buffer.alignment:
        what = f"is pinned at {offset}, not a multiple of its alignment {buffer.alignment}"
        raise _bad(index, buffer, what, "Pin it at an aligned offset.", "offset")


def _check_load(problem: LayoutProblem) -> None:
    """The bytes that live at any one step, and the end of each pin, fit 63 bits."""
    if sum(b.size + (b.offset or 0) for b in problem.buffers) <= MAX_BYTES:
        return
    for index, buffer in enumerate(problem.buffers):
        if buffer.size and buffer.offset is not None and buffer.offset + buffer.size > MAX_BYTES:
            what = f"is pinned at {buffer.offset} and ends beyond 2**63 - 1 bytes"
            raise _bad(index, buffer, what, "No runtime addresses that much; pin it lower.", "offset")
    events = [(p.lifespan.start, 1, p.owner, p.high - p.low) for p in pieces(problem)]
    events += [(p.lifespan.end, 0, p.owner, p.low - p.high) for p in pieces(problem)]
    load = 0
    for step, _, index, change in sorted(events):
        load += change
        if load > MAX_BYTES:
            what = f"brings the bytes live at step {step} beyond 2**63 - 1"
            remedy = "No runtime addresses that much; check the sizes."
            raise _bad(index, problem.buffers[index], what, remedy, "size")


def _check_pins(problem: LayoutProblem) -> None:
    buffers = problem.buffers
    at = [index for index, buffer in enumerate(buffers) if buffer.offset is not None]
    if len(at) >= COLUMNS_FROM and _pins_apart(LayoutProblem(tuple(buffers[index] for index in at))):
        return
    held = pieces(LayoutProblem(tuple(buffers[index] for index in at)))
    for a, b in _overlaps(held, [buffers[index].offset or 0 for index in at]):
        index, other = at[max(a.owner, b.owner)], at[min(a.owner, b.owner)]
        what = f"is pinned where buffer {buffers[other].id!r} is pinned at the same time"
        raise _bad(index, buffers[index], what, "Pin one of the two elsewhere.", "offset")


def _pins_apart(problem: LayoutProblem) -> bool:
    """Whether columns show that no two of these pins, and there is nothing else, share a byte."""
    columns = Columns.unsummed(problem)
    if columns is None:
        return False
    start, end, low, high, owner = columns.pieces().T
    return _disjoint(start, end, low + columns.pin[owner], high + columns.pin[owner])


def find_violations(
    problem: LayoutProblem, layout: Layout, *, limit: int | None = None
) -> tuple[Violation, ...]:
    """Every rule that the layout breaks (the first `limit` of them); empty when it is right.

    O((n + output) log n). The problem must have passed `check_problem`.
    """
    if len(layout.offsets) != len(problem.buffers):
        detail = f"{len(layout.offsets):,} offsets for {len(problem.buffers):,} buffers"
        return (Violation("count", (), detail),)
    if known_sound(problem, layout):
        return ()
    return tuple(islice(_violations(problem, layout), limit))


def known_sound(problem: LayoutProblem, layout: Layout) -> bool:
    """Whether columns show that a layout breaks no rule: by comparing pairs, or by a compiled sweep.

    False decides nothing: then each rule is checked by itself, in Python integers.
    """
    if not problem.buffers or set(map(type, layout.offsets)) != {int}:
        return False
    columns = Columns.unsummed(problem)
    if columns is None or min(layout.offsets) < 0 or max(layout.offsets) > MAX_BYTES:
        return False
    bottom = np.array(layout.offsets, dtype=np.int64)
    if bool((bottom > MAX_BYTES - columns.size).any()):
        return False
    top = bottom + columns.size
    moved = (columns.pin != UNPINNED) & (columns.pin != bottom)
    peak = int(top.max())
    if bool((bottom % columns.alignment).any() or moved.any()) or peak != layout.peak:
        return False
    if problem.capacity is not None and peak > problem.capacity:
        return False
    if not len(columns.holes):
        return _disjoint(columns.start, columns.end, bottom, top)
    rows = columns.pieces()
    rows[:, 2:4] += bottom[rows[:, 4], None]
    del bottom, top
    return _disjoint(*rows.T[:4])


def _disjoint(start: _Integers, end: _Integers, bottom: _Integers, top: _Integers) -> bool:
    """Whether no two share a byte at some step. False, too, where it takes too long to say so here."""
    pairs, order = _meeting(bottom, top)
    by_time, time_order = _meeting(start, end)
    # Those that share bytes are looked at whether they share a step, or the other way round.
    low, high = start, end
    if pairs.sum() > by_time.sum():
        pairs, order, low, high = by_time, time_order, bottom, top
    del by_time, time_order
    if pairs.sum() <= PAIRS:
        return not _any_meets(pairs, low[order], high[order])
    if len(start) < SWEPT_FROM:
        return False
    del pairs, order, low, high
    from solver.layout.check.sweep import disjoint

    return disjoint(start, end, bottom, top)


def _meeting(low: _Integers, high: _Integers) -> tuple[_Indices, _Indices]:
    """In the order of `low`, how many that follow each one at once meet it, which are all; and the order."""
    order = in_order(low).astype(np.int32)
    following: _Integers = low[order].searchsorted(high[order])
    following -= np.arange(1, len(low) + 1)
    return following.astype(np.int32), order


def _any_meets(pairs: _Indices, low: _Integers, high: _Integers) -> bool:
    """Whether any [low, high) meets one of so many that follow it at once."""
    total = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum(pairs, out=total[1:])
    first = 0
    while first < len(pairs):
        last = max(first + 1, int(total.searchsorted(total[first] + PAIRS_AT_ONCE, side="right")) - 1)
        one = np.repeat(np.arange(first, last, dtype=np.int32), pairs[first:last])
        other = np.arange(total[first] + 1, total[last] + 1)
        other -= total[one]
        other += one
        if bool(((low[one] < high[other]) & (low[other] < high[one])).any()):
            return True
        first = last
    return False


def _violations(problem: LayoutProblem, layout: Layout) -> Iterator[Violation]:
    for buffer, offset in zip(problem.buffers, layout.offsets, strict=True):
        yield from _misplaced(buffer, offset)
    for a, b in _overlaps(pieces(problem), layout.offsets):
        yield _overlap(problem, layout, a, b)
    tops = [b.size and o + b.size for b, o in zip(problem.buffers, layout.offsets, strict=True)]
    if layout.peak != max(tops, default=0):
        yield Violation("peak", (), f"peak {layout.peak:,} stated, {max(tops, default=0):,} needed")
    for buffer, top in zip(problem.buffers, tops, strict=True):
        if problem.capacity is not None and top > problem.capacity:
            yield Violation(
                "capacity", (buffer.id,), f"ends at {top:,}, the capacity is {problem.capacity:,}"
            )


def _misplaced(buffer: Buffer, offset: int) -> Iterator[Violation]:
    if not _is_int(offset) or offset < 0:
        yield Violation("offset", (buffer.id,), f"offset {offset!r} is not a whole number of bytes")
    elif offset % buffer.alignment:
        yield Violation("alignment", (buffer.id,), f"offset {offset}, alignment {buffer.alignment}")
    if buffer.offset is not None and offset != buffer.offset:
        yield Violation("pin", (buffer.id,), f"offset {offset}, pinned at {buffer.offset}")


def _overlap(problem: LayoutProblem, layout: Layout, a: Piece, b: Piece) -> Violation:
    at_a, at_b = layout.offsets[a.owner], layout.offsets[b.owner]
    bytes_ = f"bytes [{max(at_a + a.low, at_b + b.low)}, {min(at_a + a.high, at_b + b.high)})"
    both = Lifespan(max(a.lifespan.start, b.lifespan.start), min(a.lifespan.end, b.lifespan.end))
    ids = (problem.buffers[a.owner].id, problem.buffers[b.owner].id)
    return Violation("overlap", ids, f"both hold {bytes_} during steps [{both.start}, {both.end})")


def _overlaps(held: Sequence[Piece], offsets: Sequence[int]) -> Iterator[tuple[Piece, Piece]]:
    """Pieces (earlier born first) sharing bytes at some step, each pair once. `offsets`: of their owners."""
    events = [(p.lifespan.start, 1, i) for i, p in enumerate(held)]
    events += [(p.lifespan.end, 0, i) for i, p in enumerate(held)]
    live = _LiveIntervals([offsets[p.owner] + p.low for p in held], [offsets[p.owner] + p.high for p in held])
    for _, is_start, i in sorted(events):
        if is_start:
            for j in live.sharing(i):
                yield held[j], held[i]
            live.add(i)
        else:
            live.remove(i)


class _LiveIntervals:
    """A changing set of the intervals ``[bottoms[i], tops[i])``, asked which share a byte with one."""

    def __init__(self, bottoms: Sequence[int], tops: Sequence[int]) -> None:
        self._bottoms, self._tops = bottoms, tops
        self._points = sorted(set(bottoms))
        self._covering: list[set[int]] = [set() for _ in range(2 * len(self._points))]
        self._by_bottom: list[tuple[int, int]] = []

    def sharing(self, i: int) -> list[int]:
        """Those that cover the bottom of `i`, and those whose bottom lies inside `i`."""
        found: list[int] = []
        node = len(self._points) + bisect_left(self._points, self._bottoms[i])
        while node:
            found.extend(self._covering[node])
            node >>= 1
        first = bisect_right(self._by_bottom, (self._bottoms[i], len(self._tops)))
        last = bisect_left(self._by_bottom, (self._tops[i], -1))
        found.extend(j for _, j in self._by_bottom[first:last])
        return sorted(found)

    def add(self, i: int) -> None:
        for node in self._nodes(i):
            self._covering[node].add(i)
        insort(self._by_bottom, (self._bottoms[i], i))

    def remove(self, i: int) -> None:
        for node in self._nodes(i):
            self._covering[node].remove(i)
        del self._by_bottom[bisect_left(self._by_bottom, (self._bottoms[i], i))]

    def _nodes(self, i: int) -> Iterator[int]:
        """The nodes that tile the interval, bottom up."""
        low = len(self._points) + bisect_left(self._points, self._bottoms[i])
        high = len(self._points) + bisect_left(self._points, self._tops[i])
        while low < high:
            if low & 1:
                yield low
                low += 1
            if high & 1:
                high -= 1
                yield high
            low >>= 1
            high >>= 1
