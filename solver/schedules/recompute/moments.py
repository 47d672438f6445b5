"""The few-moment relaxation: what must be held, and made again, at a few steps of the given order.

    given order    0 ............ t0 ......... t1 ...... t2 ............ n
                                  |            |         |
    held[v, i]     value v is in memory while step t_i runs
    made[p, i]                     step p runs again in (t_i, t_i+1]

    minimise the cost of all made[p, i], where
      * a step in (t_i, t_i+1] finds each v that it reads, if v is older:   held[v, i] or made[maker of v, i]
      * so does a step that runs again there:                made[p, i] -> held[u, i] or made[maker of u, i]
      * what is held later comes from somewhere:           held[v, i+1] -> held[v, i] or made[maker of v, i]
      * each moment keeps the budget: fixed + touched + scratch + what cannot be made again + all that is held

Every schedule that keeps the order of first runs satisfies all rows, however often it recomputes, so the
optimum is a lower bound on the cost of all of them. And its solution is a schedule of that cost, which may be
over the budget between two moments. Checkmate (Jain et al., MLSys 2020) has these rows with a moment for
each step; here are moments only where the memory is full, and all rows but one a moment are clauses.

Imports OR-Tools when a model is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.schedules.native import cp_solved, cp_solver
from solver.schedules.tables import AGAIN

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Moments", "Relaxed", "fullest", "tightest"]


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The answer of CP-SAT: a lower bound in nanoseconds, the values that are not held at each moment, the
    steps that run again after each, and whether wall time cut the search. `infeasible`: no schedule keeps the
    budget. `work` is the deterministic time that it took.
    """

    bound: int
    dropped: tuple[tuple[int, int], ...] | None
    repeated: tuple[tuple[int, int], ...] = ()
    work: float = 0.0
    infeasible: bool = False
    cut: bool = False


def fullest(load: Sequence[int], budget: int, most: int) -> tuple[int, ...]:
    """The fullest step of each of `most` stretches of the steps over the budget, in order."""
    over = [t for t, bytes_ in enumerate(load) if bytes_ > budget]
    return tuple(max(part, key=lambda t: load[t]) for part in _stretches(over, most))


def _stretches(steps: Sequence[int], most: int) -> list[Sequence[int]]:
    """Steps in `most` parts of about the same length, in order; in fewer parts if there are fewer steps."""
    count = min(most, len(steps))
    return [steps[i * len(steps) // count : (i + 1) * len(steps) // count] for i in range(count)]


def tightest(problem: ScheduleProblem, budget: int, most: int) -> tuple[int, ...]:
    """Of each of `most` stretches of the steps over the budget, that where least room is left to hold things.

    What a step touches, its scratch and what cannot be made again leave no choice. Linear in the touches.
    """
    count = len(problem.steps)
    first, last = problem.spans
    sure, held = [0] * (count + 1), [0] * (count + 1)
    for v, maker in enumerate(problem.maker):
        begin, end = max(first[v], 0), min(last[v], count - 1) + 1
        for change in (held,) if maker >= 0 else (held, sure):
            change[begin] += problem.size[v]
            change[end] -= problem.size[v]
    sure, held = list(accumulate(sure)), list(accumulate(held))
    for t in range(count):
        touched = {*problem.reads[t], *problem.writes[t]}
        sure[t] += problem.scratch[t] + sum(problem.size[v] for v in touched if problem.maker[v] >= 0)
        held[t] += problem.scratch[t]
    over = [t for t in range(count) if problem.fixed + held[t] > budget]
    return tuple(max(part, key=lambda t: sure[t]) for part in _stretches(over, most))


class Moments:
    """The model of one problem, budget and set of moments.

    `less` takes bytes off the budget of some moments: a help for a search whose plans go over it there. Such
    a model is not a relaxation: what it says of costs is not a bound. With `most` only schedules count whose
    repetitions cost no more nanoseconds: where there is none, `infeasible` proves just that.
    """

    def __init__(
        self,
        problem: ScheduleProblem,
        budget: int,
        moments: Iterable[int],
        less: Mapping[int, int] | None = None,
        *,
        most: int | None = None,
    ) -> None:
        from ortools.sat.python import cp_model

        self.problem, self._asks = problem, most is not None
        self.moments = tuple(sorted(moments))
        self._model = cp_model.CpModel()
        self._held: dict[tuple[int, int], cp_model.IntVar] = {}
        self._made: dict[tuple[int, int], cp_model.IntVar] = {}
        #: Values that are there at a moment whatever is decided.
        self._sure: list[set[int]] = []
        self.infeasible = False
        self._first, self._last = problem.spans
        #: What repetitions read can wait for them, though nothing makes it again.
        may_repeat = [t for t, until in enumerate(problem.until) if until >= 0]
        self._read_again = {v for t in may_repeat for v in problem.reads[t]}
        unit = math.gcd(*problem.size) or 1
        for i, t in enumerate(self.moments):
            self._keep_budget(i, t, budget - (less or {}).get(t, 0), unit)
        for i in range(len(self.moments)):
            self._supply(i)
        cost = sum(problem.cost[p] * runs_again for (p, _), runs_again in self._made.items())
        self._model.minimize(cost)
        if most is not None:
            self._model.add(cost <= most)

    def _keep_budget(self, i: int, t: int, room: int, unit: int) -> None:
        """Variables of moment i, and the row of its bytes."""
        problem = self.problem
        sure = {*problem.reads[t], *problem.writes[t]}
        room -= problem.fixed + problem.scratch[t]
        free = []
        for v, first in enumerate(self._first):
            if v in sure:
                continue
            if first >= t:
                continue
            if problem.maker[v] < 0 and self._last[v] > t:
                sure.add(v)
            elif problem.maker[v] >= 0 or v in self._read_again:
                self._held[v, i] = self._model.new_bool_var("")
                free.append(v)
        self._sure.append(sure)
        room -= sum(problem.size[v] for v in sure)
        if room < 0:
            self.infeasible = True
            return
        self._model.add(sum(problem.size[v] // unit * self._held[v, i] for v in free) <= room // unit)
        following = self.moments[i + 1] if i + 1 < len(self.moments) else len(problem.steps)
        for p, until in enumerate(problem.until[: t + 1]):
            if t < until and following > t:
                self._made[p, i] = self._model.new_bool_var("")

    def _supply(self, i: int) -> None:
        """Between moment i and the next one every reader finds what it reads."""
        problem, model, moment = self.problem, self._model, self.moments[i]
        last = i + 1 == len(self.moments)
        end = len(problem.steps) - 1 if last else self.moments[i + 1]

        def sources(v: int) -> list[cp_model.IntVar] | None:
            """The variables of which one puts a value there; None if it is there anyway."""
            if v in self._sure[i] or self._first[v] > moment:
                return None
            variables = (self._held.get((v, i)), self._made.get((problem.maker[v], i)))
            return [variable for variable in variables if variable is not None]

        read_next = {v for q in range(moment + 1, end + 1) for v in problem.reads[q]}
        for v in sorted(read_next):
            literals = sources(v)
            if literals is not None:
                model.add_bool_or(literals)
        for (p, j), runs_again in self._made.items():
            if j == i:
                for v in problem.reads[p]:
                    literals = sources(v)
                    if literals is not None:
                        model.add_bool_or([*literals, runs_again.negated()])
        if not last:
            for v, first in enumerate(self._first):
                later = self._held.get((v, i + 1))
                literals = sources(v) if later is not None and first <= moment else None
                if later is not None and literals is not None:
                    model.add_bool_or([*literals, later.negated()])

    def solve(self, work: float, deadline: Deadline, seed: int = 0) -> Relaxed:
        """`work` is CP-SAT's deterministic time. When the deadline has passed it stops with what it has, or
        nothing.
        """
        if self.infeasible:
            return Relaxed(0, None, infeasible=True)
        # Linear relaxations lift the bound on a cost; a plain question is answered sooner without most.
        solver = cp_solver(work, deadline, seed=seed, linearization=1 if self._asks else 2)
        status = cp_solved(solver, self._model, deadline)
        return (
            Relaxed(0, None, cut=deadline.late) if status is None else self._answer(solver, status, deadline)
        )

    def _answer(
        self, solver: cp_model.CpSolver, status: cp_model.CpSolverStatus, deadline: Deadline
    ) -> Relaxed:
        from ortools.sat.python import cp_model

        work = round(solver.response_proto.deterministic_time, 6)  # the last digits are noise
        if status == cp_model.INFEASIBLE:
            return Relaxed(0, None, work=work, infeasible=True)
        cut = status != cp_model.OPTIMAL and deadline.late
        bound = max(0, math.ceil(solver.best_objective_bound - 1e-6))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Relaxed(bound, None, work=work, cut=cut)
        free = (place for place, held in self._held.items() if not solver.boolean_value(held))
        dropped = tuple((v, self.moments[i]) for v, i in free)
        again = (place for place, runs_again in self._made.items() if solver.boolean_value(runs_again))
        return Relaxed(bound, dropped, tuple((p, self.moments[i]) for p, i in again), work, cut=cut)

    def numbers(self, relaxed: Relaxed, start: Integers) -> Integers:
        """The numbers of gaps that a solution says: what is not held at a moment is made again behind it."""
        numbers = start.copy()
        begin, at = {}, 0
        for v, row in enumerate(self.problem.touches):
            begin[v], at = at, at + len(row)
        touches = self.problem.touches
        for v, t in relaxed.dropped or ():
            row = touches[v]
            before = sum(touch < t for touch in row)
            if self.problem.maker[v] >= 0 and 0 < before < len(row):
                numbers[begin[v] + before - 1] = AGAIN
        return numbers

    def sequence(self, relaxed: Relaxed) -> tuple[int, ...]:
        """The schedule that a solution says, which costs what the solution does: what is held, and the steps
        that run again behind each moment, as late as their readers there allow. Only its bytes may be too
        many. Linear in the values times moments.
        """
        problem = self.problem
        held, dropped, again = ({t: set[int]() for t in self.moments} for _ in range(3))
        for v, i in self._held:
            held[self.moments[i]].add(v)
        for chosen, places in ((dropped, relaxed.dropped or ()), (again, relaxed.repeated)):
            for number, t in places:
                chosen[t].add(number)
        there, repeat, order = set[int](), set[int](), list[int]()

        def supply(values: Iterable[int]) -> None:
            """Run what makes the values that are not there, behind what that reads."""
            chain, missing = set[int](), [v for v in values if v not in there]
            while missing:
                step = problem.maker[missing.pop()]
                if step in repeat and step not in chain:
                    chain.add(step)
                    missing += [v for v in problem.reads[step] if v not in there]
            repeat.difference_update(chain)
            order.extend(sorted(chain))
            there.update(v for step in chain for v in problem.writes[step])

        for t in range(len(problem.steps)):
            supply(problem.reads[t])
            if t in again:
                supply(held[t] - dropped[t])
            order.append(t)
            there.update(problem.writes[t])
            if t in again:
                there -= dropped[t]
                repeat = again[t]
        return tuple(order)
