"""Which gaps are paged: a covering problem, first greedily, then by integer programming (`model`).

    minimise    bytes in of every gap taken  +  bytes out of all contents that one of them writes out
    such that   on each level the gaps taken free what is over the capacity

Dropping a gap that the rest can do without never makes it worse, so greedy answers have none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from solver.accounting.gaps import GapKind, PagingProblem
from solver.layout import Deadline
from solver.schedules.paging.model import SLACK, exact

__all__ = ["WORK", "Cover", "greedy", "least_moved", "level_bound", "needed_only"]

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


def greedy(
    problem: PagingProblem, capacity: int, start: Collection[int] = (), *, thrifty: bool = False
) -> frozenset[int]:
    """On the fullest level the gap that frees most of what is over, for each byte moved; until nothing is.

    Then what the rest can do without is held again, the dearest first. It begins with the gaps `start`, and
    every level must be able to keep the capacity (`problem.smallest`). With `thrifty` what counts is not what
    is moved but what slower memory has to hold, for how many levels. O(g + l) for each gap taken, g being all
    gaps and l levels.
    """
    taken = set(start)
    over = np.array(problem.loads(frozenset(taken)), np.int64) - capacity
    gaps = problem.gaps
    spans = [(span.start, span.end, j) for j, gap in enumerate(gaps) for span in gap.free]
    begin, end, owner = np.array(spans, np.int64).reshape(-1, 3).T
    size = np.array([gap.size for gap in gaps], np.int64)
    cost = np.array(_held(problem) if thrifty else problem.moved, float)
    sharing: dict[int | None, list[int]] = {}
    for j, gap in enumerate(gaps):
        sharing.setdefault(gap.contents, []).append(j)
        if not thrifty:
            cost[j] += 0 if gap.contents is None else problem.contents[gap.contents]

    def take(j: int) -> None:
        """Its contents are written out: the other gaps with the same ones cost less from now on."""
        number = gaps[j].contents
        if number is not None and not thrifty:
            cost[sharing.pop(number, [])] -= problem.contents[number]

    for j in taken:
        take(j)
    while over.max(initial=0) > 0:
        level = int(np.argmax(over))
        needed = np.maximum(over, 0)
        sums = np.concatenate([[0], np.cumsum(needed)])
        counts = np.concatenate([[0], np.cumsum(needed > 0)])
        freed = np.minimum(sums[end] - sums[begin], size[owner] * (counts[end] - counts[begin]))
        ratio = np.bincount(owner, freed, len(gaps)) / np.maximum(cost, 0.5)
        here = np.zeros(len(gaps), bool)
        here[owner[(begin <= level) & (level < end)]] = True
        here[list(taken)] = False
        best = int(np.argmax(np.where(here, ratio, -1.0)))
        taken.add(best)
        take(best)
        for span in gaps[best].free:
            over[span.start : span.end] -= size[best]
    return needed_only(problem, capacity, taken, _held(problem) if thrifty else problem.moved)


def _held(problem: PagingProblem) -> list[int]:
    """What each gap takes of slower memory if it is paged: bytes times levels."""
    found = []
    for gap in problem.gaps:
        throughout = gap.kind is not GapKind.MIDDLE or gap.contents is None
        found.append(gap.size * (problem.levels if throughout else gap.end - gap.start + 1))
    return found


def level_bound(problem: PagingProblem, capacity: int) -> int:
    """Bytes that are moved at least, by what is over on the fullest level alone.

    There every value has one gap, so what that costs is known: what frees most for a byte comes first, the
    last one in part. Linear, but for sorting.
    """
    loads = problem.loads()
    level = max(range(problem.levels), key=loads.__getitem__)
    left = loads[level] - capacity
    here = []
    for j, gap in enumerate(problem.gaps):
        if any(span.start <= level < span.end for span in gap.free):
            out = 0 if gap.contents is None else problem.contents[gap.contents]
            here.append((problem.moved[j] + out, gap.size))
    bound = Fraction(0)
    for cost, size in sorted(here, key=lambda item: Fraction(*item)):
        if left <= 0:
            break
        bound += Fraction(cost * min(size, left), size)
        left -= size
    return ceil(bound)


def needed_only(
    problem: PagingProblem, capacity: int, taken: Collection[int], costs: Sequence[int] | None = None
) -> frozenset[int]:
    """The gaps without those that the rest can do without, of which the dearest are held again first: by
    `costs`, else by the bytes that come in.
    """
    costs = problem.moved if costs is None else costs
    left = set(taken)
    room = [capacity - load for load in problem.loads(frozenset(left))]
    for j in sorted(left, key=lambda j: (-costs[j], j)):
        gap = problem.gaps[j]
        if all(min(room[span.start : span.end]) >= gap.size for span in gap.free):
            left.discard(j)
            for span in gap.free:
                for level in range(span.start, span.end):
                    room[level] -= gap.size
    return frozenset(left)


def least_moved(problem: PagingProblem, capacity: int, deadline: Deadline, *, work: float = WORK) -> Cover:
    """The gaps to page so that few bytes are moved. `capacity` is `problem.smallest` or more.

    `work` is CP-SAT's deterministic time, about seconds.
    """
    over = max(problem.loads(), default=0) - capacity
    if over <= 0:
        return Cover(frozenset(), 0, 0, 0)
    start = greedy(problem, capacity)
    found = exact(problem, capacity, start, work, deadline)
    # Of large programs the model has some levels only: what is over on the others is freed greedily.
    taken = greedy(problem, capacity, found.taken)
    if sum(problem.cost(taken)) > sum(problem.cost(start)) * (1 + SLACK):
        taken = start
    into, out = problem.cost(taken)
    bound = max(found.bound, level_bound(problem, capacity))
    return Cover(taken, into, out, min(bound, into + out), found.complete)
