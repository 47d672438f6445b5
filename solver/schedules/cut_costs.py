"""What keeping a budget costs at least in every order of the steps: a moment for which the order is open.

The few-moment relaxation (`moments`) knows what has run at a moment, for the order is given. Here it decides
about that, too: the steps that have run when step t first does are any closed set with t in it, and without
what follows t (`cuts`).

    done[s]      step s has run for the first time: with it all that it follows
    held[v]      value v is in memory while t runs, if done[maker of v]
    made[p]      step p, which has run, runs again later

    minimise the cost of all made[p], where
      * a step that has not run finds each v that it reads, if v was made:  held[v] or made[maker of v]
      * so does a step that runs again:                          made[p] -> held[u] or made[maker of u]
      * the budget is kept: fixed + touched + scratch + what waits and cannot be made again + all that is held

Every schedule, in whatever order, satisfies that at its first run of t; so the optimum is a lower bound on
the cost of all schedules of the program, and none keeps the budget where the model has no solution.

Imports OR-Tools when a model is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from solver.layout import Deadline
from solver.schedules.cuts import Cuts
from solver.schedules.native import run_native
from solver.schedules.problem import ScheduleProblem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CostInEveryOrder", "least_cost"]

#: Deterministic time that CP-SAT has for all moments and for one: a second or two.
_WORK, _WORK_MOMENT = 2.0, 0.4

#: Moments at most: the fullest ones by their cut. Steps of the largest program, and cuts that are looked at.
_MOMENTS, _STEPS, _CUTS = 12, 3_000, 200

#: A literal of the model, or what is known of it.
_Known: TypeAlias = "cp_model.IntVar | bool"


@dataclass(frozen=True, slots=True)
class CostInEveryOrder:
    """No schedule in any order keeps the budget for less than `bound` nanoseconds; the moment is step `step`.

    `impossible`: none keeps it at all.
    """

    bound: int = 0
    step: int | None = None
    impossible: bool = False


def least_cost(
    problem: ScheduleProblem,
    before: Sequence[AbstractSet[int]],
    budget: int,
    load: Sequence[int],
    deadline: Deadline | None = None,
) -> CostInEveryOrder:
    """A lower bound on the cost of all schedules that keep `budget` bytes, whatever their order.

    `before` and ``load[t]`` are as in `cuts.least_peak`; only where the load is over the budget in that order
    can anything be proved. Cost: a second or two for some hundred steps; nothing is tried for thousands.
    """
    deadline = deadline or Deadline()
    over = sorted((t for t, bytes_ in enumerate(load) if bytes_ > budget), key=lambda t: (-load[t], t))
    if not over or len(problem.steps) > _STEPS:
        return CostInEveryOrder()
    cuts, at = Cuts(problem, before), dict[int, int]()
    for t in over[:_CUTS]:
        if deadline.expired:
            return CostInEveryOrder()
        at[t] = cuts.bytes_at(t, deadline)
    full = sorted((t for t, bytes_ in at.items() if bytes_ > budget), key=lambda t: (-at[t], t))
    best, left = CostInEveryOrder(), _WORK
    for t in full[:_MOMENTS]:
        if left <= 0 or deadline.expired:
            break
        model = _Moment(problem, before, budget, t)
        found, work = model.solve(min(left, _WORK_MOMENT), deadline)
        left -= work
        if found.impossible:
            return found
        best = max(best, found, key=lambda found: found.bound)
    return best


class _Moment:
    """The model of one step."""

    def __init__(
        self, problem: ScheduleProblem, before: Sequence[AbstractSet[int]], budget: int, step: int
    ) -> None:
        from ortools.sat.python import cp_model

        self._problem, self._step, self._model = problem, step, cp_model.CpModel()
        self._touched = {*problem.reads[step], *problem.writes[step]}
        self._done = self._closed(before)
        self._readers: list[list[int]] = [[] for _ in problem.values]
        self._writers: list[list[int]] = [[] for _ in problem.values]
        for t in range(len(problem.steps)):
            for v in problem.reads[t]:
                self._readers[v].append(t)
            for v in problem.writes[t]:
                self._writers[v].append(t)
        again = {v for t, until in enumerate(problem.until) if until >= 0 for v in problem.reads[t]}
        self._held: dict[int, cp_model.IntVar] = {}
        self._made: dict[int, cp_model.IntVar] = {}
        for p, until in enumerate(problem.until):
            ended = self._done[until] if 0 <= until < len(problem.steps) else False
            if until < 0 or self._done[p] is False or ended is True:
                continue
            made = self._made[p] = self._model.new_bool_var("")
            self._clause((made, False), (self._done[p], True))
            self._clause((made, False), (ended, False))
        for v in range(len(problem.values)):
            if v in self._touched or self._was_made(v) is False:
                continue
            if problem.maker[v] >= 0 or v in again or problem.kept[v] or self._readers[v]:
                self._held[v] = self._model.new_bool_var("")
        self._need()
        unit = math.gcd(*problem.size) or 1
        counted = problem.counted
        room = budget - problem.fixed - problem.scratch[step]
        room -= sum(problem.size[v] for v in self._touched & counted)
        waiting = sum(problem.size[v] // unit * held for v, held in self._held.items() if v in counted)
        self._fits = room >= 0
        self._model.add(waiting <= max(room, 0) // unit)
        self._model.minimize(sum(problem.cost[p] * made for p, made in self._made.items()))

    def _closed(self, before: Sequence[AbstractSet[int]]) -> list[_Known]:
        """For each step whether it has run: known of what stands before and behind the moment's."""
        count = len(before)
        found: list[_Known | None] = [None] * count
        found[self._step] = True
        for t in range(self._step, -1, -1):
            if found[t] is True:
                for s in before[t]:
                    found[s] = True
        for t in range(self._step + 1, count):
            if any(s == self._step or found[s] is False for s in before[t]):
                found[t] = False
        done = [self._model.new_bool_var("") if each is None else each for each in found]
        for t in range(count):
            for s in before[t]:
                self._clause((done[t], False), (done[s], True))
        return done

    def _clause(self, *literals: tuple[_Known, bool]) -> None:
        """One of the literals has the value that stands beside it."""
        open_ = []
        for literal, wanted in literals:
            if isinstance(literal, bool):
                if literal == wanted:
                    return
            else:
                open_.append(literal if wanted else literal.negated())
        self._model.add_bool_or(open_)

    def _was_made(self, v: int) -> _Known:
        """Whether a value has been made by then; of values of several writers that is open, and not asked."""
        if self._problem.given[v]:
            return True
        return self._done[self._writers[v][0]] if len(self._writers[v]) == 1 else False

    def _need(self) -> None:
        """What is read later is held, or made again."""
        problem, never = self._problem, False
        for v, held in self._held.items():
            made = self._made.get(problem.maker[v], never)
            was_made = self._was_made(v)
            self._clause((held, False), (was_made, True))
            if problem.kept[v]:
                self._clause((was_made, False), (held, True), (made, True))
            for q in self._readers[v]:
                self._clause((was_made, False), (self._done[q], True), (held, True), (made, True))
        for p, made_again in self._made.items():
            for u in problem.reads[p]:
                if u in self._held:
                    source = self._made.get(problem.maker[u], never)
                    self._clause((made_again, False), (self._held[u], True), (source, True))

    def solve(self, work: float, deadline: Deadline) -> tuple[CostInEveryOrder, float]:
        """What CP-SAT proves in its deterministic time, and how much of that it took."""
        from ortools.sat.python import cp_model

        if not self._fits:
            return CostInEveryOrder(step=self._step, impossible=True), 0.0
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.max_deterministic_time = work
        # Its own handler of Ctrl-C would stay behind, and end the process with the next one.
        solver.parameters.catch_sigint_signal = False
        status = run_native(lambda: solver.solve(self._model), solver.stop_search, deadline)
        if status is None:
            return CostInEveryOrder(), work
        spent = solver.response_proto.deterministic_time
        if status == cp_model.INFEASIBLE:
            return CostInEveryOrder(step=self._step, impossible=True), spent
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            return CostInEveryOrder(), spent
        bound = max(0, math.ceil(solver.best_objective_bound - 1e-6))
        return CostInEveryOrder(bound, self._step if bound else None), spent
