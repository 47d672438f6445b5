"""A walk through whole sequences of steps: what numbers of gaps cannot say, and what costs least near floors.

    sequence     0 1 2 3 1 4 0 1 5           steps 0 and 1 run again, step 1 twice
    neighbours   one more run in front of a reader, so that a value need not wait
                 one run less, so that its readers take the instance before
                 one run elsewhere: early, while what it reads is there

Numbers of gaps make everything just before its reader. A sequence may make a value again as often as it
likes, whenever it likes, with its whole past or a part of it; so segments within segments are found as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.native import addressed
from solver.schedules.native import WALK_EVENT
from solver.schedules.recompute import sequence_kernel as kernel
from solver.schedules.tables import MOST_RUNS, tables

__all__ = ["Sequences", "places_for"]

#: Steps measured between two looks at the deadline: some ten milliseconds.
_SLICE = 500_000

#: Places in the table of logarithms that the walk throws its dice with.
_DICE = 1024


class Sequences:
    """Walks for one problem, in memory that is kept. Not for several threads."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self._most = MOST_RUNS * len(problem.steps) + 1
        self._places = places_for(problem)
        self._given = addressed(tables(problem)), addressed(self._places)
        self._other = addressed(places_for(problem))
        self._logarithms: Integers = np.array(
            [round(-1024 * math.log((i + 0.5) / _DICE)) for i in range(_DICE)], np.int64
        )

    def measure(self, sequence: Sequence[int]) -> tuple[int, int]:
        """The peak in bytes, -1 where a step runs again too late; and what the repetitions cost."""
        row: Integers = np.array(sequence, np.int64)
        peak = int(kernel.measure(row, len(row), 2**62, *self._given))
        return peak, int(self._places.result[kernel.EXTRA])

    def overloads(self, sequence: Sequence[int], budget: int) -> dict[int, int]:
        """The steps of the given order that run, or are prepared, over the budget; with the most bytes."""
        self.measure(sequence)
        excess_by_step: dict[int, int] = {}
        position = 0
        for step, load in zip(sequence, self._places.load[: len(sequence)].tolist(), strict=True):
            if load > budget:
                excess_by_step[position] = max(excess_by_step.get(position, 0), load - budget)
            position += step == position
        return excess_by_step

    def walk(
        self,
        start: Sequence[int],
        budget: int,
        most: int,
        *,
        seed: int,
        hot: int,
        weight: int,
        deadline: Deadline,
    ) -> tuple[int, ...] | None:
        """The cheapest sequence within the budget that `most` turns from `start` on came by, if any.

        `start` may take more than the budget, and is not an answer itself. `weight` is what bytes over the
        budget cost on the way, `hot` the first temperature, both in nanoseconds.
        """
        if len(start) >= self._most:
            return None
        row: Integers = np.zeros(self._most, np.int64)
        row[: len(start)] = start
        best, result = row.copy(), np.array([-1, 0], np.int64)
        state: Integers = np.array([seed + 1], np.int64)
        count, part = len(start), max(1, _SLICE // max(1, len(start)))
        for begin in range(0, most, part):
            if deadline.expired:
                break
            deadline.spend(WALK_EVENT * count * (min(begin + part, most) - begin))
            count = kernel.walk(
                row,
                count,
                budget,
                begin,
                min(begin + part, most),
                most,
                hot,
                weight,
                self._logarithms,
                state,
                best,
                result,
                *self._given,
                self._other,
            )
        return tuple(best[: int(result[1])].tolist()) if result[0] >= 0 else None


def places_for(problem: ScheduleProblem) -> kernel.Places:
    """Working memory for sequences of a problem, to be used again and again."""
    steps, values = len(problem.steps), len(problem.values)
    events = MOST_RUNS * steps + 1
    instances = events * max(1, max(map(len, problem.writes), default=1)) + values

    def room(count: int) -> Integers:
        return np.zeros(max(count, 1), np.int64)

    return kernel.Places(
        load=room(events + 1),
        change=room(events + 2),
        fresh=room(events),
        value=room(instances),
        first=room(instances),
        last=room(instances),
        current=room(values),
        wanted=room(values),
        wanted_there=room(values),
        marked=room(steps),
        tried=room(events),
        chain=room(kernel.MOST_AT_ONCE),
        firsts=room(events + 1),
        costs=room(events + 1),
        overs=room(events + 1),
        fullest=room(events + 1),
        fullest_behind=room(events + 1),
        result=room(5),
    )
