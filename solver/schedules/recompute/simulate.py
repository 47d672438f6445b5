"""Calls the compiled simulation and greedy repair of one problem, in memory that is kept between calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.native import addressed
from solver.schedules.native import REPAIR_STEP
from solver.schedules.recompute import kernel
from solver.schedules.tables import nothing_again, tables, work_for

__all__ = ["Run", "Simulator", "replay"]

#: Steps simulated between two looks at the deadline: some ten milliseconds.
_SLICE = 500_000


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a simulation: peak in bytes, cost of the repetitions in nanoseconds.

    A peak of -1: the numbers of the gaps give no legal sequence.
    """

    peak: int
    extra: int
    events: int


class Simulator:
    """Simulates one problem. Not for several threads: what a run leaves is read before the next one."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self.problem = problem
        self.simulations = 0
        self._work = work_for(problem)
        self._given = addressed(tables(problem)), addressed(self._work)
        self._slice = max(1, _SLICE // max(1, len(problem.steps)))
        self._tried: Integers = np.zeros(max(1, len(self._work.first)), np.int64)

    def start(self) -> Integers:
        """The numbers of the given order, in which nothing runs again."""
        return nothing_again(self.problem)

    def run(self, numbers: Integers, budget: int = 2**62) -> Run:
        """Simulate. Tens of microseconds for some hundred steps."""
        self.simulations += 1
        peak = kernel.simulate(numbers, budget, *self._given)
        result = self._work.result
        return Run(int(peak), int(result[kernel.EXTRA]), int(result[kernel.EVENTS]))

    def sequence(self, numbers: Integers) -> tuple[int, ...]:
        """The steps in the order in which they run."""
        run = self.run(numbers)
        return tuple(self._work.steps[: run.events].tolist())

    def loads(self, numbers: Integers) -> tuple[int, ...]:
        """The bytes live at each event of the sequence."""
        run = self.run(numbers)
        return tuple(self._work.load[: run.events].tolist())

    def repair(self, numbers: Integers, budget: int, most: int, deadline: Deadline) -> Integers:
        """The numbers with the least peak that a greedy descent of at most `most` simulations comes by."""
        numbers, best, candidate = numbers.copy(), numbers.copy(), numbers.copy()
        least, left = -1, most
        while left > 0 and not deadline.expired:
            part = min(left, self._slice)
            done = kernel.repair(numbers, budget, part, candidate, self._tried, *self._given)
            self.simulations += done
            deadline.spend(REPAIR_STEP * done * len(self.problem.steps))
            left -= done
            peak = self.run(candidate).peak
            if peak >= 0 and (least < 0 or peak <= least):
                least, best = peak, candidate.copy()
            if done < part or 0 <= least <= budget:
                break
        return best


def replay(problem: ScheduleProblem, sequence: tuple[int, ...]) -> tuple[int, ...]:
    """The load of each event of a sequence, in bytes: the plain twin of the compiled simulation.

    A step defines new instances of what it writes each time that it runs; an instance lives from there to its
    last reader. Raises KeyError for a step that reads what no step before it has written. O(events x live).
    """
    now: dict[int, list[int]] = {}
    instances: list[tuple[int, list[int]]] = []

    def begin(v: int, event: int) -> None:
        now[v] = [event, event]
        instances.append((v, now[v]))

    for v, from_caller in enumerate(problem.fed):
        if from_caller:
            begin(v, 0)
    for event, t in enumerate(sequence):
        for v in problem.reads[t]:
            now[v][1] = event
        for v in problem.writes[t]:
            begin(v, event)
    for v, kept in enumerate(problem.kept):
        if kept:
            now[v][1] = len(sequence) - 1
    ran: set[int] = set()
    loads = []
    for t in sequence:
        loads.append(problem.fixed + (problem.scratch_again[t] if t in ran else problem.scratch[t]))
        ran.add(t)
    for v, (first, last) in instances:
        for event in range(first, last + 1):
            loads[event] += problem.size[v]
    return tuple(loads)
