"""Buffers with holes: every solver sees them whole; some then make use of the holes.

    greedy in pieces -> the solver itself, as if there were no holes -> windows and hot spots in turn, local
    search, CP-SAT in pieces

What is tried is a table, `STAGES`, as in the portfolio; which of it belongs to a solver, the solver says
itself (`InPieces`). What a solver proves about whole buffers says nothing here: the bound is the load of the
pieces, and only CP-SAT lifts it. Memory: five numbers a piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Final

import numpy as np

from solver.errors import ProblemError
from solver.layout.bounds.max_load import LowerBound, max_load
from solver.layout.bounds.settle import settle
from solver.layout.check import check_problem, is_sound
from solver.layout.exact.cp_sat import SEED, Refinement, refine
from solver.layout.exact.feasibility import Watch, compiled_search
from solver.layout.exact.windows import Window, repair
from solver.layout.greedy.local_search import PATIENCE, improve
from solver.layout.greedy.placement import CLASSES_FROM, DEPTH, orders, place_many, place_once
from solver.layout.model.columns import Columns, columns_kept
from solver.layout.model.heap import give_back
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.options import Configurable, InPieces, Piecewise, Progress, SolveOptions
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
from solver.layout.model.sorting import in_order, ranks
from solver.layout.portfolio import CP_SAT_START, SEARCH_WORK, TIDY_FROM
from solver.layout.structures.colouring import depth
from solver.native import runs_compiled

__all__ = ["STAGES", "Placing", "Shelf", "Stage", "compiled_placing", "rows_of", "solve_with_holes"]

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
FEW_WINDOWS_WORK: Final = 30_000_000
PLACEMENT: Final = 100

#: Buffers around the highest one that CP-SAT is asked about, and its deterministic time for a capacity. The
#: bound is lifted no further where it is that close: one part in so many.
HOT_BUFFERS: Final = 100
HOT_WORK: Final = 0.02
CLOSE: Final = 1000

#: Seconds a buffer before the deadline at which no stage is begun: making its pieces ready takes that long.
LOOK_SECONDS: Final = 3e-6

#: Placements between looks at the deadline: in NumPy, and compiled.
LOOK: Final = 64
PASS: Final = 256
MOVES: Final = 1000


def solve_with_holes(
    problem: LayoutProblem,
    solver: LayoutSolver,
    options: SolveOptions,
    deadline: Deadline,
    incumbent: Layout | None = None,
) -> Outcome:
    """The problem must have passed `check_problem`, and the incumbent must be a layout of it.

    What a solver makes of the holes is for it to say: `InPieces`.
    """
    run = _Run(problem, solver, options, deadline, time.perf_counter(), max_load(problem), incumbent)
    for stage in STAGES:
        if run.layout is not None and run.layout.peak <= max(run.enough, run.proved):
            break
        if run.layout is not None and run.stage != "incumbent" and run.late:
            run.cut = True
            break
        if stage.applies(run):
            run.tidy()
            stage.run(run)
    run.forget()
    run.tidy()
    name = f"{solver.name}/{run.stage}" if run.use.staged else solver.name
    deterministic = not (run.cut or options.race)
    return settle(
        problem, run.layout, run.bound, name, run.began, proved=run.proved, deterministic=deterministic
    )


@dataclass
class _Run:
    """One call: what is asked, and the best layout so far with the stage that found it.

    `instance` is of buffers without holes, `held` are their pieces; `proved` bytes are necessary (0: not
    known).
    """

    problem: LayoutProblem
    solver: LayoutSolver
    options: SolveOptions
    deadline: Deadline
    began: float
    bound: LowerBound
    layout: Layout | None = None
    stage: str = "incumbent"
    proved: int = 0
    cut: bool = False
    use: InPieces = field(init=False)
    enough: int = field(init=False)
    instance: Instance = field(init=False)

    def __post_init__(self) -> None:
        self.use = self.solver.in_pieces if isinstance(self.solver, Piecewise) else InPieces()
        self.enough = self.options.enough(self.bound.bytes, self.problem.capacity)
        self.instance = Instance.of(self.problem)

    @cached_property
    def held(self) -> Integers:
        """See `rows_of`."""
        rows = rows_of(self.problem)
        self.tidy()
        return rows

    def forget(self) -> None:
        """The pieces, which are made again at need: meanwhile a solver has use for their memory."""
        self.__dict__.pop("held", None)

    def tidy(self) -> None:
        """Before each stage: what the one before has freed counts no more."""
        if len(self.instance) >= TIDY_FROM:
            give_back()

    @property
    def late(self) -> bool:
        """Whether the deadline would be over before a stage has looked at all pieces."""
        return self.deadline.remaining <= LOOK_SECONDS * len(self.instance)

    @property
    def many(self) -> bool:
        """Whether there are so many buffers that windows of time come before local search."""
        return len(self.instance) >= WINDOWS_FROM

    def take(self, layout: Layout | None, stage: str, *, proved: int = 0, cut: bool = False) -> None:
        better = layout is not None and (self.layout is None or layout.peak < self.layout.peak)
        if better:
            self.layout, self.stage = layout, stage
        if better or proved > self.proved:
            self.proved = max(self.proved, proved)
            self.report()
        self.cut = self.cut or cut

    def report(self) -> None:
        progress, low = self.options.progress, max(self.bound.bytes, self.proved)
        if progress is not None and self.layout is not None:
            progress(Progress(self.layout.peak, low, time.perf_counter() - self.began, self.stage))


def _greedy(run: _Run) -> None:
    """First fit in pieces, in as many orders as `GREEDY_WORK` allows.

    A first layout, of whole buffers, comes at once, so that the rest can be cut short at any time; unless
    there are pins, which only holes may keep apart. From `CLASSES_FROM` buffers on it takes a few sorts,
    pinned or not, and windows lower it.
    """
    instance, deadline = run.instance, run.deadline
    many = len(instance) >= CLASSES_FROM
    if many or not instance.pinned:
        size = -instance.size
        offsets = place_many(instance, deadline) if many else place_once(instance, in_order(size), deadline)
        run.take(layout_of(instance, offsets), "greedy")
    if many and not instance.pinned and depth(instance) <= DEPTH:
        _repaired_whole(run, FEW_WINDOWS_WORK)
    if (many or not instance.pinned) and run.late:
        run.cut = True
        return
    place = Placing(instance, run.held)
    most = max(GREEDY_WORK // max(1, place.cost), int(len(instance) <= ONE_ORDER))
    for order_of in list(orders(instance).values())[:most]:
        if run.layout is not None and (run.layout.peak <= run.enough or deadline.expired):
            break
        limit = MAX_BYTES if run.layout is None else run.layout.peak - 1
        place.deadline = Deadline() if run.layout is None else deadline
        offsets, placed = place(order_of(), limit)
        if placed == len(instance):
            run.take(layout_of(instance, offsets), "greedy")
    run.cut = run.cut or deadline.expired


def _repaired_whole(run: _Run, work: int) -> None:
    """Windows of time as if there were no holes: no pieces have to be made ready first."""
    if run.layout is not None and compiled_search() is not None:
        low = max(run.enough, int(run.instance.load().max()))
        watch = Watch(run.deadline, run.options)
        repair(run.instance, run.layout, low, work, watch, lambda found: run.take(found, "windows"))


def _whole(run: _Run) -> None:
    """The solver on buffers without holes, started from the incumbent where that is a layout of these."""
    run.forget()
    whole, start = without_holes(run.problem), run.layout
    with columns_kept(whole):
        try:
            check_problem(whole)
        except ProblemError:  # pins that only holes keep apart
            return
        if start is not None and not is_sound(replace(whole, capacity=None), start):
            start = None

        def told(news: Progress) -> None:
            """Bounds of buffers without holes do not hold for the problem."""
            if run.options.progress is not None:
                run.options.progress(replace(news, bound=run.bound.bytes))

        solver = run.solver
        if isinstance(solver, Configurable):
            solver = solver.configured(replace(run.options, progress=told))
        run.tidy()
        outcome = solver.solve(whole, run.deadline, start)
    stage = outcome.solver.removeprefix(f"{solver.name}/")
    run.take(outcome.layout, stage, cut=not outcome.deterministic)


def _windows(run: _Run) -> None:
    """Local search among orders, in one window of time after the other."""
    _repaired(run, run.options.limit(WINDOWS_WORK))


def _few_windows(run: _Run) -> None:
    """The same, a short time."""
    _repaired(run, min(FEW_WINDOWS_WORK, run.options.limit(FEW_WINDOWS_WORK)))


def _repaired(run: _Run, work: int) -> None:
    """Windows of time, begun with the layout that there is."""

    def ask(
        members: Integers, window: Window, known: Integers, capacity: int, effort: int
    ) -> tuple[Integers | None, int]:
        shelf = Shelf.of(window.instance, _within(run, members, window))
        order = np.argsort(known, kind="stable")
        return shelf.reorder(order, capacity, effort // PLACEMENT, run.deadline), effort

    if run.layout is None or not compiled_placing():
        return
    instance, held = run.instance, run.held
    first = np.searchsorted(held[:, 4], np.arange(len(instance) + 1))
    start, end = np.zeros(len(instance), np.int64), np.ones(len(instance), np.int64)
    holds = first[:-1] < first[1:]
    start[holds], end[holds] = held[first[:-1][holds], 0], held[first[1:][holds] - 1, 1]
    timed = replace(instance, start=start, end=end, sections=int(end.max()))
    watch, low = Watch(run.deadline, run.options), max(run.enough, run.proved)
    repair(timed, run.layout, low, work, watch, lambda found: run.take(found, "windows"), ask)
    run.cut = run.cut or watch.cut


def _within(run: _Run, members: Integers, window: Window) -> Integers:
    """The rows of these buffers, as far as they reach into the window."""
    begin = run.held[:, 4].searchsorted(members)
    count = run.held[:, 4].searchsorted(members, side="right") - begin
    owner = np.repeat(np.arange(len(members)), count)
    rows: Integers = run.held[np.arange(len(owner)) - (np.cumsum(count) - count - begin)[owner]]
    rows[:, 4] = owner
    rows[:, 0] = np.maximum(rows[:, 0], window.first)
    rows[:, 1] = np.minimum(rows[:, 1], window.last)
    reach: Integers = rows[rows[:, 0] < rows[:, 1]]
    return reach


def _hot_spots(run: _Run) -> None:
    """Where the layout is highest, the bound is lifted; then windows, which it tells what not to aim at.

    In turn, windows with twice the work each time.
    """
    work, left, lifted = FEW_WINDOWS_WORK, run.options.limit(WINDOWS_WORK), None
    while run.layout is not None and run.layout.peak > max(run.enough, run.proved) and left > 0:
        if run.layout is not lifted:
            lifted = run.layout
            _lift(run)
        _repaired(run, min(work, left))
        if run.deadline.expired:
            return
        left -= work
        work *= 2


def _lift(run: _Run) -> None:
    """What the buffers around the highest one need alone, all need: by CP-SAT, as far as it sees at once.

    One strategy of it refutes a capacity in milliseconds or hardly ever.
    """
    assert run.layout is not None
    low, high = max(run.bound.bytes, run.enough, run.proved), run.layout.peak
    members = _around_the_highest(run)
    known = np.array(run.layout.offsets, dtype=np.int64)[members]
    window = Window(run.instance.subset(members), 0, int(run.held[:, 1].max()))
    middle, close = high - 1, 0
    while high - low > close:
        if run.deadline.remaining < CP_SAT_START:
            run.cut = True
            return
        found = _by_cp_sat(run, members, window, known, middle)
        run.cut = run.cut or found.cut
        run.tidy()
        if found.proved > middle:
            low = found.proved
            run.take(None, "", proved=low)
        else:
            high = middle
        middle, close = low + (high - low) // 2, run.bound.bytes // CLOSE


def _by_cp_sat(run: _Run, members: Integers, window: Window, known: Integers, capacity: int) -> Refinement:
    """Whether these buffers fit under the capacity, as far as a short search says."""
    held = [
        Piece(i, Lifespan(*life), low, high) for *life, low, high, i in _within(run, members, window).tolist()
    ]
    start, seed = layout_of(window.instance, known), SEED + run.options.seed
    return refine(window.instance, start, 0, run.deadline, HOT_WORK, seed, capacity, held, 1, capacity)


def _around_the_highest(run: _Run) -> Integers:
    """The `HOT_BUFFERS` whose pieces are nearest in time to the highest one of the layout, in their order."""
    assert run.layout is not None
    start, end, _, high, owner = run.held.T
    top = np.array(run.layout.offsets, dtype=np.int64)[owner]
    top += high
    mine = owner == owner[np.argmax(top)]
    del top
    middle = (int(start[mine].min()) + int(end[mine].max())) // 2
    away = np.maximum(middle - end + 1, 0)
    np.maximum(away, start - middle, out=away)
    # Of the nearest pieces as many as are sure to be of so many buffers: all are put in order at the most.
    pieces = HOT_BUFFERS
    while pieces < len(away):
        near = np.flatnonzero(away <= np.partition(away, pieces)[pieces])
        if len(np.unique(owner[near])) >= HOT_BUFFERS:
            break
        pieces *= 2
    else:
        near = np.arange(len(away))
    near = owner[near[np.argsort(away[near], kind="stable")]]
    _, at = np.unique(near, return_index=True)
    return np.sort(near[np.sort(at)[:HOT_BUFFERS]])


def _search(run: _Run) -> None:
    """Local search among orders."""
    if run.layout is None:
        return
    place, seed = Placing(run.instance, run.held, run.deadline), run.options.seed
    work = min(SEARCH_WORK, GREEDY_WORK // max(1, place.cost // len(run.instance)))
    better = improve(run.instance, run.layout, run.enough, work, run.deadline, seed, place)
    run.take(better.layout, "search", cut=better.cut)


def _exact(run: _Run) -> None:
    """CP-SAT; behind other stages briefly, as none of them proves any."""
    if run.layout is None or run.deadline.remaining < CP_SAT_START:
        run.cut = True
        return
    held = [Piece(i, Lifespan(start, end), low, high) for start, end, low, high, i in run.held.tolist()]
    refined = refine(
        run.instance,
        run.layout,
        run.bound.bytes,
        run.deadline,
        run.use.exact_work,
        SEED + run.options.seed,
        run.enough,
        held,
    )
    run.take(refined.layout, "cp-sat", proved=refined.proved, cut=refined.cut)


@dataclass(frozen=True, slots=True)
class Stage:
    """Something to try: its name, whether it is for a solver and its problem, and how it runs."""

    name: str
    applies: Callable[[_Run], bool]
    run: Callable[[_Run], None]


#: In this order.
STAGES: Final = (
    Stage("greedy", lambda run: run.use.greedy, _greedy),
    Stage("whole", lambda _: True, _whole),
    Stage("few windows", lambda run: run.use.search and run.many, _few_windows),
    Stage("hot spots", lambda run: run.use.search and run.use.exact_work > 0 and run.many, _hot_spots),
    Stage("windows", lambda run: run.use.search and run.many and run.use.exact_work <= 0, _windows),
    Stage("search", lambda run: run.use.search, _search),
    Stage("exact", lambda run: len(run.instance) <= run.use.exact_buffers, _exact),
)


def rows_of(problem: LayoutProblem) -> Integers:
    """The pieces as rows of first step, one past the last, low, high, owner, as `Columns.pieces` gives them.

    Steps are ranks among all steps, which are small numbers.
    """
    columns = Columns.of(problem)
    if columns is not None:
        rows = np.ascontiguousarray(columns.pieces("C"))
        rows[:, 0], rows[:, 1] = ranks(rows[:, 0], rows[:, 1])
        return rows
    held = pieces(problem)
    exact = sorted({step for p in held for step in (p.lifespan.start, p.lifespan.end)})
    rank = {step: k for k, step in enumerate(exact)}
    listed = [(rank[p.lifespan.start], rank[p.lifespan.end], p.low, p.high, p.owner) for p in held]
    return np.array(listed, np.int64).reshape(-1, 5)


class Placing:
    """First fit of buffers that are several pieces; compiled where that is worth it.

    O(those that meet it, log n) for each placement compiled, O(n) as a few NumPy calls a piece otherwise.
    With a deadline it stops early once that has passed, which the next pass may have another of. `held`: see
    `rows_of`.
    """

    def __init__(self, instance: Instance, held: Integers, deadline: Deadline | None = None) -> None:
        self._instance, self._rows, self.deadline = instance, held, deadline or Deadline()
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
        place, pinned = self._in_numpy if self._shelf is None else self._shelf, self._pinned
        if not len(pinned):
            return place(np.ascontiguousarray(order), 0, limit, lambda: self.deadline.expired)
        free = np.flatnonzero(self._instance.offset[order] == FREE)
        placing = np.concatenate((pinned, order[free]))
        offsets, placed = place(placing, len(pinned), limit, lambda: self.deadline.expired)
        return offsets, len(order) if placed == len(free) else int(free[placed])

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


def _meets(start: Integers, end: Integers) -> Integers:
    """How many meet each one, itself among them."""
    meets: Integers = np.sort(start).searchsorted(end, side="left")
    meets -= np.sort(end).searchsorted(start, side="right")
    return meets


class Shelf:
    """Memory of the compiled placing, used again by every pass: some 40 bytes a piece beside its row."""

    def __init__(self, instance: Instance, rows: Integers, first: Integers) -> None:
        start, end = rows[:, 0], rows[:, 1]
        self._instance, self._rows = instance, np.ascontiguousarray(rows)
        self._first = np.asarray(first, np.int64)
        # As wide as lives are long, on average: a piece then stands in two or three stretches.
        self._width = max(1, int((end - start).mean()))
        self._head = np.empty(int(end.max()) // self._width + 1, np.int64)
        reaches = int(((end - 1) // self._width - start // self._width).sum()) + len(rows)
        self._entries = np.empty((reaches, 2), np.int32)
        added = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(_meets(start, end), out=added[1:])
        self._scratch = np.empty((2, int(np.diff(added[first]).max())), np.int64)
        self.cost = 4 * int(added[-1])

    @classmethod
    def of(cls, instance: Instance, held: Integers) -> Shelf:
        """`held`: see `rows_of`."""
        return cls(instance, held, np.searchsorted(held[:, 4], np.arange(len(instance) + 1)))

    def reorder(self, order: Integers, limit: int, placements: int, deadline: Deadline) -> Integers | None:
        """Offsets within `limit` from some order, begun with this one, pins first; None if it finds none."""
        from solver.layout.kernels import pieces_kernel

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
        from solver.layout.kernels import pieces_kernel

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


@cache
def compiled_placing() -> bool:
    """Whether placing in pieces runs compiled, tried once."""
    from solver.layout.kernels import pieces_kernel

    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    shelf = Shelf(
        Instance(zero, one, one, one, one, zero + FREE, 1), np.array([(0, 1, 0, 1, 0)]), np.array([0, 1])
    )
    shelf(zero, 0, 1, lambda: False)
    shelf.reorder(zero, 1, 9, Deadline())
    return runs_compiled(pieces_kernel.place_pieces)


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
