"""Another order of the same steps, with a lower peak: list scheduling, then walks through neighbours.

    order bound met? ──► lists: least growth first, most bytes freed first ──► walks from the best one

The bound comes first, for most training steps meet it in the order that they have: then nothing is tried.
Where branches wait for each other, as in networks with many paths or captured programs, peaks of orders
differ by a fifth. Minimum cuts bound how much lower the peak can be (`cuts`).

A walk minimises the bytes over a cut, summed over places. When no place exceeds the cut, the cut is lowered,
and so the peak falls. With a budget the cut stays at the budget: recomputation has to save what exceeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.native import addressed
from solver.program import followers
from solver.schedules.native import ORDER_TURN
from solver.schedules.order import order_kernel as kernel
from solver.schedules.order.cuts import least_peak
from solver.schedules.tables import end_to_end, tables

__all__ = ["Ordered", "Orders", "best_order"]

#: Turns between two looks at the deadline: some milliseconds.
_SLICE = 5_000


class Orders:
    """Walks for one problem, in memory that is kept between calls. Not for several threads.

    ``before[t]`` are the steps that step t must follow.
    """

    def __init__(self, problem: ScheduleProblem, before: Sequence[frozenset[int]]) -> None:
        count, values = len(problem.steps), len(problem.values)
        lengths = (values, values, values, values, count, count, count, count, count)
        self._room = kernel.Room(*(np.zeros(length, np.int64) for length in lengths))
        touched = [
            sorted({*reads, *writes}) for reads, writes in zip(problem.reads, problem.writes, strict=True)
        ]
        rows = [sorted(earlier) for earlier in before], followers(before), touched
        links = kernel.Links(*(column for row in rows for column in end_to_end(row)))
        self._given = addressed(tables(problem)), addressed(links), addressed(self._room)

    def peak(self, order: Sequence[int]) -> int:
        """The peak in bytes of an order in which each step runs once."""
        return int(kernel.peak_of(np.array(order, np.int64), *self._given)) if order else 0

    def over(self, order: Sequence[int], cut: int) -> int:
        """The bytes over a cut, summed over the places of an order."""
        return int(np.maximum(self.loads(order) - cut, 0).sum())

    def loads(self, order: Sequence[int]) -> Integers:
        """The load of each place of an order, in bytes; a view that the next call of a method overwrites."""
        self.peak(order)
        return self._room.load

    def walk(
        self,
        start: Sequence[int],
        cut: int,
        most: int,
        *,
        target: int,
        hot: int,
        seed: int,
        deadline: Deadline,
    ) -> tuple[int, ...]:
        """The order of `most` turns from `start` on that exceeds the last cut least: `order_kernel.walk`.

        A turn takes about a microsecond. The deadline cuts in.
        """
        order: Integers = np.array(start, np.int64)
        best, state = order.copy(), np.array([seed + 1, cut, -1], np.int64)
        walked, kept, numbers = map(addressed, (order, best, state))
        for begin in range(0, most, _SLICE):
            end = min(begin + _SLICE, most)
            deadline.spend(ORDER_TURN * (end - begin))
            if deadline.expired or not kernel.walk(
                walked, kept, begin, end, most, target, hot, numbers, *self._given
            ):
                break
        return tuple(best.tolist())


#: Turns of all walks for a step of the program, and at most: tenths of a second for some hundred steps, and
#: some seconds. A small program has few orders.
_TURNS_A_STEP, _TURNS = 6_000, 3_000_000

#: Walks, one behind the other: the part of the peak that all places together may be worse by at first, and
#: the percent of the peak at which the first cut is. A low cut leads to a low sum, and a high one to a peak.
_WALKS = ((16, 90), (5, 97), (16, 97), (50, 97))


@dataclass(frozen=True, slots=True)
class Ordered:
    """`order` has the steps by number; peaks are in bytes. No order has a smaller peak than `bound`.

    `complete` is false where wall time ended the search.
    """

    order: tuple[int, ...]
    peak: int
    given_peak: int
    bound: int
    complete: bool = True


def best_order(
    problem: ScheduleProblem,
    before: Sequence[frozenset[int]],
    deadline: Deadline | None = None,
    *,
    budget: int | None = None,
    turns: int = _TURNS,
    bound: int | None = None,
) -> Ordered:
    """The order with the lowest peak that was found; the given one where the bound says that none is better.

    With `budget` the order that is least over it, in bytes summed over steps; none is lower than it needs to
    be. `before[t]` are steps that step t must follow, which stand in front of it in the given order. `turns`
    are those of all walks, so that the answer is the same everywhere; a deadline cuts in. `bound` are bytes
    that no order stays below, where they are known. Cost: that of the bound, tenths of a second at most for
    a thousand steps, and a microsecond for each turn.
    """
    deadline = deadline or Deadline()
    orders, count = Orders(problem, before), len(problem.steps)
    present = tuple(range(count))
    load: list[int] = orders.loads(present).tolist() if count else []
    given_peak = max(load, default=0)
    if bound is None:
        bound = least_peak(problem, before, load, deadline)
    target = max(bound, budget or 0)
    if given_peak <= target or count < 2:
        return Ordered(present, given_peak, given_peak, bound)
    starts = [present] + [
        tuple(_list(problem, before, key))
        for key in (lambda adds, frees: adds - frees, lambda adds, frees: (-frees, adds))
    ]

    def rank(order: tuple[int, ...]) -> tuple[int, int]:
        return 0 if budget is None else orders.over(order, budget), orders.peak(order)

    best = min(starts, key=rank)
    peak = rank(best)[1]
    most = min(turns, _TURNS_A_STEP * count) // len(_WALKS)
    for seed, (part, percent) in enumerate(_WALKS):
        if peak <= target:
            break
        cut = max(target, peak * percent // 100) if budget is None else budget
        walked = orders.walk(best, cut, most, target=target, hot=peak // part, seed=seed, deadline=deadline)
        best = min(best, walked, key=rank)
        peak = rank(best)[1]
        if deadline.expired:
            break
    return Ordered(best, peak, given_peak, bound, complete=not deadline.late)


def _list(
    problem: ScheduleProblem, before: Sequence[frozenset[int]], key: Callable[[int, int], object]
) -> list[int]:
    """List scheduling: of the steps that may run next the one whose bytes, added and freed, rank first."""
    count = len(problem.steps)
    waits = [len(earlier) for earlier in before]
    after = followers(before)
    touched = [tuple(dict.fromkeys((*problem.reads[t], *problem.writes[t]))) for t in range(count)]
    uses = [0] * len(problem.values)
    for values in touched:
        for v in values:
            uses[v] += 1
    there, ready, order = set[int](), {t for t in range(count) if not waits[t]}, list[int]()
    while ready:

        def rank(t: int) -> tuple[object, int]:
            adds = sum(problem.size[v] for v in problem.writes[t] if v not in there)
            frees = sum(problem.size[v] for v in touched[t] if uses[v] == 1 and not problem.kept[v])
            return key(adds, frees), t

        t = min(ready, key=rank)
        ready.remove(t)
        order.append(t)
        there.update(problem.writes[t])
        for v in touched[t]:
            uses[v] -= 1
        for u in after[t]:
            waits[u] -= 1
            if not waits[u]:
                ready.add(u)
    return order
