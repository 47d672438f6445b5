"""Problems whose bytes do not fit the arithmetic of the solvers: counted in larger units.

Solvers add up sizes in 64 bits, those of buffers that never meet as well, and compiled code keeps some of the
bits for itself. Where the sum of all sizes goes beyond `SAFE`, a smaller problem is solved in place of the
problem:

    in units   every size, pin and alignment that matters is a multiple of one number: the same problem,
               counted in units of it; what is proved of one is true of the other (see `Instance.unit`)
    in grains  no number is large enough: sizes are rounded up to a power of two, and what is found settles
               bottom up in exact integers: no buffer ends higher than before. Of what is pinned all grains
               are taken that it touches; what has holes, which others may lie in, does not settle
    exactly    as before, with pins or holes, where there is time left: first fit in exact integers, in a few
               orders

Only the first proves anything beyond the largest load. Bounds, checks and offsets are Python integers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Final, TypeAlias

import numpy as np

from solver.errors import ProblemError
from solver.layout.bounds.max_load import LowerBound, max_load
from solver.layout.bounds.settle import settle
from solver.layout.model.columns import UNPINNED, Columns
from solver.layout.model.instance import Instance, Integers, round_up
from solver.layout.model.options import Progress, SolveOptions
from solver.layout.model.pieces import Piece, has_holes, pieces
from solver.layout.model.problem import (
    MAX_BYTES,
    Buffer,
    Deadline,
    Hole,
    Layout,
    LayoutProblem,
    Lifespan,
    Outcome,
)
from solver.layout.model.table import buffers_of

__all__ = ["SAFE", "scaled_down", "solve_scaled", "too_large"]

#: The largest sum of sizes, padding and pins (bytes) that every solver takes as it is.
SAFE: Final = 2**60

#: Buffers that are settled between looks at the deadline, at most some milliseconds.
LOOK: Final = 64

#: Solves a problem that is not too large; the caller knows with which solver, and by when.
Solve: TypeAlias = Callable[[LayoutProblem, Layout | None, SolveOptions], Outcome]


def too_large(problem: LayoutProblem, most: int = SAFE) -> bool:
    """Whether sums of its bytes may go beyond so many. O(n)."""
    return _reach(problem) > most


def _reach(problem: LayoutProblem) -> int:
    """No offset that a solver tries, and no sum that it makes, is larger. Pins end within 63 bits."""
    columns = Columns.unsummed(problem)
    return _reach_of(problem.buffers) if columns is None else _reach_in(columns)


def _reach_in(columns: Columns) -> int:
    total = _sum(columns.size) + _sum(columns.alignment - 1)
    return total + int((columns.pin + columns.size)[columns.pin != UNPINNED].max(initial=0))


def _sum(values: Integers) -> int:
    """Exactly, of fewer than 2**31 values: halves of 32 bits add up in 64."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _reach_of(buffers: Iterable[Buffer]) -> int:
    total = top = 0
    for buffer in buffers:
        total += buffer.size + buffer.alignment - 1
        if buffer.offset is not None:
            top = max(top, buffer.offset + buffer.size)
    return total + top


@dataclass(frozen=True, slots=True)
class _Smaller:
    """A problem, and how many bytes each of its bytes stands for; `exact` if both have the same layouts.

    It begins with the buffers of the other that are `free`, which are all where it is exact.
    """

    problem: LayoutProblem
    unit: int
    exact: bool
    free: Sequence[int]


def scaled_down(problem: LayoutProblem) -> _Smaller:
    """The same problem in units, or one in grains that is close to it."""
    buffers, unit, reach = problem.buffers, _unit(problem), _reach(problem)
    if reach <= SAFE * unit:
        return _Smaller(_counted(problem, unit), unit, exact=True, free=range(len(buffers)))
    # Rounding up adds less than a grain a buffer, and a piece of what is pinned claims less than two more.
    grain = 1 << (reach // (SAFE - 4 * sum(1 + 2 * len(b.holes) for b in buffers))).bit_length()
    free = [i for i, buffer in enumerate(buffers) if buffer.offset is None]
    if len(free) == len(buffers):
        return _Smaller(_counted(problem, grain), grain, exact=False, free=free)
    loose = _counted(replace(problem, buffers=tuple(buffers[i] for i in free)), grain)
    taken = _taken([buffer for buffer in buffers if buffer.offset is not None], grain)
    both = replace(loose, buffers=(*loose.buffers, *taken))
    return _Smaller(both, grain, exact=False, free=free)


def _taken(pinned: Sequence[Buffer], grain: int) -> list[Buffer]:
    """Pins on all grains that these touch.

    ::

        pinned    |--- a ---|-- b --|         a and b share a grain, c has no grain for itself
                            |c|
        grains    |   |   |   |   |   |
        taken         |a a|   |b b|           whole grains, for the lifespan of their buffer
                  |a|     |ab|    |b|         others, as long as any of those that share it lives
    """
    made, shared = list[Buffer](), dict[int, list[Lifespan]]()

    def pin(low: int, high: int, span: Lifespan) -> None:
        made.append(Buffer(f"taken {len(made)}", high - low, span, offset=low))

    for piece in pieces(LayoutProblem(tuple(pinned))):
        bottom = pinned[piece.owner].offset or 0
        low, high = bottom + piece.low, bottom + piece.high
        inner, outer = -(-low // grain), high // grain
        if inner < outer:
            pin(inner, outer, piece.lifespan)
        for edge in {low // grain, (high - 1) // grain}:
            if not inner <= edge < outer:
                shared.setdefault(edge, []).append(piece.lifespan)
    for edge, spans in shared.items():
        spans.sort()
        begin, end = spans[0].start, spans[0].end
        for span in spans[1:]:
            if span.start > end:
                pin(edge, edge + 1, Lifespan(begin, end))
                begin, end = span.start, span.end
            end = max(end, span.end)
        pin(edge, edge + 1, Lifespan(begin, end))
    return made


def _unit(problem: LayoutProblem) -> int:
    """The greatest common divisor of all bytes, and of alignments if they matter: see `Instance.unit`."""
    columns, buffers = Columns.unsummed(problem), problem.buffers
    if columns is None:
        most = max(b.alignment for b in buffers)
        unit = math.gcd(*(b.size for b in buffers), *(b.offset or 0 for b in buffers))
        unit = math.gcd(unit, *(byte for b in buffers for hole in b.holes for byte in (hole.low, hole.high)))
    else:
        most = int(columns.alignment.max())
        pins = columns.pin[columns.pin != UNPINNED]
        unit = math.gcd(
            *(int(np.gcd.reduce(all_)) for all_ in (columns.size, pins, columns.holes[:, 2:4].ravel()))
        )
    return math.gcd(unit, most) if unit % most else unit


def _counted(problem: LayoutProblem, unit: int) -> LayoutProblem:
    """In units of so many bytes; what is held is rounded up. Alignments are multiples of it, or divide it."""
    capacity = None if problem.capacity is None else problem.capacity // unit
    columns = Columns.unsummed(problem)
    if columns is not None and not len(columns.holes):
        smaller = Columns(
            size=(columns.size - 1) // unit + 1,
            start=columns.start,
            end=columns.end,
            alignment=np.maximum(columns.alignment // unit, 1),
            pin=np.where(columns.pin == UNPINNED, UNPINNED, columns.pin // unit),
        )
        return LayoutProblem(buffers_of([buffer.id for buffer in problem.buffers], smaller), capacity)

    def held(hole: Hole) -> Hole:
        low, high = hole.low // unit, -(-hole.high // unit)
        return replace(hole, low=low, high=high if hole.low < hole.high else low)

    def counted(buffer: Buffer) -> Buffer:
        return replace(
            buffer,
            size=-(-buffer.size // unit),
            alignment=max(1, buffer.alignment // unit),
            offset=None if buffer.offset is None else buffer.offset // unit,
            holes=tuple(map(held, buffer.holes)),
        )

    return LayoutProblem(tuple(map(counted, problem.buffers)), capacity)


def solve_scaled(
    problem: LayoutProblem,
    deadline: Deadline,
    incumbent: Layout | None,
    options: SolveOptions,
    solve: Solve,
    *,
    improved: bool,
) -> Outcome:
    """The problem must have passed `check_problem`, and the incumbent must be a layout of it.

    `improved` is false where it is shown what another planner does. Raises `ProblemError` where no layout is
    found whose offsets fit 63 bits.
    """
    began, bound = time.perf_counter(), max_load(problem)
    if bound.bytes > MAX_BYTES:
        raise ProblemError(
            f"{bound.bytes:,} bytes live at step {bound.witness_step}, with padding: more than 2**63 - 1.",
            remedy="No runtime addresses that much; check the sizes.",
            path=("buffers",),
        )
    found, proved, name, deterministic = [] if incumbent is None else [incumbent], 0, "first-fit", True
    smaller, holes = scaled_down(problem), has_holes(problem)
    obstructed = not smaller.exact and (holes or len(smaller.free) < len(problem.buffers))
    if improved or not obstructed:
        told = replace(options, progress=_told(options, smaller.unit, bound))
        # Where bytes are left over in the capacity, a unit of them is of no use to anyone.
        outcome = solve(smaller.problem, None, told)
        name, deterministic = outcome.solver, outcome.deterministic
        if outcome.layout is not None:
            offsets = _enlarged(problem, smaller, outcome.layout)
            anew = improved and not smaller.exact and not holes
            found.append(_settled(problem, offsets, deadline) if anew else _layout(problem, offsets))
            proved = outcome.lower_bound * smaller.unit if smaller.exact else 0
    if obstructed:
        start = min(found, key=_peak, default=None)
        exactly = _first_fits(problem, start, bound.bytes, deadline)
        if exactly and (start is None or min(map(_peak, exactly)) < start.peak):
            found, name = exactly, "first-fit"
    best = min(found, key=_peak, default=None)
    if best is not None and best.peak > MAX_BYTES:
        raise ProblemError(
            f"No layout was found that ends at or below 2**63 - 1 bytes; the best one ends at {best.peak:,}.",
            remedy="Make buffers smaller: no runtime addresses that much.",
            path=("buffers",),
        )
    return settle(problem, best, bound, name, began, proved=proved, deterministic=deterministic)


def _told(options: SolveOptions, unit: int, bound: LowerBound) -> Callable[[Progress], None] | None:
    """Progress in bytes."""
    tell = options.progress
    if tell is None:
        return None
    return lambda news: tell(replace(news, incumbent=news.incumbent * unit, bound=bound.bytes))


def _settled(problem: LayoutProblem, offsets: list[int], deadline: Deadline) -> Layout:
    """Each buffer, bottom up, falls onto what lies below it, so that none ends higher.

    O(n log n), and the sections that each lives in; what is left by the deadline stays where it is, above all
    that has fallen.
    """
    instance, tops = Instance.of(problem), _layout(problem, offsets).peak
    # Bytes below which all is settled, for each section; beyond 64 bits in Python's integers.
    floor = np.zeros(instance.sections, np.uint64 if tops < 2**64 else object)
    spans = list(zip(instance.start.tolist(), instance.end.tolist(), strict=True))
    settled = list(offsets)
    for count, i in enumerate(sorted(range(len(offsets)), key=offsets.__getitem__)):
        if count % LOOK == 0 and deadline.expired:
            break
        below, buffer = floor[slice(*spans[i])], problem.buffers[i]
        if buffer.offset is None:
            settled[i] = round_up(int(below.max()), buffer.alignment)
        below[:] = settled[i] + buffer.size
    return _layout(problem, settled)


def _enlarged(problem: LayoutProblem, smaller: _Smaller, layout: Layout) -> list[int]:
    """Offsets in bytes: of what is free those of the layout of the smaller problem."""
    offsets = [buffer.offset or 0 for buffer in problem.buffers]
    for i, offset in zip(smaller.free, layout.offsets, strict=False):  # behind them it has what is taken
        offsets[i] = offset * smaller.unit
    return offsets


def _peak(layout: Layout) -> int:
    return layout.peak


def _layout(problem: LayoutProblem, offsets: list[int]) -> Layout:
    tops = map(add, offsets, [buffer.size for buffer in problem.buffers])
    return Layout(tuple(offsets), max(tops, default=0))


def _first_fits(
    problem: LayoutProblem, start: Layout | None, enough: int, deadline: Deadline
) -> list[Layout]:
    """First fit by size, then by birth, until one ends at `enough` bytes or the deadline has passed.

    Where the start is missing, or ends beyond what can be addressed, the first is made to its end.
    """
    buffers, made = problem.buffers, list[Layout]()
    if start is not None and (start.peak <= enough or (deadline.expired and start.peak <= MAX_BYTES)):
        return made
    by_size = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].lifespan.start))
    by_start = sorted(range(len(buffers)), key=lambda i: (buffers[i].lifespan.start, -buffers[i].size))
    for order in (by_size, by_start):
        needed = not made and (start is None or start.peak > MAX_BYTES)
        layout = _first_fit(problem, order, Deadline() if needed else deadline)
        made += [] if layout is None else [layout]
        if layout is None or layout.peak <= enough or deadline.expired:
            break
    return made


def _first_fit(problem: LayoutProblem, order: list[int], deadline: Deadline) -> Layout | None:
    """Pins first, then in this order, each at the lowest offset where no piece of it meets another's.

    A few NumPy calls over all buffers for each. None where the deadline passes.
    """
    buffers = problem.buffers
    held: list[list[Piece]] = [[] for _ in buffers]
    for piece in pieces(problem):
        held[piece.owner].append(piece)
    offsets: list[int] = [buffer.offset or 0 for buffer in buffers]
    instance = Instance.of(problem)
    start, end = instance.start, instance.end
    placed = np.array([buffer.offset is not None for buffer in buffers])
    for count, i in enumerate(i for i in order if buffers[i].offset is None):
        if count % LOOK == 0 and deadline.expired:
            return None
        # Offsets between these two, exclusive, are taken by a piece in the way.
        taken = sorted(
            (offsets[j] + other.low - piece.high, offsets[j] + other.high - piece.low)
            for j in np.flatnonzero(placed & (start < end[i]) & (end > start[i])).tolist()
            for other in held[j]
            for piece in held[i]
            if other.lifespan.overlaps(piece.lifespan)
        )
        offset = 0
        for below, above in taken:
            if below >= offset:
                break
            offset = max(offset, round_up(above, buffers[i].alignment))
        offsets[i] = offset
        placed[i] = True
    return _layout(problem, offsets)
