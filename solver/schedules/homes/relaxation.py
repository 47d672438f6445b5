"""The linear relaxation of a problem of homes: a bound with its multipliers, and parts of items by memory.

    load of memory k on row r  =  load on row r - 1  +  what is born on row r  -  what has died

So a row has the items that come and go there, not all that are held, and the program stays small.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from solver.accounting.homes import HomeProblem, added_up_homes, reduced_times
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.program import HomeBound, HomeRow
from solver.schedules.native import lp_solved

__all__ = ["Relaxation", "Rows", "relaxed"]


class Rows:
    """The levels that capacities are about: of all levels those on which the most is held at once.

        level    0  1  2  3  4  5  6  7
        a        [-----------)
        b              [--------------)
        c                       [-----)
        rows              ^        ^        what is held on other levels is held on one of these as well

    `levels` has one level for each row, rising.

    `spans[i]` are the half-open ranges of rows on which item i is held; it may be empty in sum, where others
    that are held for longer stand for it.
    """

    def __init__(self, problem: HomeProblem) -> None:
        self.problem = problem
        starts = {span.start for item in problem.items if item.size for span in item.spans}
        ends = {span.end for item in problem.items if item.size for span in item.spans}
        points = sorted(starts | ends)
        # A row stands in front of each end behind the first start that follows the end before.
        self.levels: list[int] = []
        born = None
        for point in points:
            if point in ends and born is not None:
                self.levels.append(born)
                born = None
            if point in starts:
                born = point
        self.spans = [
            [(bisect_left(self.levels, s.start), bisect_left(self.levels, s.end)) for s in item.spans]
            for item in problem.items
        ]
        self.size = [item.size for item in problem.items]

    def __len__(self) -> int:
        return len(self.levels)

    @cached_property
    def load(self) -> Integers:
        """The bytes of all items on each row."""
        total = np.zeros(len(self), np.int64)
        for i, size in enumerate(self.size):
            self.add(total, i, size)
        return total

    def add(self, load: Integers, i: int, size: int) -> None:
        """Change the load by `size` bytes where item i is held."""
        for low, high in self.spans[i]:
            load[low:high] += size

    def room(self, load: Integers, i: int, capacity: int) -> bool:
        """Whether item i keeps the capacity beside a load that it is not part of."""
        most = capacity - self.size[i]
        return all(low == high or int(load[low:high].max()) <= most for low, high in self.spans[i])


#: Parts of a nanosecond a byte in which multipliers are written.
_DENOMINATOR = 2**30

#: Steps of the simplex method, so that its end does not depend on time: far beyond what networks take.
_ITERATIONS = 200_000


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A proved bound, and for each item the part of it that each memory has in the linear solution.

    All homes with item i in memory k take `penalties[i][k]` nanoseconds more than the bound at least.
    """

    bound: HomeBound
    parts: tuple[tuple[float, ...], ...]
    penalties: tuple[tuple[int, ...], ...]


def relaxed(problem: HomeProblem, rows: Rows, deadline: Deadline) -> Relaxation:
    """The relaxation. Where the linear program has no solution in time, the bound without multipliers."""
    free = [tuple(min((t, k) for k, t in enumerate(i.nanoseconds) if t is not None)) for i in problem.items]
    simple = Relaxation(
        HomeBound(sum(t for t, _ in free), 1, ()),
        tuple(tuple(float(k == best) for k in range(len(problem.capacities))) for _, best in free),
        _penalties(problem, (), 1),
    )
    active = [[r for r in range(len(rows)) if rows.load[r] > most] for most in problem.capacities]
    if not any(active) or deadline.expired:
        return simple
    return _solved(problem, rows, active, deadline) or simple


def _solved(
    problem: HomeProblem, rows: Rows, active: list[list[int]], deadline: Deadline
) -> Relaxation | None:
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

    solver = pywraplp.Solver.CreateSolver("GLOP")
    if solver is None:
        return None
    solver.SetSolverSpecificParametersAsString(f"max_number_of_iterations: {_ITERATIONS}")
    longest = max((t or 0 for item in problem.items for t in item.nanoseconds), default=1) or 1
    parts: list[list[Any]] = []
    for item in problem.items:
        variables = [None if t is None else solver.NumVar(0.0, 1.0, "") for t in item.nanoseconds]
        one = solver.Constraint(1.0, 1.0)
        for variable, t in zip(variables, item.nanoseconds, strict=True):
            if variable is not None:
                one.SetCoefficient(variable, 1.0)
                solver.Objective().SetCoefficient(variable, (t or 0) / longest)
        parts.append(variables)
    loads: list[tuple[int, int, Any]] = []
    for k, capacity in enumerate(problem.capacities):
        number = {r: position for position, r in enumerate(active[k])}
        balance = [solver.Constraint(0.0, 0.0) for _ in active[k]]
        scale = float(max(capacity, 1))
        before = None
        for r, row in zip(active[k], balance, strict=True):
            load = solver.NumVar(0.0, capacity / scale, "")
            row.SetCoefficient(load, 1.0)
            if before is not None:
                row.SetCoefficient(before, -1.0)
            before = load
            loads.append((k, r, load))
        here = set(active[k])
        behind = list(accumulate((r in here for r in range(len(rows))), initial=0))  # active rows in front
        for i, variables in enumerate(parts):
            change: dict[int, float] = {}
            if variables[k] is None:
                continue
            for low, high in rows.spans[i]:
                a, b = behind[low], behind[high]
                if a < b:
                    change[a] = change.get(a, 0.0) - rows.size[i] / scale
                    change[b] = change.get(b, 0.0) + rows.size[i] / scale
            for position, coefficient in change.items():
                if position < len(number) and coefficient:
                    balance[position].SetCoefficient(variables[k], coefficient)
    solver.Objective().SetMinimization()
    status = lp_solved(solver, deadline)
    if status != pywraplp.Solver.OPTIMAL:
        return None
    multipliers = []
    for k, r, load in loads:
        # Nanoseconds that a byte more would save on this row.
        saved = -load.reduced_cost() * longest / max(problem.capacities[k], 1)
        if multiplier := round(max(0.0, saved) * _DENOMINATOR):
            multipliers.append(HomeRow(k, rows.levels[r], multiplier))
    bound = added_up_homes(problem, multipliers, _DENOMINATOR)
    return Relaxation(
        HomeBound(bound, _DENOMINATOR, tuple(multipliers)),
        tuple(tuple(0.0 if v is None else v.solution_value() for v in row) for row in parts),
        _penalties(problem, multipliers, _DENOMINATOR),
    )


def _penalties(
    problem: HomeProblem, rows: Sequence[HomeRow], denominator: int
) -> tuple[tuple[int, ...], ...]:
    penalties = []
    for row in reduced_times(problem, rows, denominator):
        least = min(each for each in row if each is not None)
        penalties.append(tuple(0 if each is None else (each - least) // denominator for each in row))
    return tuple(penalties)
