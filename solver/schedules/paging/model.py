"""The integer program of paging, in CP-SAT.

    paged[g]     the gap is taken                        costs the bytes that come in at its end
    written[c]   contents go out                         costs their bytes, once
    paged[g] -> written[its contents]
    on each level    sum of size[g] paged[g] over the gaps that are free there  >=  bytes over the capacity

Of the levels on which the same gaps are free only the fullest has a row. Then, among answers that move hardly
more bytes, one with few transfers. OR-Tools is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from solver.accounting.gaps import PagingProblem
from solver.layout import Deadline
from solver.schedules.native import run_native

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["SLACK", "Covering", "exact"]

#: As near to the bound as anybody needs: a ten-thousandth of what is moved.
_GAP = 1e-4

#: Terms of all rows together; more take the solver minutes before it begins.
_TERMS = 200_000

#: What may be moved more where that saves transfers, and the share of the work that this search gets.
SLACK, _POLISH = 4e-4, 0.15


@dataclass(frozen=True, slots=True)
class Covering:
    """The gaps taken, and the bytes that are moved at least. `complete`: wall time did not cut the search."""

    taken: frozenset[int]
    bound: int
    complete: bool


def exact(
    problem: PagingProblem, capacity: int, start: frozenset[int], work: float, deadline: Deadline
) -> Covering:
    """The best cover that CP-SAT finds in `work` units of deterministic time, from `start` on."""
    from ortools.sat.python import cp_model

    if deadline.expired:
        return Covering(start, 0, complete=False)
    model = cp_model.CpModel()
    rows = _rows(problem, capacity)
    useful = sorted({j for row, _ in rows for j in row})
    paged = {j: model.new_bool_var("") for j in useful}
    written: dict[int, cp_model.IntVar] = {}
    unit = math.gcd(*(problem.moved[j] for j in useful), *problem.contents) or 1
    cost = []
    for j, variable in paged.items():
        contents = problem.gaps[j].contents
        cost.append(problem.moved[j] // unit * variable)
        if contents is None:
            continue
        if contents not in written:
            written[contents] = model.new_bool_var("")
            cost.append(problem.contents[contents] // unit * written[contents])
        model.add_implication(variable, written[contents])
    for row, over in rows:
        # A gap that frees more than is over frees enough: smaller numbers give a tighter relaxation.
        sizes = [min(problem.gaps[j].size, over) for j in row]
        step = math.gcd(*sizes)
        model.add(
            sum(size // step * paged[j] for size, j in zip(sizes, row, strict=True)) >= -(-over // step)
        )
    moved = sum(cost)
    model.minimize(moved)
    chosen = {problem.gaps[j].contents for j in start}
    for j, variable in paged.items():
        model.add_hint(variable, j in start)
    for number, variable in written.items():
        model.add_hint(variable, number in chosen)
    taken, bound, complete = _solved(model, paged, work, _GAP, deadline)
    if taken is None:
        return Covering(start, bound * unit, complete)
    least = sum(problem.moved[j] for j in taken) + sum(
        problem.contents[c] for c in {problem.gaps[j].contents for j in taken} if c is not None
    )
    model.add(moved <= (least + int(least * SLACK)) // unit)
    model.minimize(sum(paged.values()) + sum(written.values()))
    model.clear_hints()  # type: ignore[no-untyped-call]  # of OR-Tools
    for j, variable in paged.items():
        model.add_hint(variable, j in taken)
    fewer, _, also = _solved(model, paged, work * _POLISH, _GAP, deadline)
    return Covering(fewer or taken, bound * unit, complete and also)


def _solved(
    model: cp_model.CpModel,
    paged: Mapping[int, cp_model.IntVar],
    work: float,
    gap: float,
    deadline: Deadline,
) -> tuple[frozenset[int] | None, int, bool]:
    """The gaps taken in the best solution, None without one; a bound; whether wall time did not cut."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = 0
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = work
    solver.parameters.relative_gap_limit = gap
    # Its own handler of Ctrl-C would stay behind, and end the process with the next one.
    solver.parameters.catch_sigint_signal = False
    status = run_native(lambda: solver.solve(model), solver.stop_search, deadline)
    if status is None:
        return None, 0, False
    complete = status == cp_model.OPTIMAL or not deadline.expired
    bound = max(0, math.ceil(solver.best_objective_bound - 1e-6))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound, complete
    return frozenset(j for j, variable in paged.items() if solver.boolean_value(variable)), bound, complete


def _rows(problem: PagingProblem, capacity: int) -> list[tuple[list[int], int]]:
    """The gaps that are free on a level, and the bytes over the capacity there, of the levels that matter.

    Between two ends of gaps that is the fullest one; where all of these are too many for the solver, the
    fullest of each of some stretches.
    """
    over = np.array(problem.loads(), np.int64) - capacity
    spans = [(span.start, span.end, j) for j, gap in enumerate(problem.gaps) for span in gap.free]
    begin, end, owner = np.array(spans, np.int64).reshape(-1, 3).T
    ends = np.unique(np.concatenate([[0, problem.levels], begin, end]))
    fullest = [a + int(np.argmax(over[a:b])) for a, b in pairwise(ends.tolist())]
    fullest = [level for level in fullest if over[level] > 0]
    free = np.zeros(problem.levels + 1, np.int64)
    np.add.at(free, begin, 1)
    np.add.at(free, end, -1)
    free = np.cumsum(free)
    count = len(fullest)
    while sum(int(free[level]) for level in fullest) > _TERMS and len(fullest) > 1:
        count //= 2
        parts = (fullest[i * len(fullest) // count : (i + 1) * len(fullest) // count] for i in range(count))
        fullest = [max(part, key=lambda level: int(over[level])) for part in parts]
    return [
        (sorted(set(owner[(begin <= level) & (level < end)].tolist())), int(over[level])) for level in fullest
    ]
