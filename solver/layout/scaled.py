"""Problems whose bytes do not fit the arithmetic of the solvers: counted in larger units.

Solvers add up sizes in 64 bits, those of buffers that never meet as well, and compiled code keeps some of the
bits for itself. Where the sum of all sizes goes beyond `SAFE`, a smaller problem is solved in place of the
problem:

    in units   every size, pin and alignment that matters is a multiple of one number: the same problem,
               counted in units of it; what is proved of one is true of the other (see `Instance.unit`)
    in grains  no number is large enough: sizes are rounded up to a power of two, and what is found settles
               bottom up in exact integers: no buffer ends higher than before
    exactly    as before, with pins, or with holes, which rounding would push into each other: first fit in
               exact integers, in a few orders

Only the first proves anything beyond the largest load. Bounds, checks and offsets are Python integers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from solver.errors import ProblemError
from solver.layout.bounds.max_load import LowerBound, max_load
from solver.layout.bounds.settle import settle
from solver.layout.model.columns import UNPINNED, Columns
from solver.layout.model.instance import Instance, round_up
from solver.layout.model.options import Progress, SolveOptions
from solver.layout.model.pieces import Piece, has_holes, pieces
from solver.layout.model.problem import MAX_BYTES, Buffer, Deadline, Layout, LayoutProblem, Outcome

__all__ = ["SAFE", "scaled_down", "solve_scaled", "too_large"]

#: The largest sum of sizes, padding and pins (bytes) that every solver takes as it is.
SAFE: Final = 2**60

#: Buffers that are settled between looks at the deadline, at most some milliseconds.
LOOK: Final = 64

#: Solves a problem that is not too large; the caller knows with which solver, and by when.
Solve: TypeAlias = Callable[[LayoutProblem, Layout | None, SolveOptions], Outcome]


def too_large(problem: LayoutProblem, most: int = SAFE) -> bool:
    """Whether sums of its bytes may go beyond so many. O(n)."""
    columns = Columns.of(problem)
    if columns is None:
        return _reach(problem.buffers) > most
    # No sum of these goes beyond 64 bits.
    total = int(columns.size.sum()) + int((columns.alignment - 1).sum())
    return total + int((columns.pin + columns.size)[columns.pin != UNPINNED].max(initial=0)) > most


def _reach(buffers: Iterable[Buffer]) -> int:
    """No offset that a solver tries, and no sum that it makes, is larger."""
    total = top = 0
    for buffer in buffers:
        total += buffer.size + buffer.alignment - 1
        if buffer.offset is not None:
            top = max(top, buffer.offset + buffer.size)
    return total + top


@dataclass(frozen=True, slots=True)
class _Smaller:
    """A problem, and how many bytes each of its bytes stands for; `exact` if both have the same layouts."""

    problem: LayoutProblem
    unit: int
    exact: bool


def scaled_down(problem: LayoutProblem) -> _Smaller | None:
    """The same problem in units, or one in grains that is close to it; None where neither is to be had."""
    buffers = problem.buffers
    unit = math.gcd(*(b.size for b in buffers), *(b.offset or 0 for b in buffers))
    unit = math.gcd(unit, *(byte for b in buffers for hole in b.holes for byte in (hole.low, hole.high)))
    most = max(b.alignment for b in buffers)
    unit = math.gcd(unit, most) if unit % most else unit
    reach = _reach(buffers)
    if reach <= SAFE * unit:
        return _Smaller(_counted(problem, unit), unit, exact=True)
    if has_holes(problem) or any(b.offset is not None for b in buffers):
        return None
    # Rounding up adds less than a grain a buffer.
    grain = 1 << (reach // (SAFE - 2 * len(buffers))).bit_length()
    return _Smaller(_counted(problem, grain), grain, exact=False)


def _counted(problem: LayoutProblem, unit: int) -> LayoutProblem:
    """In units of so many bytes; sizes are rounded up. Alignments are multiples of the unit, or divide it."""

    def counted(buffer: Buffer) -> Buffer:
        return replace(
            buffer,
            size=-(-buffer.size // unit),
            alignment=max(1, buffer.alignment // unit),
            offset=None if buffer.offset is None else buffer.offset // unit,
            holes=tuple(replace(h, low=h.low // unit, high=h.high // unit) for h in buffer.holes),
        )

    capacity = None if problem.capacity is None else problem.capacity // unit
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
    began, bound, smaller = time.perf_counter(), max_load(problem), scaled_down(problem)
    if bound.bytes > MAX_BYTES:
        raise ProblemError(
            f"{bound.bytes:,} bytes live at step {bound.witness_step}, with padding: more than 2**63 - 1.",
            remedy="No runtime addresses that much; check the sizes.",
            path=("buffers",),
        )
    found, proved, name, deterministic = [] if incumbent is None else [incumbent], 0, "first-fit", True
    if smaller is not None:
        told = replace(options, progress=_told(options, smaller.unit, bound))
        # Where bytes are left over in the capacity, a unit of them is of no use to anyone.
        outcome = solve(smaller.problem, None, told)
        name, deterministic = outcome.solver, outcome.deterministic
        if outcome.layout is not None:
            offsets = [offset * smaller.unit for offset in outcome.layout.offsets]
            anew = improved and not smaller.exact
            found.append(_settled(problem, offsets, deadline) if anew else _layout(problem, offsets))
            proved = outcome.lower_bound * smaller.unit if smaller.exact else 0
    else:
        buffers = problem.buffers
        by_size = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].lifespan.start))
        by_start = sorted(range(len(buffers)), key=lambda i: (buffers[i].lifespan.start, -buffers[i].size))
        for order in (by_size, by_start):
            found.append(_first_fit(problem, order))
            if found[-1].peak <= bound.bytes or deadline.expired:
                break
    best = min(found, key=lambda layout: layout.peak, default=None)
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
        settled[i] = round_up(int(below.max()), buffer.alignment)
        below[:] = settled[i] + buffer.size
    return _layout(problem, settled)


def _layout(problem: LayoutProblem, offsets: list[int]) -> Layout:
    tops = (offset + buffer.size for buffer, offset in zip(problem.buffers, offsets, strict=True))
    return Layout(tuple(offsets), max(tops, default=0))


def _first_fit(problem: LayoutProblem, order: list[int]) -> Layout:
    """Pins first, then in this order, each at the lowest offset where no piece of it meets another's.

    A few NumPy calls over all buffers for each.
    """
    buffers = problem.buffers
    held: list[list[Piece]] = [[] for _ in buffers]
    for piece in pieces(problem):
        held[piece.owner].append(piece)
    offsets: list[int] = [buffer.offset or 0 for buffer in buffers]
    instance = Instance.of(problem)
    start, end = instance.start, instance.end
    placed = np.array([buffer.offset is not None for buffer in buffers])
    for i in (i for i in order if buffers[i].offset is None):
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
