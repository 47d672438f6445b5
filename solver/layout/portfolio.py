"""The default solver: the cheapest argument first, and a valid layout whatever happens.

    max-load bound -> structure, first fit by size -> a few orders -> probe of the bound
                   -> short coarse questions -> all orders -> long coarse questions
                   -> capacity search, or with holes local search -> CP-SAT
                   ^ the bound is met, or proved to be out of reach: done

The stages are a table, `STAGES`: a name, which problems a stage is for, and how it runs. Each begins with the
best layout of those before it. ``./run bench stages`` shows what each stage is worth, and with
``--leave-out NAME`` what is lost without it.

Every budget is counted in work, so that the same problem gives the same layout on any machine. The deadline
and the caller's cancel event cut in on top: the best layout until then is returned, and the outcome says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from solver.layout.bounds import aligned_load, max_load, pinned_top, settle
from solver.layout.exact.capacity_search import CapacitySearch, negligible
from solver.layout.exact.coarse import LONG_QUESTIONS, SHORT_QUESTIONS, Question, search_coarsely
from solver.layout.exact.cp_sat import SEED, refine
from solver.layout.exact.feasibility import Watch
from solver.layout.greedy.local_search import improve
from solver.layout.greedy.placement import GOOD_GAP, MANY, greedy_portfolio, place_first
from solver.layout.model.heap import give_back
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.options import USUAL, Progress, SolveOptions
from solver.layout.model.pieces import has_holes
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout, LayoutProblem, LayoutSolver, Outcome
from solver.layout.structures import structured

__all__ = ["STAGES", "Portfolio", "Stage"]

#: Buffers up to which orders of a millisecond come before the exact search, which takes longer to load.
A_FEW_ORDERS_BUFFERS: Final = 400
A_FEW_ORDERS: Final = 5

#: Buffers up to which the bound is asked about at once: a short question takes less than all orders. Above,
#: the questions are about the problem made coarse, as far as that is worth it.
PROBE_BUFFERS: Final = 3_000
COARSE_BUFFERS: Final = 2_000_000

#: Buffers up to which all orders wait for the short coarse questions, and the capacity search is asked.
SEARCH_BUFFERS: Final = 20_000

#: Buffers up to which CP-SAT is asked: on more it takes many seconds to start and rarely improves.
CP_SAT_BUFFERS: Final = 100

#: Deterministic time of CP-SAT, two to three seconds; more with holes, where no other stage proves any.
CP_SAT_WORK: Final = 0.02
CP_SAT_WORK_WITH_HOLES: Final = 0.1

#: Seconds before the deadline at which CP-SAT is no longer started: loading it takes that long.
CP_SAT_START: Final = 1.5

#: Passes of local search with holes, and placements at most: about a tenth of a second. A gap of more than
#: `WIDE_GAP` is worth three tenths: of nine random problems of 400 to 1,000 buffers five end up to 2 % lower.
LOCAL_SEARCH_PASSES: Final = 400
LOCAL_SEARCH_WORK: Final = 60_000
LOCAL_SEARCH_WORK_WIDE_GAP: Final = 200_000
WIDE_GAP: Final = 0.01

#: Seconds a buffer before the deadline at which pieces of buffers with holes are no longer made ready.
PIECES_SECONDS: Final = 3e-6

#: Buffers from which memory that a stage has freed goes back to the system, a fraction of a millisecond.
TIDY_BUFFERS: Final = 3_000


@dataclass(slots=True)
class _Run:
    """State of one call: the problem, the best layout so far, and the stage that produced it.

    `goal` is the peak that is enough (0: as low as possible), `proved` a lower bound that a search has shown;
    in bytes. The instance has no pieces before a stage needs them.
    """

    instance: Instance
    bound: int
    watch: Watch
    began: float
    goal: int
    capacity: int
    proved: int
    has_holes: bool
    layout: Layout = field(default_factory=lambda: Layout((), MAX_BYTES + 1))
    stage: str = ""
    search: CapacitySearch | None = None

    def take(self, stage: str, layout: Layout, *, proved: int = 0, cut: bool = False) -> None:
        """Keeps a better layout or bound, and reports it."""
        better = layout.peak < self.layout.peak
        if better:
            self.layout, self.stage = layout, stage
        if better or proved > self.proved:
            self.proved = max(self.proved, proved)
            if self.watch.options.progress is not None:
                seconds = time.perf_counter() - self.began
                self.watch.options.progress(Progress(self.layout.peak, self.lower_bound, seconds, self.stage))
        self.watch.cut = self.watch.cut or cut

    def tidy(self) -> None:
        if self.buffers >= TIDY_BUFFERS:
            give_back()

    @property
    def buffers(self) -> int:
        return len(self.instance)

    @property
    def lower_bound(self) -> int:
        return max(self.bound, self.proved)

    @property
    def enough(self) -> int:
        """The peak at which the search stops."""
        return max(self.goal, self.watch.options.within_gap(self.lower_bound))

    @property
    def finished(self) -> bool:
        if self.has_holes and self.watch.deadline.remaining <= PIECES_SECONDS * self.buffers:
            self.watch.cut = True
        return self.layout.peak <= self.enough or 0 < self.goal < self.lower_bound or self.watch()

    @property
    def gap_is_negligible(self) -> bool:
        """Whether the gap is too small for stages that prove nothing, with the usual budget."""
        usual = self.watch.options.work is USUAL and self.layout.peak <= self.capacity
        return usual and negligible(self.layout.peak, self.lower_bound)

    @property
    def gap_is_good(self) -> bool:
        return self.layout.peak - self.bound <= self.bound * GOOD_GAP

    @property
    def is_for_cp_sat(self) -> bool:
        """Whether CP-SAT is asked in the place of the capacity search, which spends all of its work on gaps
        between pins that nothing fills; CP-SAT takes a fraction of a second.
        """
        loads = self.watch.deadline.remaining >= CP_SAT_START
        return self.instance.pinned and self.buffers <= CP_SAT_BUFFERS and loads

    @property
    def can_be_coarse(self) -> bool:
        """Whether there are many buffers, none has a pin or holes, and sums of sizes keep all alignments."""
        loose = not (self.has_holes or self.instance.pinned or self.instance.misaligning)
        return PROBE_BUFFERS < self.buffers <= COARSE_BUFFERS and loose


def _first(run: _Run) -> None:
    """First fit by size, whatever the deadline says, and what a theorem places: often the optimum."""
    # A theorem takes a few sorts, which is less than to place many buffers and more than to place a few.
    parts = (_theorems, _by_size) if run.buffers >= PROBE_BUFFERS else (_by_size, _theorems)
    for part in parts:
        if not run.stage or run.layout.peak > run.enough:
            part(run)


def _by_size(run: _Run) -> None:
    if not (run.has_holes and run.instance.pinned):  # pins may lie in holes
        offsets = place_first(run.instance, run.watch.deadline)
        run.take("greedy", layout_of(run.instance, offsets), cut=run.watch.deadline.expired)


def _theorems(run: _Run) -> None:
    if run.watch.options.rules.structure and not run.has_holes:
        for name, offsets in structured(run.instance):
            run.take(name, layout_of(run.instance, offsets))


def _all_orders(run: _Run) -> None:
    """With many buffers until the gap is good, unless there is nothing but a deadline to end the search."""
    many = run.buffers >= MANY and run.watch.options.work is not None
    _orders(run, max(run.enough, run.bound + int(run.bound * GOOD_GAP) if many else 0))


def _orders(run: _Run, enough: int, attempts: int | None = None) -> None:
    known = run.layout if run.stage else None
    result = greedy_portfolio(run.instance, enough, run.watch.deadline, known, attempts)
    run.take("greedy", result.layout, cut=result.cut)


def _probe(run: _Run) -> None:
    _capacities(run).probe(run.goal)


def _capacity_search(run: _Run) -> None:
    _capacities(run).tighten(run.goal)


def _capacities(run: _Run) -> CapacitySearch:
    """One search for all questions, which learns from each."""
    if run.search is None:

        def listen(layout: Layout, proved: int) -> None:
            run.take("capacity-search", layout, proved=proved)

        run.search = CapacitySearch(run.instance, run.layout, run.bound, run.watch, listen, run.capacity)
    run.search.offer(run.layout)
    return run.search


def _coarsely(run: _Run, questions: tuple[Question, ...]) -> None:
    for question in questions:
        capacity = max(run.enough, run.bound + int(run.bound * question.gap))
        if run.finished or run.gap_is_negligible or capacity >= run.layout.peak:
            continue
        work = min(question.work, run.watch.options.limit(question.work))
        limit = run.layout.peak - 1
        layout = search_coarsely(run.instance, capacity, limit, question.grain, work, run.watch)
        if layout is not None:
            run.take("coarse", layout)


def _local_search(run: _Run) -> None:
    wide = run.layout.peak > run.lower_bound * (1 + WIDE_GAP)
    most = LOCAL_SEARCH_WORK_WIDE_GAP if wide else LOCAL_SEARCH_WORK
    work, seed = min(most, LOCAL_SEARCH_PASSES * run.buffers), run.watch.options.seed
    improved = improve(run.instance, run.layout, run.enough, work, run.watch.deadline, seed)
    run.take("search", improved.layout, cut=improved.cut)


def _cp_sat(run: _Run) -> None:
    if run.watch.deadline.remaining < CP_SAT_START:
        run.watch.cut = True
        return
    work = CP_SAT_WORK_WITH_HOLES if run.has_holes else CP_SAT_WORK
    seed, deadline = SEED + run.watch.options.seed, run.watch.deadline
    refined = refine(run.instance, run.layout, run.lower_bound, deadline, work, seed, run.enough)
    run.take("cp-sat", refined.layout, proved=refined.proved, cut=refined.cut)


@dataclass(frozen=True, slots=True)
class Stage:
    """Something to try: its name, whether it is for a problem that is still open, and how it runs."""

    name: str
    applies: Callable[[_Run], bool]
    run: Callable[[_Run], None]


#: In this order.
STAGES: Final = (
    Stage(
        "a few orders",
        lambda run: not (run.goal or run.has_holes) and run.buffers <= A_FEW_ORDERS_BUFFERS,
        lambda run: _orders(run, run.bound, A_FEW_ORDERS),
    ),
    Stage("probe", lambda run: not run.has_holes and run.buffers <= PROBE_BUFFERS, _probe),
    Stage(
        "short coarse questions",
        lambda run: run.can_be_coarse and (run.buffers <= SEARCH_BUFFERS or run.gap_is_good),
        lambda run: _coarsely(run, SHORT_QUESTIONS),
    ),
    Stage("all orders", lambda run: not run.gap_is_negligible, _all_orders),
    Stage("long coarse questions", lambda run: run.can_be_coarse, lambda run: _coarsely(run, LONG_QUESTIONS)),
    Stage(
        "capacity search",
        lambda run: not (run.has_holes or run.is_for_cp_sat) and run.buffers <= SEARCH_BUFFERS,
        _capacity_search,
    ),
    Stage("local search", lambda run: run.has_holes, _local_search),
    Stage("CP-SAT", lambda run: run.buffers <= CP_SAT_BUFFERS, _cp_sat),
)


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Lower bound, a first layout, then the stages until the bound is met or the work is spent.

    The outcome's solver is ``portfolio/`` and the stage that produced the layout.
    """

    options: SolveOptions = field(default_factory=SolveOptions)
    stages: tuple[Stage, ...] = STAGES
    name: str = "portfolio"

    def configured(self, options: SolveOptions) -> LayoutSolver:
        return replace(self, options=options)

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, watch = max_load(problem), Watch(deadline, self.options)
        goal = problem.capacity or 0 if self.options.fit else 0
        capacity = MAX_BYTES if problem.capacity is None else problem.capacity
        instance, top = Instance.of_whole(problem), max(pinned_top(problem), aligned_load(problem))
        run = _Run(instance, bound.bytes, watch, began, goal, capacity, top, has_holes(problem))
        run.tidy()
        _first(run)
        if incumbent is not None:
            run.take("incumbent", incumbent)
        for stage in self.stages:
            if (not run.finished or not run.stage) and stage.applies(run):
                if run.has_holes and run.instance.pieces is None:
                    run.instance = run.instance.with_pieces(problem)
                run.tidy()
                stage.run(run)
        run.search = None  # it refers to the run
        run.tidy()
        return settle(
            problem,
            run.layout,
            bound,
            f"{self.name}/{run.stage}",
            began,
            proved=run.proved,
            deterministic=watch.deterministic,
        )
