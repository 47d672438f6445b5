"""Orders of the steps of one problem: their peaks, what is over a cut, and walks through their neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.native import addressed
from solver.program import followers
from solver.schedules.order import order_kernel as kernel
from solver.schedules.tables import end_to_end, tables

__all__ = ["Orders"]

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
        """The load of each place of an order, in bytes. Overwritten by what is asked for next."""
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
        """What is least over the last cut of `most` turns from `start` on: see `order_kernel.walk`.

        A turn takes about a microsecond. The deadline cuts in.
        """
        order: Integers = np.array(start, np.int64)
        best, state = order.copy(), np.array([seed + 1, cut, -1], np.int64)
        walked, kept, numbers = map(addressed, (order, best, state))
        for begin in range(0, most, _SLICE):
            end = min(begin + _SLICE, most)
            if deadline.expired or not kernel.walk(
                walked, kept, begin, end, most, target, hot, numbers, *self._given
            ):
                break
        return tuple(best.tolist())
