"""Buffers with holes: every solver sees them whole; some then make use of the holes.

    greedy in pieces -> the solver itself, as if there were no holes -> local search, CP-SAT in pieces

What a solver proves about whole buffers says nothing here: the bound is the load of the pieces, and only
CP-SAT lifts it. Memory: four numbers a piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from solver.errors import ProblemError
from solver.layout.bounds.max_load import LowerBound, max_load
from solver.layout.bounds.settle import settle
from solver.layout.check.rules import check_problem, find_violations
from solver.layout.exact.cp_sat import SEED, CpSat, refine
from solver.layout.greedy.local_search import LocalSearch, improve
from solver.layout.greedy.placement import Greedy, orders, place_once
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.options import Configurable, Progress, SolveOptions
from solver.layout.model.pieces import Piece, pieces, without_holes
from solver.layout.model.problem import (
    MAX_BYTES,
    Deadline,
    Layout,
    LayoutProblem,
    LayoutSolver,
    Lifespan,
    Outcome,
)
from solver.layout.portfolio import CP_SAT_BUFFERS, CP_SAT_START, SEARCH_WORK, Portfolio

__all__ = ["Placing", "solve_with_holes"]

#: Pieces looked at by the greedy orders, and by local search; a placement looks at all that are placed. Of up
#: to so many buffers one order is tried in any case: ten to twenty seconds for the most.
GREEDY_WORK: Final = 200_000_000
ONE_ORDER: Final = 20_000

#: Deterministic time of CP-SAT behind other stages: more than without holes: no other stage proves any.
EXACT_WORK: Final = 0.1


#: Placements between looks at the deadline.
LOOK: Final = 64


@dataclass(frozen=True, slots=True)
class _Found:
    """The best layout so far, and the stage that found it; `proved` bytes are necessary (0: not known)."""

    layout: Layout | None
    stage: str
    proved: int = 0
    cut: bool = False

    def or_better(self, layout: Layout | None, stage: str, *, proved: int = 0, cut: bool = False) -> _Found:
        proved, cut = max(proved, self.proved), cut or self.cut
        if layout is not None and (self.layout is None or layout.peak < self.layout.peak):
            return _Found(layout, stage, proved, cut)
        return replace(self, proved=proved, cut=cut)


def solve_with_holes(
    problem: LayoutProblem,
    solver: LayoutSolver,
    options: SolveOptions,
    deadline: Deadline,
    incumbent: Layout | None = None,
) -> Outcome:
    """The problem must have passed `check_problem`, and the incumbent must be a layout of it.

    Solvers without a search of their own, and branch and bound, make no use of holes.
    """
    began = time.perf_counter()
    run, found = _Run.of(problem, solver, options, deadline), _Found(incumbent, "incumbent")
    stages: list[Callable[[_Found], _Found]] = [run.whole]
    if isinstance(solver, (Portfolio, Greedy, LocalSearch, CpSat)):
        stages.insert(0, run.greedy)
    if isinstance(solver, (Portfolio, LocalSearch)):
        stages.append(run.search)
    if isinstance(solver, (Portfolio, CpSat)):
        stages.append(run.exact)
    for stage in stages:
        if found.layout is None or found.layout.peak > run.enough:
            found = stage(found)
    name = f"{solver.name}/{found.stage}" if isinstance(solver, Portfolio) else solver.name
    deterministic = not (found.cut or options.race)
    return settle(
        problem, found.layout, run.bound, name, began, proved=found.proved, deterministic=deterministic
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """One call; `instance` is of buffers without holes, `held` are their pieces."""

    problem: LayoutProblem
    solver: LayoutSolver
    options: SolveOptions
    deadline: Deadline
    bound: LowerBound
    enough: int
    instance: Instance
    held: list[Piece]

    @classmethod
    def of(
        cls, problem: LayoutProblem, solver: LayoutSolver, options: SolveOptions, deadline: Deadline
    ) -> _Run:
        bound, instance = max_load(problem), Instance.of(without_holes(problem))
        enough = options.enough(bound.bytes, problem.capacity)
        return cls(problem, solver, options, deadline, bound, enough, instance, _ranked(pieces(problem)))

    def greedy(self, found: _Found) -> _Found:
        """First fit in pieces, in as many orders as `GREEDY_WORK` allows.

        A first layout, of whole buffers, comes at once, so that the rest can be cut short at any time; unless
        only holes keep pins apart.
        """
        many = len(self.instance)
        most = max(GREEDY_WORK // (many * len(self.held)), int(many <= ONE_ORDER))
        if not self.instance.pinned:
            order = np.lexsort((-self.instance.size,))
            found = found.or_better(layout_of(self.instance, place_once(self.instance, order)), "greedy")
        for order_of in list(orders(self.instance).values())[:most]:
            if found.layout is not None and (found.layout.peak <= self.enough or self.deadline.expired):
                break
            limit = MAX_BYTES if found.layout is None else found.layout.peak - 1
            place = Placing(self.instance, self.held, None if found.layout is None else self.deadline)
            offsets, placed = place(order_of(), limit)
            if placed == len(self.instance):
                found = found.or_better(layout_of(self.instance, offsets), "greedy")
        return replace(found, cut=found.cut or self.deadline.expired)

    def whole(self, found: _Found) -> _Found:
        """The solver on buffers without holes, started from the incumbent where that is a layout of these."""
        whole, start = without_holes(self.problem), found.layout
        try:
            check_problem(whole)
        except ProblemError:  # pins that only holes keep apart
            return found
        if start is not None and find_violations(replace(whole, capacity=None), start, limit=1):
            start = None
        solver = self.solver
        if isinstance(solver, Configurable):
            solver = solver.configured(replace(self.options, progress=self._told))
        outcome = solver.solve(whole, self.deadline, start)
        stage = outcome.solver.removeprefix(f"{solver.name}/")
        return found.or_better(outcome.layout, stage, cut=not outcome.deterministic)

    def _told(self, news: Progress) -> None:
        """Bounds of buffers without holes do not hold for the problem."""
        if self.options.progress is not None:
            self.options.progress(replace(news, bound=self.bound.bytes))

    def search(self, found: _Found) -> _Found:
        """Local search among orders."""
        if found.layout is None:
            return found
        place, seed = Placing(self.instance, self.held, self.deadline), self.options.seed
        work = min(SEARCH_WORK, GREEDY_WORK // len(self.held))
        better = improve(self.instance, found.layout, self.enough, work, self.deadline, seed, place)
        return found.or_better(better.layout, "search", cut=better.cut)

    def exact(self, found: _Found) -> _Found:
        """CP-SAT; behind other stages for small problems alone, and briefly."""
        work, seed = EXACT_WORK, SEED + self.options.seed
        if isinstance(self.solver, CpSat):
            work = self.solver.work
        elif len(self.instance) > CP_SAT_BUFFERS:
            return found
        if found.layout is None or self.deadline.remaining < CP_SAT_START:
            return replace(found, cut=True)
        refined = refine(
            self.instance,
            found.layout,
            self.bound.bytes,
            self.deadline,
            work,
            seed,
            self.enough,
            self.held,
        )
        return found.or_better(refined.layout, "cp-sat", proved=refined.proved, cut=refined.cut)


def _ranked(held: list[Piece]) -> list[Piece]:
    """The same pieces over the ranks of their steps, which are small numbers."""
    steps = sorted({step for p in held for step in (p.lifespan.start, p.lifespan.end)})
    rank = {step: k for k, step in enumerate(steps)}
    return [replace(p, lifespan=Lifespan(rank[p.lifespan.start], rank[p.lifespan.end])) for p in held]


class Placing:
    """First fit of buffers that are several pieces. O(n) for each placement, as a few NumPy calls a piece.

    With a deadline it stops early once that has passed. The pieces stand in the order of the buffers.
    """

    def __init__(self, instance: Instance, held: Sequence[Piece], deadline: Deadline | None = None) -> None:
        self._instance, self._deadline = instance, deadline
        self._rows = np.array([(p.lifespan.start, p.lifespan.end, p.low, p.high) for p in held], np.int64)
        owners = np.array([p.owner for p in held], np.int64)
        self._first = np.searchsorted(owners, np.arange(len(instance) + 1)).tolist()

    def __call__(self, order: Integers, limit: int) -> tuple[Integers, int]:
        """Offsets (`FREE` where not placed), and how far into the order it got. Pins are placed first."""
        instance, offsets = self._instance, self._instance.offset.copy()
        shelf, used = np.empty((4, len(self._rows)), np.int64), 0
        for i in np.flatnonzero(offsets != FREE).tolist():
            used = self._put(shelf, used, i, int(offsets[i]))
        for count, i in enumerate(order.tolist()):
            if instance.offset[i] != FREE:
                continue
            if self._deadline is not None and count % LOOK == 0 and self._deadline.expired:
                return offsets, count
            offset = _lowest(shelf[:, :used], self._of(i), int(instance.alignment[i]))
            if offset + int(instance.exact[i]) > limit:
                return offsets, count
            offsets[i] = offset
            used = self._put(shelf, used, i, offset)
        return offsets, len(order)

    def _of(self, i: int) -> Integers:
        rows: Integers = self._rows[self._first[i] : self._first[i + 1]]
        return rows

    def _put(self, shelf: Integers, used: int, i: int, offset: int) -> int:
        mine = self._of(i)
        shelf[:2, used : used + len(mine)] = mine[:, :2].T
        shelf[2:, used : used + len(mine)] = mine[:, 2:].T + offset
        return used + len(mine)


def _lowest(shelf: Integers, mine: Integers, alignment: int) -> int:
    """The lowest aligned offset at which no piece of `mine` meets one on the shelf.

    Pieces [low, high) and, there, [bottom, top) that share a step meet at offsets above bottom - high and
    below top - low. Of all these stretches, sorted by where they begin, the first that begins at or beyond
    the ends of all before it leaves the place between free; there is none below.
    """
    begins, ends = [], []
    for start, end, low, high in mine.tolist():
        met = (shelf[0] < end) & (shelf[1] > start)
        begins.append(shelf[2, met] - high)
        ends.append(shelf[3, met] - low)
    begin, end_ = np.concatenate(begins), np.concatenate(ends)
    order = begin.argsort(kind="stable")
    reach = np.maximum.accumulate(np.append(0, (end_[order] + (alignment - 1)) & -alignment))
    free = np.append(begin[order], MAX_BYTES) >= reach
    return int(reach[free.argmax()])
