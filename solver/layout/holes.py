"""Buffers with holes: every solver sees them whole; some then make use of the holes.

    greedy in pieces -> the solver itself, as if there were no holes -> windows, local search, CP-SAT in
    pieces

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
from solver.layout.compiled.fallback import UNCOMPILED, warn_uncompiled
from solver.layout.exact.cp_sat import SEED, CpSat, refine
from solver.layout.exact.feasibility import Watch
from solver.layout.exact.windows import Window, repair
from solver.layout.greedy.local_search import PATIENCE, LocalSearch, improve
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

__all__ = ["Placing", "Shelf", "compiled_placing", "solve_with_holes"]

#: Pieces looked at by the greedy orders, and by local search. Of up to so many buffers one order is tried in
#: any case: a second for the most, where nothing compiles ten to twenty.
GREEDY_WORK: Final = 200_000_000
ONE_ORDER: Final = 20_000

#: Pieces from which the compiled placing is loaded.
COMPILED_FROM: Final = 128

#: Buffers from which windows of time come before local search, and their work: a placement in a window counts
#: as so much, as it takes about as long.
WINDOWS_FROM: Final = 1000
WINDOWS_WORK: Final = 150_000_000
PLACEMENT: Final = 100

#: Deterministic time of CP-SAT behind other stages: more than without holes: no other stage proves any.
EXACT_WORK: Final = 0.1


#: Placements between looks at the deadline: in NumPy, and compiled.
LOOK: Final = 64
PASS: Final = 256
MOVES: Final = 1000


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
        stages += [run.windows, run.search]
    if isinstance(solver, (Portfolio, CpSat)):
        stages.append(run.exact)
    for stage in stages:
        if found.layout is not None and found.layout.peak <= run.enough:
            break
        # Looking at the pieces takes a stage longer than noticing that its time is over.
        if found.layout is not None and found.stage != "incumbent" and deadline.expired:
            found = replace(found, cut=True)
            break
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
        cost = max(1, Placing(self.instance, self.held, self.deadline).cost)
        most = max(GREEDY_WORK // cost, int(len(self.instance) <= ONE_ORDER))
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

    def windows(self, found: _Found) -> _Found:
        """Local search among orders, in one window of time after the other."""
        if found.layout is None or len(self.instance) < WINDOWS_FROM or not compiled_placing():
            return found
        rows = np.array([(p.owner, p.lifespan.start, p.lifespan.end) for p in self.held], np.int64)
        first = np.searchsorted(rows[:, 0], np.arange(len(self.instance) + 1))
        start, end = np.zeros(len(self.instance), np.int64), np.ones(len(self.instance), np.int64)
        holds = first[:-1] < first[1:]
        start[holds], end[holds] = rows[first[:-1][holds], 1], rows[first[1:][holds] - 1, 2]
        timed = replace(self.instance, start=start, end=end, sections=int(end.max()))
        watch = Watch(self.deadline, self.options)

        def ask(
            members: Integers, window: Window, known: Integers, capacity: int, effort: int
        ) -> tuple[Integers | None, int]:
            begin, stop = window.first, window.last
            held = [
                Piece(k, Lifespan(max(p.lifespan.start, begin), min(p.lifespan.end, stop)), p.low, p.high)
                for k, i in enumerate(members.tolist())
                for p in self.held[first[i] : first[i + 1]]
                if p.lifespan.start < stop and p.lifespan.end > begin
            ]
            shelf = Shelf.of(window.instance, held)
            order = np.argsort(known, kind="stable")
            return shelf.reorder(order, capacity, effort // PLACEMENT, self.deadline), effort

        work = self.options.limit(WINDOWS_WORK)
        layout = repair(timed, found.layout, self.enough, work, watch, ask=ask).layout
        return found.or_better(layout, "windows", cut=watch.cut)

    def search(self, found: _Found) -> _Found:
        """Local search among orders."""
        if found.layout is None:
            return found
        place, seed = Placing(self.instance, self.held, self.deadline), self.options.seed
        work = min(SEARCH_WORK, GREEDY_WORK // max(1, place.cost // len(self.instance)))
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
    """First fit of buffers that are several pieces; compiled where that is worth it.

    O(those that meet it, log n) for each placement compiled, O(n) as a few NumPy calls a piece otherwise.
    With a deadline it stops early once that has passed. The pieces stand in the order of the buffers.
    """

    def __init__(self, instance: Instance, held: Sequence[Piece], deadline: Deadline | None = None) -> None:
        self._instance, self._deadline = instance, deadline
        rows = [(p.lifespan.start, p.lifespan.end, p.low, p.high, p.owner) for p in held]
        self._rows = np.array(rows, np.int64).reshape(-1, 5)
        self._first = np.searchsorted(self._rows[:, 4], np.arange(len(instance) + 1))
        self._pinned = np.flatnonzero(instance.offset != FREE)
        compiled = len(held) >= COMPILED_FROM and compiled_placing()
        self._shelf = Shelf(instance, self._rows, self._first) if compiled else None

    @property
    def cost(self) -> int:
        """Pieces that one pass looks at, more or less."""
        return len(self._instance) * len(self._rows) if self._shelf is None else self._shelf.cost

    def __call__(self, order: Integers, limit: int) -> tuple[Integers, int]:
        """Offsets (`FREE` where not placed), and how far into the order it got. Pins are placed first."""
        free, pinned = np.flatnonzero(self._instance.offset[order] == FREE), self._pinned
        place = self._in_numpy if self._shelf is None else self._shelf
        offsets, placed = place(np.concatenate((pinned, order[free])), len(pinned), limit, self._late)
        return offsets, len(order) if placed == len(free) else int(free[placed])

    def _late(self) -> bool:
        return self._deadline is not None and self._deadline.expired

    def _in_numpy(
        self, order: Integers, pinned: int, limit: int, late: Callable[[], bool]
    ) -> tuple[Integers, int]:
        instance, offsets = self._instance, self._instance.offset.copy()
        shelf, used = np.empty((4, len(self._rows)), np.int64), 0
        for count, i in enumerate(order.tolist()):
            mine: Integers = self._rows[self._first[i] : self._first[i + 1], :4]
            if count >= pinned:
                if (count - pinned) % LOOK == 0 and late():
                    return offsets, count - pinned
                offset = _lowest(shelf[:, :used], mine, int(instance.alignment[i]))
                if offset + int(instance.exact[i]) > limit:
                    return offsets, count - pinned
                offsets[i] = offset
            shelf[:2, used : used + len(mine)] = mine[:, :2].T
            shelf[2:, used : used + len(mine)] = mine[:, 2:].T + offsets[i]
            used += len(mine)
        return offsets, len(order) - pinned


class Shelf:
    """Memory of the compiled placing, used again by every pass; some 200 bytes a piece."""

    def __init__(self, instance: Instance, rows: Integers, first: Integers) -> None:
        start, end = rows[:, 0], rows[:, 1]
        self._instance, self._rows, self._first = instance, np.ascontiguousarray(rows), first.astype(np.int64)
        # As wide as lives are long, on average: a piece then stands in two or three stretches.
        self._width = max(1, int((end - start).mean()))
        self._head = np.empty(int(end.max()) // self._width + 1, np.int64)
        reaches = (end - 1) // self._width - start // self._width + 1
        self._entries = np.empty((int(reaches.sum()), 2), np.int64)
        meets = np.sort(start).searchsorted(end, side="left") - np.sort(end).searchsorted(start, side="right")
        added = np.concatenate(([0], np.cumsum(meets)))
        self._scratch = np.empty((2, int(np.diff(added[first]).max())), np.int64)
        self.cost = 4 * int(added[-1])

    @classmethod
    def of(cls, instance: Instance, held: Sequence[Piece]) -> Shelf:
        """The pieces stand in the order of the buffers."""
        rows = np.array([(p.lifespan.start, p.lifespan.end, p.low, p.high, p.owner) for p in held], np.int64)
        return cls(instance, rows, np.searchsorted(rows[:, 4], np.arange(len(instance) + 1)))

    def reorder(self, order: Integers, limit: int, placements: int, deadline: Deadline) -> Integers | None:
        """Offsets within `limit` from some order, begun with this one, pins first; None if it finds none."""
        from solver.layout.compiled import pieces_kernel

        instance, pinned = self._instance, self._instance.offset[order] != FREE
        order = np.concatenate((order[pinned], order[~pinned]))
        buffers = np.stack((instance.exact, instance.alignment, instance.offset), axis=1)
        again = order.copy()
        for seed in range(0, placements, MOVES):
            if deadline.expired:
                break
            self._head[:] = pieces_kernel.NONE
            left = pieces_kernel.reorder(
                buffers, self._rows, self._first, order, again, int(pinned.sum()), self._width, self._head,
                self._entries, self._scratch, np.zeros(1, np.int64), limit, MOVES, PATIENCE, SEED + seed,
            )  # fmt: skip
            if left != pieces_kernel.NONE:
                return buffers[:, pieces_kernel.OFFSET].copy()
        return None

    def __call__(
        self, order: Integers, pinned: int, limit: int, late: Callable[[], bool]
    ) -> tuple[Integers, int]:
        from solver.layout.compiled import pieces_kernel

        instance, counts = self._instance, np.zeros(1, np.int64)
        buffers = np.stack((instance.exact, instance.alignment, instance.offset), axis=1)
        self._head[:] = pieces_kernel.NONE
        done = 0
        while done < len(order) and not late():
            some = order[done : max(pinned, done) + PASS]
            stand = max(0, pinned - done)
            placed = int(
                pieces_kernel.place_pieces(
                    buffers, self._rows, self._first, some, stand, self._width,
                    self._head, self._entries, self._scratch, counts, limit,
                )
            )  # fmt: skip
            done += placed
            if placed < len(some):
                break
        return buffers[:, pieces_kernel.OFFSET].copy(), max(0, done - pinned)


class _Compiled:
    """The compiled placing, tried once; false where nothing compiles."""

    def __init__(self) -> None:
        self._works: bool | None = None

    def __call__(self) -> bool:
        if self._works is None:
            self._works = self._tried()
        return self._works

    @staticmethod
    def _tried() -> bool:
        try:
            one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
            instance = Instance(zero, one, one, one, one, zero + FREE, 1)
            shelf = Shelf(instance, np.array([(0, 1, 0, 1, 0)]), np.array([0, 1]))
            return (
                shelf(zero, 0, 1, lambda: False)[1] == 1 and shelf.reorder(zero, 1, 9, Deadline()) is not None
            )
        except UNCOMPILED as error:
            warn_uncompiled(error)
            return False


#: The one of this process.
compiled_placing: Final = _Compiled()


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
