"""The default solver: the cheapest argument first, and a valid layout whatever happens.

    max-load bound -> one order -> probe of the bound -> greedy -> capacity search | local search -> CP-SAT
                      ^ the bound is met, or proved to be out of reach: done

Between the probe and the capacity search, where there are thousands of buffers, the problem is made small:
`coarse`.

Memory is bounded: what `FeasibilitySearch` states for each set of buffers searched, of which the capacity
search keeps `KEPT`; 100 to 600 bytes a buffer for each of two greedy placements; where nothing compiles, some
160 MB.

Every budget is counted in work, so that the same problem gives the same layout on any machine. The
deadline and the caller's cancel event cut in on top; what was found until then is returned, and the
outcome says so. Where nothing can be compiled, branch and bound in Python takes the place of the capacity
search.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from solver.layout.bounds.max_load import max_load
from solver.layout.bounds.settle import settle
from solver.layout.exact.branch_and_bound import tighten
from solver.layout.exact.capacity_search import NEGLIGIBLE, CapacitySearch, negligible
from solver.layout.exact.coarse import FINE, MIDDLE, ROUGH, Grain, search_coarsely
from solver.layout.exact.cp_sat import refine
from solver.layout.exact.feasibility import Watch, compiled_search
from solver.layout.exact.skyline_search import Budget
from solver.layout.greedy.large import GOOD_ENOUGH
from solver.layout.greedy.local_search import improve
from solver.layout.greedy.placement import greedy_portfolio, place_once
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.options import USUAL, Progress, SolveOptions
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout, LayoutProblem, LayoutSolver, Outcome

__all__ = ["Portfolio"]

#: Buffers up to which the compiled search, and the one in Python, are asked.
CAPACITY_SEARCH_BUFFERS: Final = 20_000
PYTHON_BUFFERS: Final = 1500

#: Up to here one short question comes before the greedy portfolio, which takes longer.
PROBE_BUFFERS: Final = 3000

#: Above that and up to here, questions about the problem made small: grain, one part in how many of the bound
#: is granted on top of it (0: none), and work. Different ones fail on different problems. The short ones come
#: before the greedy portfolio where the capacity search is asked too; on more buffers greedy is good enough.
COARSE_BUFFERS: Final = 2_000_000
SHORT_QUESTIONS: Final = ((MIDDLE, 0, 2_000_000), (ROUGH, GOOD_ENOUGH, 2_000_000))
LONG_QUESTIONS: Final = ((FINE, 0, 5_000_000), (MIDDLE, 0, 10_000_000))

#: CP-SAT takes many seconds to start on more than this, and then rarely improves on the other stages.
CP_SAT_BUFFERS: Final = 100

#: Budgets of the other stages, each worth two to three seconds at most: what branch and bound in Python
#: looks at, placements of the local search, deterministic time of CP-SAT.
PYTHON_WORK: Final = 6_000_000
SEARCH_WORK: Final = 60_000
SEARCH_WORK_PER_BUFFER: Final = 400
CP_SAT_WORK: Final = 0.02

#: Seconds before the deadline at which CP-SAT is no longer started: loading it takes that long.
CP_SAT_START: Final = 1.5


#: Buffers up to which a few greedy orders, a millisecond or two each, come before the compiled search, whose
#: code takes a third of a second to load. A question about a capacity goes to the search at once.
PROMISING_BUFFERS: Final = 400
PROMISING: Final = 5


@dataclass(slots=True)
class _Run:
    """One call: what is asked, what is known so far, and which stage found the layout."""

    instance: Instance
    bound: int
    layout: Layout
    stage: str
    watch: Watch
    began: float
    goal: int = 0
    capacity: int = MAX_BYTES
    proved: int = 0

    def take(self, stage: str, layout: Layout, *, proved: int = 0, cut: bool = False) -> None:
        better = layout.peak < self.layout.peak
        if better:
            self.layout, self.stage = layout, stage
        if better or proved > self.proved:
            self.proved = max(self.proved, proved)
            self.report()
        self.watch.cut = self.watch.cut or cut

    def report(self) -> None:
        progress, low = self.watch.options.progress, max(self.bound, self.proved)
        if progress is not None:
            progress(Progress(self.layout.peak, low, time.perf_counter() - self.began, self.stage))

    @property
    def low(self) -> int:
        return max(self.bound, self.proved)

    @property
    def enough(self) -> int:
        return max(self.goal, self.watch.options.within_gap(self.low))

    @property
    def negligible(self) -> bool:
        """Whether the optimality gap is too small for stages that prove nothing, with the usual budget."""
        usual, peak = self.watch.options.work is USUAL, self.layout.peak
        return usual and peak <= self.capacity and negligible(peak, self.low)

    @property
    def finished(self) -> bool:
        return self.layout.peak <= self.enough or 0 < self.goal < self.low or self.watch()


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Lower bound, greedy portfolio, then search until the bound is met or the work is spent.

    The outcome's solver is ``portfolio/`` and the stage that found the layout.
    """

    options: SolveOptions = field(default_factory=SolveOptions)
    name: str = "portfolio"

    def configured(self, options: SolveOptions) -> LayoutSolver:
        return Portfolio(options)

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance = max_load(problem), Instance.of(problem)
        watch = Watch(deadline, self.options)
        goal = problem.capacity or 0 if self.options.fit else 0
        quick = "greedy", _first_layout(instance)
        if incumbent is not None and incumbent.peak < quick[1].peak:
            quick = "incumbent", incumbent
        capacity = MAX_BYTES if problem.capacity is None else problem.capacity
        run = _Run(instance, bound.bytes, quick[1], quick[0], watch, began, goal, capacity)
        run.report()
        if not goal and not run.finished and len(instance) <= PROMISING_BUFFERS:
            _promising(run)
        for stage in _stages(run):
            if not run.finished:
                stage(run)
        deterministic = not (watch.cut or self.options.race)
        stage_name = f"{self.name}/{run.stage}"
        return settle(
            problem, run.layout, bound, stage_name, began, proved=run.proved, deterministic=deterministic
        )


def _first_layout(instance: Instance) -> Layout:
    """First fit by size, to have something; for many training steps it is the optimum."""
    order = np.lexsort((instance.start - instance.end, -instance.size))
    offsets = place_once(instance, order)
    return layout_of(instance, offsets)


def _stages(run: _Run) -> tuple[Callable[[_Run], None], ...]:
    """What to try in turn. Branch and bound beats local search by far, where it applies."""
    instance, simple = run.instance, not (run.instance.pinned or run.instance.misaligning)
    if run.finished:
        return ()
    compiled = (
        len(instance) <= (COARSE_BUFFERS if simple else PROBE_BUFFERS) and compiled_search() is not None
    )
    coarse = (_short_questions, _long_questions) if compiled and len(instance) > PROBE_BUFFERS else ()
    if compiled and len(instance) <= CAPACITY_SEARCH_BUFFERS:
        search = CapacitySearch(
            instance,
            run.layout,
            run.bound,
            run.watch,
            lambda layout, p: run.take("capacity-search", layout, proved=p),
            run.capacity,
        )

        def probe(run: _Run) -> None:
            search.probe(run.goal)

        def search_capacities(run: _Run) -> None:
            search.offer(run.layout)
            search.tighten(run.goal)

        early = coarse[:1] or (probe,)
        return (*early, _greedy, *coarse[1:], search_capacities, _exact)
    if simple and len(instance) <= PYTHON_BUFFERS:
        return _greedy, _in_python, _exact
    return (_greedy, *coarse, _local_search, _exact)


def _promising(run: _Run) -> None:
    """The orders that win most often: where they meet the bound, nothing compiled has to be loaded."""
    greedy = greedy_portfolio(run.instance, run.bound, run.watch.deadline, attempts=PROMISING)
    run.take("greedy", greedy.layout, cut=greedy.cut)


def _greedy(run: _Run) -> None:
    """All orders and fits."""
    if not run.negligible:
        usual = run.watch.options.work is USUAL
        enough = run.bound + (run.bound // NEGLIGIBLE if usual else 0)
        greedy = greedy_portfolio(run.instance, enough, run.watch.deadline)
        run.take("greedy", greedy.layout, cut=greedy.cut)


def _short_questions(run: _Run) -> None:
    _coarsely(run, SHORT_QUESTIONS)


def _long_questions(run: _Run) -> None:
    _coarsely(run, LONG_QUESTIONS)


def _coarsely(run: _Run, questions: tuple[tuple[Grain, int, int], ...]) -> None:
    """The problem made small, until the layout is good enough."""
    for grain, parts, work in questions:
        capacity = max(run.enough, run.bound + (run.bound // parts if parts else 0))
        if run.finished or run.negligible or capacity >= run.layout.peak:
            continue
        limited = min(work, run.watch.options.limit(work))
        found = search_coarsely(run.instance, capacity, run.layout.peak - 1, grain, limited, run.watch)
        if found is not None:
            run.take("coarse", found)


def _in_python(run: _Run) -> None:
    """Branch and bound where nothing can be compiled."""
    budget = Budget(PYTHON_WORK, run.watch.deadline)
    tightened = tighten(run.instance, run.layout, run.bound, budget)
    run.take("branch-and-bound", tightened.layout, proved=tightened.proved, cut=budget.cut)


def _local_search(run: _Run) -> None:
    if not run.negligible:
        work = min(SEARCH_WORK, SEARCH_WORK_PER_BUFFER * len(run.instance))
        improved = improve(run.instance, run.layout, run.bound, work, run.watch.deadline)
        run.take("search", improved.layout, cut=improved.cut)


def _exact(run: _Run) -> None:
    """CP-SAT, from what the search has found and proved."""
    if len(run.instance) > CP_SAT_BUFFERS:
        return
    if run.watch.deadline.remaining < CP_SAT_START:
        run.watch.cut = True
        return
    known = max(run.bound, run.proved)
    refined = refine(run.instance, run.layout, known, run.watch.deadline, CP_SAT_WORK)
    run.take("cp-sat", refined.layout, proved=refined.proved, cut=refined.cut)
