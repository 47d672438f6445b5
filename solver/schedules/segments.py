"""Plans to start from near the floor: the forward pass in segments, of which only the boundaries are held.

    forward    a  b  c | d  e  f | g  h  i      what crosses a bar is held until the backward pass needs it,
               ......... ......... .........    the rest of a segment is made again when it gets there

Chen et al., *Training deep nets with sublinear memory cost*, 2016, with boundaries by bytes. On its own such
a plan is far from the least cost; repaired, and walked from, it leads to budgets that a descent from the
given order does not reach.
"""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import Integers
from solver.schedules.problem import ScheduleProblem
from solver.schedules.tables import AGAIN

__all__ = ["in_segments"]


def in_segments(problem: ScheduleProblem, start: Integers, parts: int) -> Integers:
    """The numbers of gaps with segments of about a `parts`-th of all bytes that can be made again. Linear
    in the touches times the number of segments.
    """
    again = [v for v, maker in enumerate(problem.maker) if maker >= 0]
    turn = max((problem.maker[v] for v in again), default=-1) + 1  # the first step behind all that may repeat
    size = sum(problem.size[v] for v in again) / max(parts, 1)
    boundaries, bytes_ = [], 0
    for t in range(turn):
        bytes_ += sum(problem.size[v] for v in problem.writes[t] if problem.maker[v] >= 0)
        if bytes_ > size:
            boundaries.append(t)
            bytes_ = 0
    genes, at = start.copy(), 0
    bars = np.array(boundaries, np.int64)
    for v, row in enumerate(problem.touches):
        if problem.maker[v] >= 0:
            last = max((t for t in row if t < turn), default=-1)
            crosses = np.any((bars >= row[0]) & (bars < last))
            for k in range(len(row) - 1):
                waits = row[k] < turn <= row[k + 1] and row[k + 1] > row[k] + 1
                if waits and not crosses:
                    genes[at + k] = AGAIN
        at += len(row)
    return genes
