"""Plans to start from near the floor: the forward pass in segments, of which only the boundaries are held.

    forward    a  b  c | d  e  f | g  h  i      what crosses a bar is held until the backward pass needs it,
               ......... ......... .........    the rest of a segment is made again when it gets there

Chen et al., *Training deep nets with sublinear memory cost*, 2016, with boundaries by bytes. On its own such
a plan is far from the least cost; repaired, and walked from, it leads to budgets that a descent from the
given order does not reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout.model.instance import Integers
from solver.schedules.tables import AGAIN

__all__ = ["in_segments"]


def in_segments(problem: ScheduleProblem, start: Integers, counts: Iterable[int]) -> Iterator[Integers]:
    """For each count of segments, each with about an equal part of all bytes that can be made again,
    the numbers of gaps. Linear in the touches once, and in the steps for each.
    """
    again = [v for v, maker in enumerate(problem.maker) if maker >= 0]
    turn = max((problem.maker[v] for v in again), default=-1) + 1  # the first step behind all that may repeat
    size = sum(problem.size[v] for v in again)
    made = [sum(problem.size[v] for v in problem.writes[t] if problem.maker[v] >= 0) for t in range(turn)]
    # Values that wait for the turn: the gap, the step that makes them, the last one before the turn to read.
    waiting: list[tuple[int, int, int]] = []
    at = 0
    for v, row in enumerate(problem.touches):
        if problem.maker[v] >= 0:
            waiting += [
                (at + k, row[0], row[k])
                for k in range(len(row) - 1)
                if row[k] < turn <= row[k + 1] and row[k + 1] > row[k] + 1
            ]
        at += len(row)
    gaps, first, last = np.array(waiting, np.int64).reshape(-1, 3).T
    for parts in counts:
        boundaries, bytes_ = [], 0
        for t in range(turn):
            bytes_ += made[t]
            if bytes_ > size / max(parts, 1):
                boundaries.append(t)
                bytes_ = 0
        bars: Integers = np.array(boundaries, np.int64)
        crosses = np.searchsorted(bars, first) < np.searchsorted(bars, last)
        numbers = start.copy()
        numbers[gaps[~crosses]] = AGAIN
        yield numbers
