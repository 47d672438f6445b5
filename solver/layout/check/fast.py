"""The fast check of layouts: the violations of the reference check, for a million buffers.

Arrays decide whether anything is wrong at all. If so, they find which buffers meet, and the reference check
says which rules that breaks. No code is shared with the solvers.

The bytes that a buffer holds for some steps are a rectangle, and no two rectangles may meet. Rows are taken
in order of their first step, a block at a time; each block is compared with the live rows and with itself::

    rows by first step    [ gone ][  live  ][ block ][   later   ]
                                  └─── compared ────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.check.reference import Violation, held, violations
from solver.layout.model.instance import FREE, Instance, arrays_kept
from solver.layout.model.problem import MAX_BYTES, Layout, LayoutProblem

__all__ = [
    "Rectangles",
    "columns",
    "disjoint",
    "find_violations",
    "integers",
    "is_sound",
    "meeting",
    "rectangles",
]

_Integers: TypeAlias = npt.NDArray[np.int64]

#: First steps, ends, lowest bytes, ends of bytes, and the number of the buffer: one row for each rectangle.
Rectangles: TypeAlias = tuple[_Integers, _Integers, _Integers, _Integers, _Integers]

#: Rows that are compared at once.
BLOCK_ROWS: Final = 128

#: Pairs of rows that share a step, from which on the compiled sweep decides: comparing them takes .01 s.
SWEPT_FROM_PAIRS: Final = 4_000_000


def find_violations(
    problem: LayoutProblem, layout: Layout, *, limit: int | None = None
) -> tuple[Violation, ...]:
    """Every rule that the layout breaks (the first `limit` of them); empty when it is right.

    The problem must have passed `check_problem`. O(n log n) for a right layout; else n times the buffers live
    at once, in arrays.
    """
    with arrays_kept(problem):
        if is_sound(problem, layout):
            return ()
        return tuple(islice(violations(problem, layout, _pairs(problem, layout)), limit))


def is_sound(problem: LayoutProblem, layout: Layout) -> bool:
    """Whether arrays show that a layout breaks no rule. False decides nothing: numbers may be too large."""
    steps, low = Instance.in_steps(problem), integers(layout.offsets)
    if len(low) != len(problem.buffers) or not len(low):
        return not len(low) and not problem.buffers and not layout.peak
    if steps is None or low.dtype == object or int(low.min()) < 0:
        return False
    pinned = steps.offset != FREE
    wrong = (low > MAX_BYTES - steps.exact) | (low % steps.alignment != 0) | (pinned & (steps.offset != low))
    for reserved in problem.reserved:
        wrong |= (steps.exact > 0) & (low < reserved.high) & (low + steps.exact > reserved.low)
    peak = int(np.where(steps.exact > 0, low + steps.exact, 0).max())
    over = problem.capacity is not None and peak > problem.capacity
    return not (wrong.any() or peak != layout.peak or over) and disjoint(rectangles(problem, layout.offsets))


def _pairs(problem: LayoutProblem, layout: Layout) -> Iterator[tuple[int, int]]:
    """Buffers that hold the same bytes at the same time, each pair once, in order of time."""
    rows = rectangles(problem, layout.offsets)
    owner = rows[4]
    seen: set[tuple[int, int]] = set()
    for one, other in meeting(rows):
        i, j = int(owner[one]), int(owner[other])
        pair = min(i, j), max(i, j)
        if pair not in seen:
            seen.add(pair)
            yield pair


def integers(values: Sequence[int]) -> _Integers:
    """An array of 64 bits, or of the values as they are where one is larger or no whole number."""
    if set(map(type, values)) <= {int}:
        with suppress(OverflowError):
            return np.array(values, np.int64)
    return np.array(values, object)


def columns(rows: Sequence[tuple[int, int, int, int, int]]) -> Rectangles:
    """The rows as arrays."""
    start, end, low, high, owner = (integers([row[k] for row in rows]) for k in range(5))
    return start, end, low, high, owner


def rectangles(problem: LayoutProblem, offsets: Sequence[int]) -> Rectangles:
    """The rectangles that the buffers hold at these offsets; rows without bytes are left out. Linear."""
    steps, offset = Instance.in_steps(problem), integers(offsets)
    if steps is None or offset.dtype == object or bool((offset > MAX_BYTES - steps.exact).any()):
        rows = [
            (start, end, at + low, at + high, i)
            for i, (buffer, at) in enumerate(zip(problem.buffers, offsets, strict=True))
            for start, end, low, high in held(buffer)
        ]
        start, end, low, high, owner = columns(rows)
    else:
        start, end, low, high, owner = steps.held().T
        low += offset[owner]
        high += offset[owner]
    taken = (start < end) & (low < high)
    if not bool(taken.all()):
        start, end, low, high, owner = (array[taken] for array in (start, end, low, high, owner))
    return start, end, low, high, owner


def disjoint(rows: Rectangles) -> bool:
    """Whether no two rectangles meet."""
    start, end, low, high, _ = rows
    count = len(start)
    sharing = int(np.sort(start).searchsorted(end).sum()) - count * (count + 1) // 2
    if sharing >= SWEPT_FROM_PAIRS and all(array.dtype != object for array in rows):
        from solver.layout.check import sweep  # compiled code, where it is needed

        if sweep.is_compiled():
            return sweep.disjoint(start, end, low, high)
    return next(meeting(rows), None) is None


def meeting(rows: Rectangles) -> Iterator[tuple[int, int]]:
    """Numbers of rows that meet, each pair once, the earlier start first."""
    start, end, low, high, _ = rows
    order = np.argsort(start, kind="stable")
    live = order[:0]
    for first in range(0, len(order), BLOCK_ROWS):
        block = order[first : first + BLOCK_ROWS]
        live = np.concatenate((live[end[live] > start[block[0]]], block))
        one, other = block[:, None], live[None, :]
        # Of two rows in one block, the later is compared with the earlier.
        before = np.arange(len(live)) < np.arange(len(live) - len(block), len(live))[:, None]
        meets = before & (start[one] < end[other]) & (low[one] < high[other]) & (low[other] < high[one])
        for i, j in zip(*np.nonzero(meets), strict=True):
            yield int(live[j]), int(block[i])
