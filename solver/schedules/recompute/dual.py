"""The dual of the few-moment relaxation: multipliers that prove a bound on the cost of recomputation.

`solver.program.records` has the rows, `solver.verify` adds them up. Here a linear program is solved for
multipliers that make the sum large; then rows of budgets are added that its solution breaks, because it drops
parts of values.

Imports OR-Tools, when a linear program is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from solver.accounting.problem import ScheduleProblem, joined, may_share
from solver.layout import Deadline
from solver.program import CostBound, DualRow, Program, RowKind
from solver.schedules.native import lp_solved

__all__ = ["proved_cost"]

#: Multipliers are whole numbers of such parts: what rounding loses is below a nanosecond.
_DENOMINATOR = 2**20

#: Rounds in which rows are added, how many of them for each moment, and how many rounds in a row may pass
#: without raising the bound by this part of it.
_ROUNDS, _CUTS, _PATIENCE, _GAIN = 30, 2, 4, 20_000

#: Values times moments of a linear program: a second. Of larger ones some moments are left out.
_PAIRS = 60_000

#: Iterations of the simplex method in all rounds: seconds for some thousand rows.
_ITERATIONS = 60_000

#: Sets that are left out of a budget's row: what a solution drops, or nearly so.
_SHARES = (1 - 1e-6, 0.9, 0.7, 0.5, 0.3, 2.0)

#: By how much a row must be broken to be worth adding.
_BROKEN = 1e-4

#: ``held`` with a value, or ``made`` with a step, at a moment by number.
_Variable: TypeAlias = tuple[str, int, int]


def proved_cost(
    program: Program,
    problem: ScheduleProblem,
    budget: int,
    moments: Sequence[int],
    deadline: Deadline | None = None,
    *,
    in_place: bool = False,
) -> CostBound | None:
    """A bound within `budget` bytes by rows at some steps of the order; None where nothing is proved, or the
    deadline cut in.

    `problem` is that of `program`, whose values are those of its reference. The bound is near that of the
    relaxation in whole numbers, and mostly below it. With `in_place` it holds as well for schedules that
    define values in the bytes of others. Cost: tenths of a second for some hundred steps.
    """
    return _Dual(program, problem, budget, moments, deadline or Deadline(), in_place=in_place).run()


@dataclass(frozen=True, slots=True)
class _Row:
    kind: RowKind
    moment: int
    right: int
    left: tuple[tuple[_Variable, int], ...]
    value: int = -1
    step: int = -1
    divisor: int = 0
    without: tuple[int, ...] = ()


class _Dual:
    """One linear program; lives for one call of `proved_cost`."""

    def __init__(
        self,
        program: Program,
        problem: ScheduleProblem,
        budget: int,
        moments: Sequence[int],
        deadline: Deadline,
        *,
        in_place: bool,
    ) -> None:
        self.program, self.problem, self.budget, self.in_place = program, problem, budget, in_place
        most = max(1, _PAIRS // max(1, len(problem.values)))
        ordered = sorted(set(moments))
        self.moments, self.deadline = tuple(ordered[:: -(-len(ordered) // most) or 1]), deadline
        steps = len(problem.steps)
        self.first, self.last = problem.spans
        again = {v for t in range(steps) if problem.until[t] >= 0 for v in problem.reads[t]}
        choosable = again | {v for v, maker in enumerate(problem.maker) if maker >= 0}
        self.touched = [{*problem.reads[t], *problem.writes[t]} for t in self.moments]
        self.free = [
            [v for v in sorted(choosable) if self.first[v] < t and not self._sure(v, i)]
            for i, t in enumerate(self.moments)
        ]
        self._is_free = [set(free) for free in self.free]
        #: Of what may be held, that of which the bytes are counted.
        self.counted = list(self.free)
        #: The values of the problem as numbers of the program, and the other way round.
        self.values = [program.by_label[label] for label in problem.values]
        self._number = {value: v for v, value in enumerate(self.values)}
        views = (pair for t in range(steps * in_place) for pair in self._pairs(t, views=True))
        #: For each value the first of those that views, one of the other, show.
        self._shown = joined(len(problem.values), views)
        self.need = [self._needed(i) for i in range(len(self.moments))]

    def _sure(self, v: int, i: int) -> bool:
        waits = self.problem.maker[v] < 0 and self.first[v] < self.moments[i] < self.last[v]
        return waits or v in self.touched[i]

    def _needed(self, i: int) -> int:
        problem, size = self.problem, self.problem.size
        there = [v for v in range(len(problem.values)) if self._sure(v, i)]
        bytes_ = problem.fixed + problem.scratch[self.moments[i]] - self.budget
        if not self.in_place:
            return bytes_ + sum(size[v] for v in (*there, *self.free[i]))
        # Values with the same contents may share bytes, and so may what the step reads and defines: of these
        # only the largest counts, and of those that may be held the one that is read last.
        root = {v: self._shown[v] for v in (*there, *self.free[i])}
        for a, b in self._pairs(self.moments[i]):
            low, high = sorted((root[a], root[b]))
            root = {v: low if each == high else each for v, each in root.items()}
        largest, waits = dict[int, int](), dict[int, int]()
        for v in there:
            largest[root[v]] = max(largest.get(root[v], 0), size[v])
        for v in self.free[i]:
            if root[v] not in largest:
                other = waits.setdefault(root[v], v)
                waits[root[v]] = max(other, v, key=lambda v: (self.last[v], size[v], -self.values[v]))
        self.counted[i] = sorted(waits.values())
        return bytes_ + sum(largest.values()) + sum(size[v] for v in self.counted[i])

    def _pairs(self, t: int, *, views: bool = False) -> list[tuple[int, int]]:
        number, step = self._number, self.program.steps[t]
        shared = may_share(self.program, step, views=views)
        return [(number[a], number[b]) for a, b in shared if a in number and b in number]

    # ------------------------------------------------------------------------------------------- rows

    def _rows(self) -> Iterator[_Row]:
        problem, count = self.problem, len(self.moments)
        for i, t in enumerate(self.moments):
            end = self.moments[i + 1] if i + 1 < count else len(problem.steps) - 1
            unit = min((problem.size[v] for v in self.counted[i]), default=1)
            yield self._budget(i, self._alignment(unit))
            read_next = {v for q in range(t + 1, end + 1) for v in problem.reads[q]}
            for v in sorted(read_next):
                if self._asks(v, i):
                    yield _Row(RowKind.READER, i, 1, self._sources(v, i), v)
            for p, until in enumerate(problem.until[: t + 1]):
                for v in dict.fromkeys(problem.reads[p]) if t < until else ():
                    if self._asks(v, i):
                        left = (*self._sources(v, i), (("made", p, i), -1))
                        yield _Row(RowKind.REPETITION, i, 0, left, v, p)
            if i + 1 < count:
                for v in self.free[i + 1]:
                    if self._asks(v, i):
                        left = (*self._sources(v, i), (("held", v, i + 1), -1))
                        yield _Row(RowKind.HELD, i, 0, left, v)

    def _alignment(self, unit: int) -> int:
        """The finest divisor that loses nothing: places are multiples of it."""
        return max(1, unit & -unit, *(space.alignment for space in self.program.spaces))

    def _asks(self, v: int, i: int) -> bool:
        """Whether a value that is read behind a moment has to come from somewhere."""
        return self.first[v] <= self.moments[i] and not self._sure(v, i)

    def _sources(self, v: int, i: int) -> tuple[tuple[_Variable, int], ...]:
        sources: list[tuple[_Variable, int]] = []
        if v in self._is_free[i]:
            sources.append((("held", v, i), 1))
        maker = self.problem.maker[v]
        if 0 <= maker <= self.moments[i] < self.problem.until[maker]:
            sources.append((("made", maker, i), 1))
        return tuple(sources)

    def _budget(self, i: int, divisor: int, without: tuple[int, ...] = ()) -> _Row:
        size = self.problem.size
        rest = max(0, self.need[i] - sum(size[v] for v in without))
        weights = [(v, -(-min(rest, size[v]) // divisor)) for v in self.counted[i] if v not in without]
        left = tuple([(("held", v, i), -weight) for v, weight in weights])
        right = -(-rest // divisor) - sum(weight for _, weight in weights)
        return _Row(RowKind.BUDGET, i, right, left, divisor=divisor, without=without)

    # ------------------------------------------------------------------------------------------ solving

    def run(self) -> CostBound | None:
        from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

        solver = pywraplp.Solver.CreateSolver("GLOP")
        if solver is None or not self.moments or max(self.need) <= 0:
            return None
        solver.SetSolverSpecificParametersAsString(f"max_number_of_iterations: {_ITERATIONS}")
        infinity, cost = solver.infinity(), self.problem.cost
        variables: dict[_Variable, Any] = {}
        rows: list[_Row] = []
        constraints: list[Any] = []

        def add(row: _Row) -> None:
            constraint = solver.Constraint(float(row.right), infinity)
            for key, coefficient in row.left:
                if key not in variables:
                    variables[key] = solver.NumVar(0.0, 1.0, "")
                    if key[0] == "made":
                        solver.Objective().SetCoefficient(variables[key], float(cost[key[1]]))
                constraint.SetCoefficient(variables[key], float(coefficient))
            rows.append(row)
            constraints.append(constraint)

        for row in self._rows():
            add(row)
        solver.Objective().SetMinimization()
        best, known = None, set[tuple[object, ...]]()
        idle = 0
        for _ in range(_ROUNDS):
            status = lp_solved(solver, self.deadline)
            if status != pywraplp.Solver.OPTIMAL:
                break
            bound = self._bound(rows, [constraint.dual_value() for constraint in constraints])
            gained = best is None or bound.nanoseconds - best.nanoseconds > best.nanoseconds // _GAIN
            idle = 0 if gained else idle + 1
            if best is None or bound.nanoseconds > best.nanoseconds:
                best = bound
            held = {key: variable.solution_value() for key, variable in variables.items() if key[0] == "held"}
            cuts = [cut for i in range(len(self.moments)) for cut in self._cuts(i, held, known)]
            if idle >= _PATIENCE or not cuts:
                break
            for cut in cuts:
                known.add((cut.moment, cut.divisor, cut.without))
                add(cut)
        if self.deadline.expired or best is None or not best.nanoseconds:
            return None
        return best

    def _cuts(self, i: int, held: dict[_Variable, float], known: set[tuple[object, ...]]) -> list[_Row]:
        """The rows of a moment's budget that the solution breaks most, for their length."""
        size, rows = self.problem.size, []
        gone = {v: 1.0 - held.get(("held", v, i), 1.0) for v in self.counted[i]}
        unit = self._alignment(min((size[v] for v in self.counted[i]), default=1))
        for share in _SHARES:
            without = tuple([v for v in self.counted[i] if gone[v] >= share])
            rest = self.need[i] - sum(size[v] for v in without)
            if rest <= 0:
                continue
            sizes = {size[v] for v in self.counted[i] if size[v] < rest}
            for divisor in sorted({unit, rest} | sizes):
                if (i, divisor, without) in known:
                    continue
                row = self._budget(i, divisor, without)
                length = sum(coefficient * coefficient for _, coefficient in row.left) ** 0.5
                broken = row.right - sum(held.get(key, 1.0) * c for key, c in row.left)
                if length and broken > _BROKEN * length:
                    rows.append((-broken / length, divisor, row))
        return [row for *_, row in sorted(rows, key=lambda item: item[:2])[:_CUTS]]

    def _bound(self, rows: Sequence[_Row], duals: Sequence[float]) -> CostBound:
        """Rounded multipliers, and what they add up to in whole numbers."""
        problem, program = self.problem, self.program
        number = self.values
        order = tuple(t if step.reference is None else step.reference for t, step in enumerate(program.steps))
        total, weight, used = 0, dict[_Variable, int](), []
        for row, dual in zip(rows, duals, strict=True):
            multiplier = round(max(0.0, dual) * _DENOMINATOR)
            if not multiplier:
                continue
            total += multiplier * row.right
            for key, coefficient in row.left:
                weight[key] = weight.get(key, 0) + multiplier * coefficient
            value = number[row.value] if row.value >= 0 else -1
            step = order[row.step] if row.step >= 0 else -1
            without = tuple(sorted(number[v] for v in row.without))
            used.append(DualRow(row.kind, row.moment, multiplier, value, step, row.divisor, without))
        for (what, which, _), sum_ in weight.items():
            own = problem.cost[which] * _DENOMINATOR if what == "made" else 0
            total += min(0, own - sum_)
        nanoseconds = max(0, -(-total // _DENOMINATOR))
        return CostBound(self.budget, nanoseconds, order, self.moments, _DENOMINATOR, tuple(used))
