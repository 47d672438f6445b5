"""A lower bound on the cost of keeping a budget, in every order of the steps: moments with an open order.

The few-moment relaxation (`moments`) knows what has run at a moment, for the order is given. Here it decides
about that, too: the steps that have run when step t first does are any closed set with t in it, and without
what follows t (`cuts`). Of several moments each follows the one before it in every order:

    a step            t0 ────────────────► t1 ─────► t2        t1 follows t0, and t2 follows t1
    done[s, i]        step s has run for the first time when t_i does: with it all that it follows
    held[v, i]        value v is in memory while t_i runs, if done[maker of v, i]
    made[p, i]        step p, which had run then, runs again behind t_i, up to t_i+1

    minimise the cost of all made[p, i], where of each v that had been made when t_i ran
      * a step that runs for the first time behind it, up to t_i+1, and reads v finds it:
                                                    held[v, i] or made[maker of v, i]
      * so does a step that runs again there:       made[p, i] -> held[v, i] or made[maker of v, i]
      * what is held later comes from somewhere:    held[v, i+1] -> held[v, i] or made[maker of v, i]
      * each moment keeps the budget: fixed + touched + scratch + what waits and cannot be made again + all
        that is held

Every schedule, in whatever order, satisfies that at its first runs of these steps; so the optimum is a lower
bound on the cost of all schedules of the program, and none keeps the budget where the model has no solution.

Imports OR-Tools when a model is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.schedules.native import cp_solved, cp_solver
from solver.schedules.order.cuts import Cuts

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CostInEveryOrder", "least_cost"]

#: CP-SAT's deterministic seconds for all models of one moment, for all of each larger number, and for one
#: model.
_WORK, _WORK_SEVERAL, _WORK_MODEL = 2.0, 1.0, 0.4

#: Steps that are tried as a single moment, the fullest by their cut; stretches of the steps of which the
#: fullest step is tried as one more moment; and the most moments of a model.
_TRIED, _STRETCHES, _MOMENTS = 12, 12, 3

#: The most steps of a program, and of one for which several moments are tried; and the most cuts.
_STEPS, _STEPS_SEVERAL, _CUTS = 3_000, 1_200, 200

#: A literal of the model, or what is known of it.
_Known: TypeAlias = "cp_model.IntVar | bool"


@dataclass(frozen=True, slots=True)
class CostInEveryOrder:
    """No schedule in any order keeps the budget for less than `bound` nanoseconds; the moments are `steps`.

    `impossible`: none keeps it at all.
    """

    bound: int = 0
    steps: tuple[int, ...] = ()
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
    can anything be proved. Cost: some seconds at most for some hundred steps; nothing is tried for thousands.
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
    best = CostInEveryOrder()

    def dearest(several: Iterable[tuple[int, ...]], left: float) -> CostInEveryOrder:
        """The highest of `best` and the bounds that these moments prove, until the work is used up."""
        highest = best
        for steps in several:
            if left <= 0 or highest.impossible or deadline.expired:
                break
            answer, work = _Moments(problem, before, budget, steps).solve(min(left, _WORK_MODEL), deadline)
            left -= work
            highest = max(highest, answer, key=lambda each: (each.impossible, each.bound))
        return highest

    best = dearest(((t,) for t in full[:_TRIED]), _WORK)
    if len(problem.steps) > _STEPS_SEVERAL:
        return best
    earlier, apart = _earlier(before), _fullest_apart(full)
    while best.bound and not best.impossible and len(best.steps) < _MOMENTS:
        known = best
        best = dearest(_with_another(known.steps, apart, earlier), _WORK_SEVERAL)
        if best == known:
            break
    return best


def _earlier(before: Sequence[AbstractSet[int]]) -> list[set[int]]:
    """For each step all that it must follow. Quadratic in the steps."""
    before_each: list[set[int]] = []
    for steps in before:
        before_each.append(set(steps).union(*(before_each[s] for s in steps)))
    return before_each


def _fullest_apart(full: Sequence[int]) -> list[int]:
    """The fullest one of each stretch of these steps, which come by their bytes; in order."""
    rank, steps = {t: k for k, t in enumerate(full)}, sorted(full)
    ends = sorted({k * len(full) // _STRETCHES for k in range(_STRETCHES + 1)})
    return [min(steps[begin:end], key=rank.__getitem__) for begin, end in pairwise(ends)]


def _with_another(
    steps: tuple[int, ...], others: Sequence[int], earlier: Sequence[AbstractSet[int]]
) -> Iterator[tuple[int, ...]]:
    """The moments with one of the others, where each follows the one before it."""
    for t in others:
        front = tuple(s for s in steps if s in earlier[t])
        back = tuple(s for s in steps if t in earlier[s])
        if len(front) + len(back) == len(steps):
            yield (*front, t, *back)


class _Moments:
    """The model of one step, or of several of which each must follow the one before it."""

    def __init__(
        self,
        problem: ScheduleProblem,
        before: Sequence[AbstractSet[int]],
        budget: int,
        steps: tuple[int, ...],
    ) -> None:
        from ortools.sat.python import cp_model

        self._problem, self._steps, self._model = problem, steps, cp_model.CpModel()
        self._done = [self._closed(before, step) for step in steps]
        for sooner, later in pairwise(self._done):
            for has, will in zip(sooner, later, strict=True):
                self._clause((has, False), (will, True))
        self._readers: list[list[int]] = [[] for _ in problem.values]
        self._writers: list[list[int]] = [[] for _ in problem.values]
        for t in range(len(problem.steps)):
            for v in problem.reads[t]:
                self._readers[v].append(t)
            for v in problem.writes[t]:
                self._writers[v].append(t)
        self._again = {v for t, until in enumerate(problem.until) if until >= 0 for v in problem.reads[t]}
        #: What is decided at each moment. Of values that it touches nothing is: they are there.
        self._held: list[dict[int, cp_model.IntVar]] = []
        self._made: list[dict[int, cp_model.IntVar]] = []
        for i in range(len(steps)):
            self._made.append(self._repetitions(i))
            self._held.append(self._waiting(i))
        for i in range(len(steps)):
            self._need(i)
        rooms = [self._keep_budget(i, budget) for i in range(len(steps))]
        self._fits = min(rooms) >= 0
        self._model.minimize(
            sum(
                problem.cost[p] * runs_again
                for repetitions in self._made
                for p, runs_again in repetitions.items()
            )
        )

    def _repetitions(self, i: int) -> dict[int, cp_model.IntVar]:
        """The steps that may run again after moment i: they have run, and their inputs are unchanged."""
        done, variables = self._done[i], dict[int, "cp_model.IntVar"]()
        for p, until in enumerate(self._problem.until):
            ended = done[until] if 0 <= until < len(done) else False
            if until < 0 or done[p] is False or ended is True:
                continue
            runs_again = variables[p] = self._model.new_bool_var("")
            self._clause((runs_again, False), (done[p], True))
            self._clause((runs_again, False), (ended, False))
        return variables

    def _waiting(self, i: int) -> dict[int, cp_model.IntVar]:
        """The values that may be held at moment i."""
        problem, step, variables = self._problem, self._steps[i], dict[int, "cp_model.IntVar"]()
        touched = {*problem.reads[step], *problem.writes[step]}
        for v in range(len(problem.values)):
            was_made = self._was_made(v, i)
            if v in touched or was_made is False:
                continue
            if problem.maker[v] >= 0 or v in self._again or problem.kept[v] or self._readers[v]:
                held = variables[v] = self._model.new_bool_var("")
                self._clause((held, False), (was_made, True))
        return variables

    def _keep_budget(self, i: int, budget: int) -> int:
        """The row of the bytes of moment i; the answer is the room that what is there anyway leaves."""
        problem, step = self._problem, self._steps[i]
        unit = math.gcd(*problem.size) or 1
        counted = problem.counted
        room = budget - problem.fixed - problem.scratch[step]
        room -= sum(problem.size[v] for v in {*problem.reads[step], *problem.writes[step]} & counted)
        waiting = sum(problem.size[v] // unit * held for v, held in self._held[i].items() if v in counted)
        self._model.add(waiting <= max(room, 0) // unit)
        return room

    def _closed(self, before: Sequence[AbstractSet[int]], step: int) -> list[_Known]:
        """For each step whether it has run when `step` does: known of what it follows and what follows it."""
        count = len(before)
        literals: list[_Known | None] = [None] * count
        literals[step] = True
        for t in range(step, -1, -1):
            if literals[t] is True:
                for s in before[t]:
                    literals[s] = True
        for t in range(step + 1, count):
            if any(s == step or literals[s] is False for s in before[t]):
                literals[t] = False
        done = [self._model.new_bool_var("") if each is None else each for each in literals]
        for t in range(count):
            for s in before[t]:
                self._clause((done[t], False), (done[s], True))
        return done

    def _clause(self, *literals: tuple[_Known, bool]) -> None:
        """One of the literals has the value that stands beside it."""
        open_ = []
        for literal, value in literals:
            if isinstance(literal, bool):
                if literal == value:
                    return
            else:
                open_.append(literal if value else literal.negated())
        self._model.add_bool_or(open_)

    def _was_made(self, v: int, i: int) -> _Known:
        """Whether a value had been made by moment i. Of what is written more than once, or given and written,
        the contents at a moment are open: nothing is asked of it.
        """
        if len(self._writers[v]) + self._problem.fed[v] != 1:
            return False
        return True if self._problem.fed[v] else self._done[i][self._writers[v][0]]

    def _need(self, i: int) -> None:
        """A value that is read after moment i, or held at the next one, is held at moment i or made again."""
        problem, never, held_there, repeated = self._problem, False, self._held[i], self._made[i]
        following = self._done[i + 1] if i + 1 < len(self._steps) else None
        for v, held in held_there.items():
            had, sources = (
                (self._was_made(v, i), False),
                ((held, True), (repeated.get(problem.maker[v], never), True)),
            )
            for q in self._readers[v]:
                runs = True if following is None else following[q]
                self._clause(had, (self._done[i][q], True), (runs, False), *sources)
            if following is None:
                if problem.kept[v]:
                    self._clause(had, *sources)
            elif v in self._held[i + 1]:
                self._clause(had, (self._held[i + 1][v], False), *sources)
        for p, made_again in repeated.items():
            for u in problem.reads[p]:
                if u in held_there:
                    source = repeated.get(problem.maker[u], never)
                    self._clause((made_again, False), (held_there[u], True), (source, True))

    def solve(self, work: float, deadline: Deadline) -> tuple[CostInEveryOrder, float]:
        """The bound that CP-SAT proves in its deterministic time, and how much of that time it took."""
        from ortools.sat.python import cp_model

        if not self._fits:
            return CostInEveryOrder(steps=self._steps, impossible=True), 0.0
        solver = cp_solver(work, deadline)
        status = cp_solved(solver, self._model, deadline)
        if status is None:
            return CostInEveryOrder(), work
        spent = solver.response_proto.deterministic_time
        if status == cp_model.INFEASIBLE:
            return CostInEveryOrder(steps=self._steps, impossible=True), spent
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            return CostInEveryOrder(), spent
        bound = max(0, math.ceil(solver.best_objective_bound - 1e-6))
        return CostInEveryOrder(bound, self._steps if bound else ()), spent
