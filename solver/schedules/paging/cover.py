"""Which gaps are paged: a covering problem, first greedily, then by integer programming (`model`).

    minimise    bytes in of every gap taken  +  bytes out of all contents that one of them writes out
    such that   on each level the gaps taken free what is over the capacity

Dropping a gap that the rest can do without never makes it worse, so greedy answers have none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from solver.layout import Deadline
from solver.schedules.paging.gaps import PagingProblem
from solver.schedules.paging.model import exact

__all__ = ["Cover", "greedy", "least_moved", "needed_only"]

#: CP-SAT's deterministic time for one lookahead: some seconds, in which most programs are settled.
WORK = 6.0


@dataclass(frozen=True, slots=True)
class Cover:
    """The gaps that are paged, by number; bytes moved in and out, and how many are moved at least.

    `complete` is false where wall time ended the search.
    """

    taken: frozenset[int]
    moved_in: int
    moved_out: int
    bound: int
    complete: bool = True

    @property
    def moved(self) -> int:
        return self.moved_in + self.moved_out


def greedy(problem: PagingProblem, capacity: int) -> frozenset[int]:
    """The gap that frees most of what is over, for each byte that it moves; until nothing is over.

    Then what the rest can do without is held again, the dearest first. Every level must be able to keep the
    capacity (`problem.smallest`). O(g^2 l) for g gaps and l levels, in NumPy.
    """
    over = np.array(problem.loads(), np.int64) - capacity
    count = len(problem.gaps)
    frees = np.zeros((count, problem.levels), bool)
    for j, gap in enumerate(problem.gaps):
        for span in gap.free:
            frees[j, span.start : span.end] = True
    size = np.array([gap.size for gap in problem.gaps], np.int64)
    taken: set[int] = set()
    written: set[int] = set()
    while over.max(initial=0) > 0:
        needed = np.maximum(over, 0)
        busy = needed > 0
        gain = (np.minimum(size[:, None], needed[None, busy]) * frees[:, busy]).sum(axis=1).astype(float)
        cost = np.array(
            [
                problem.moved[j]
                + (0 if gap.contents is None or gap.contents in written else problem.contents[gap.contents])
                for j, gap in enumerate(problem.gaps)
            ],
            float,
        )
        gain[list(taken)] = -1.0
        best = int(np.argmax(gain / np.maximum(cost, 0.5)))
        taken.add(best)
        contents = problem.gaps[best].contents
        if contents is not None:
            written.add(contents)
        over -= size[best] * frees[best]
    return needed_only(problem, capacity, taken)


def needed_only(problem: PagingProblem, capacity: int, taken: Collection[int]) -> frozenset[int]:
    """The gaps without those that the rest can do without, of which the dearest are held again first."""
    left = set(taken)
    room = [capacity - load for load in problem.loads(frozenset(left))]
    for j in sorted(left, key=lambda j: (-problem.moved[j], j)):
        gap = problem.gaps[j]
        if all(min(room[span.start : span.end]) >= gap.size for span in gap.free):
            left.discard(j)
            for span in gap.free:
                for level in range(span.start, span.end):
                    room[level] -= gap.size
    return frozenset(left)


def least_moved(problem: PagingProblem, capacity: int, deadline: Deadline) -> Cover:
    """The gaps to page so that few bytes are moved. `capacity` is `problem.smallest` or more."""
    over = max(problem.loads(), default=0) - capacity
    if over <= 0:
        return Cover(frozenset(), 0, 0, 0)
    start = greedy(problem, capacity)
    found = exact(problem, capacity, start, WORK, deadline)
    taken = needed_only(problem, capacity, found.taken)
    into, out = problem.cost(taken)
    return Cover(taken, into, out, min(found.bound, into + out), found.complete)
