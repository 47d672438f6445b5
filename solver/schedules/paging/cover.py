"""Which gaps are paged: a covering problem, solved greedily first, then by an integer program in CP-SAT.

    paged[g]     the gap is taken                        costs the bytes that come in at its end
    written[c]   contents go out                         costs their bytes, once
    paged[g] -> written[its contents]
    on each level    sum of size[g] paged[g] over the gaps that are free there  >=  bytes over the capacity

Of the levels on which the same gaps are free only the fullest has a row. Among answers that move hardly more
bytes, one with few transfers is chosen. A gap is dropped if the others cover every level without it, so
greedy answers have no needless gap. OR-Tools is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from solver.accounting.gaps import GapKind, PagingProblem
from solver.errors import InternalError
from solver.layout import Deadline
from solver.schedules.native import cp_solved, cp_solver

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["WORK", "Cover", "greedy", "least_moved", "level_bound", "needed_only"]

#: Relative gap at which CP-SAT stops: 0.01 % of the bytes moved, below what a user would notice.
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
    problem: PagingProblem,
    capacity: int,
    start: frozenset[int],
    work: float,
    deadline: Deadline,
    *,
    polish: bool = True,
) -> Covering:
    """The best cover that CP-SAT finds in `work` units of deterministic time, from `start` on.

    With `polish` one with few transfers is looked for among those that move hardly more bytes.
    """
    from ortools.sat.python import cp_model

    if deadline.expired:
        return Covering(start, 0, complete=not deadline.late)
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
    if taken is None or not polish:
        return Covering(taken or start, bound * unit, complete)
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

    solver = cp_solver(work, deadline, seed=0)
    solver.parameters.relative_gap_limit = gap
    status = cp_solved(solver, model, deadline)
    if status is None:
        return None, 0, not deadline.late
    complete = status == cp_model.OPTIMAL or not deadline.late
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


#: CP-SAT's deterministic time for one lookahead: some seconds, in which most programs are settled.
WORK = 6.0


@dataclass(frozen=True, slots=True)
class Cover:
    """The gaps that are paged, by number; bytes moved in and out, and how many are moved at least.

    `complete` is false where wall time ended the search.
    """

    taken: frozenset[int]
    moved_in: int
    moved_out: int
    bound: int
    complete: bool = True

    @property
    def moved(self) -> int:
        return self.moved_in + self.moved_out


def greedy(
    problem: PagingProblem, capacity: int, start: Collection[int] = (), *, thrifty: bool = False
) -> frozenset[int]:
    """On the fullest level the gap that frees most of what is over, for each byte moved; until nothing is.

    Then what the rest can do without is held again, the dearest first. It begins with the gaps `start`, and
    every level must be able to keep the capacity (`problem.smallest`), else InternalError. With `thrifty`
    what counts is not what is moved but what slower memory has to hold, for how many levels. O(g + l) for
    each gap taken, g being all gaps and l levels.
    """
    taken = set(start)
    if problem.smallest > capacity:
        raise InternalError(f"No way of paging keeps {capacity} bytes: {problem.smallest} are the least.")
    over = np.array(problem.loads(frozenset(taken)), np.int64) - capacity
    gaps = problem.gaps
    spans = [(span.start, span.end, j) for j, gap in enumerate(gaps) for span in gap.free]
    begin, end, owner = np.array(spans, np.int64).reshape(-1, 3).T
    size = np.array([gap.size for gap in gaps], np.int64)
    cost = np.array(_held(problem) if thrifty else problem.moved, float)
    sharing: dict[int | None, list[int]] = {}
    for j, gap in enumerate(gaps):
        sharing.setdefault(gap.contents, []).append(j)
        if not thrifty:
            cost[j] += 0 if gap.contents is None else problem.contents[gap.contents]

    def take(j: int) -> None:
        """Its contents are written out: the other gaps with the same ones cost less from now on."""
        number = gaps[j].contents
        if number is not None and not thrifty:
            cost[sharing.pop(number, [])] -= problem.contents[number]

    for j in taken:
        take(j)
    while over.max(initial=0) > 0:
        level = int(np.argmax(over))
        needed = np.maximum(over, 0)
        sums = np.concatenate([[0], np.cumsum(needed)])
        counts = np.concatenate([[0], np.cumsum(needed > 0)])
        freed = np.minimum(sums[end] - sums[begin], size[owner] * (counts[end] - counts[begin]))
        ratio = np.bincount(owner, freed, len(gaps)) / np.maximum(cost, 0.5)
        here = np.zeros(len(gaps), bool)
        here[owner[(begin <= level) & (level < end)]] = True
        here[list(taken)] = False
        best = int(np.argmax(np.where(here, ratio, -1.0)))
        taken.add(best)
        take(best)
        for span in gaps[best].free:
            over[span.start : span.end] -= size[best]
    return needed_only(problem, capacity, taken, _held(problem) if thrifty else problem.moved)


def _held(problem: PagingProblem) -> list[int]:
    """The slower memory that each gap takes if it is paged: bytes times levels."""
    bytes_held = []
    for gap in problem.gaps:
        throughout = gap.kind is not GapKind.MIDDLE or gap.contents is None
        bytes_held.append(gap.size * (problem.levels if throughout else gap.end - gap.start + 1))
    return bytes_held


def level_bound(problem: PagingProblem, capacity: int) -> int:
    """Bytes that are moved at least, by what is over on the fullest level alone.

    There every value has one gap, so what that costs is known: what frees most for a byte comes first, the
    last one in part. Linear, but for sorting.
    """
    loads = problem.loads()
    level = max(range(problem.levels), key=loads.__getitem__)
    left = loads[level] - capacity
    here = []
    for j, gap in enumerate(problem.gaps):
        if any(span.start <= level < span.end for span in gap.free):
            out = 0 if gap.contents is None else problem.contents[gap.contents]
            here.append((problem.moved[j] + out, gap.size))
    bound = Fraction(0)
    for cost, size in sorted(here, key=lambda item: Fraction(*item)):
        if left <= 0:
            break
        bound += Fraction(cost * min(size, left), size)
        left -= size
    return ceil(bound)


def needed_only(
    problem: PagingProblem, capacity: int, taken: Collection[int], costs: Sequence[int] | None = None
) -> frozenset[int]:
    """The gaps without those that the rest can do without, of which the dearest are held again first: by
    `costs`, else by the bytes that come in.
    """
    costs = problem.moved if costs is None else costs
    left = set(taken)
    room = [capacity - load for load in problem.loads(frozenset(left))]
    for j in sorted(left, key=lambda j: (-costs[j], j)):
        gap = problem.gaps[j]
        if all(min(room[span.start : span.end]) >= gap.size for span in gap.free):
            left.discard(j)
            for span in gap.free:
                for level in range(span.start, span.end):
                    room[level] -= gap.size
    return frozenset(left)


def least_moved(
    problem: PagingProblem, capacity: int, deadline: Deadline, *, work: float = WORK, polish: bool = True
) -> Cover:
    """The gaps to page so that few bytes are moved. `capacity` is `problem.smallest` or more.

    `work` is CP-SAT's deterministic time, about seconds; `polish` saves transfers besides, the bound is the
    same without.
    """
    over = max(problem.loads(), default=0) - capacity
    if over <= 0:
        return Cover(frozenset(), 0, 0, 0)
    start = greedy(problem, capacity)
    covering = exact(problem, capacity, start, work, deadline, polish=polish)
    # Of large programs the model has some levels only: what is over on the others is freed greedily.
    taken = greedy(problem, capacity, covering.taken)
    if sum(problem.cost(taken)) > sum(problem.cost(start)) * (1 + SLACK):
        taken = start
    into, out = problem.cost(taken)
    bound = max(covering.bound, level_bound(problem, capacity))
    return Cover(taken, into, out, min(bound, into + out), covering.complete)
