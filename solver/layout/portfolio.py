"""The default solver: the cheapest argument first, and a valid layout whatever happens.

    max-load bound -> greedy -> capacity ladder | local search -> CP-SAT
                      ^ bound met: done           ^ bound met or proved: done

Every budget is counted in work, so that the same problem gives the same layout on any machine. The
deadline and the caller's cancel event cut in on top; what was found until then is returned, and the
outcome says so. Where nothing can be compiled, the ladder gives way to branch and bound in Python.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from solver.layout.branch_and_bound import climb
from solver.layout.cp_sat import refine
from solver.layout.decider import Watch, compiled_search
from solver.layout.greedy import greedy_portfolio
from solver.layout.instance import Instance
from solver.layout.ladder import Ladder
from solver.layout.load import max_load
from solver.layout.options import Progress, SolveOptions
from solver.layout.outcome import settle
from solver.layout.problem import Deadline, Layout, LayoutSolver, Outcome, Problem
from solver.layout.search import improve
from solver.layout.skyline_search import Budget

__all__ = ["Portfolio"]

#: Buffers up to which the compiled search, and the one in Python, are asked.
LADDER_BUFFERS: Final = 20_000
PYTHON_BUFFERS: Final = 1500

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
    def finished(self) -> bool:
        low = max(self.bound, self.proved)
        enough = max(self.goal, low + int(low * self.watch.options.target_gap))
        return self.layout.peak <= enough or 0 < self.goal < low or self.watch()


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Lower bound, greedy portfolio, then search until the bound is met or the work is spent.

    The outcome's solver is ``portfolio/`` and the stage that found the layout.
    """

    options: SolveOptions = field(default_factory=SolveOptions)
    name: str = "portfolio"

    def configured(self, options: SolveOptions) -> LayoutSolver:
        return Portfolio(options)

    def solve(self, problem: Problem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance = max_load(problem), Instance.of(problem)
        greedy = greedy_portfolio(instance, bound.bytes, deadline)
        watch = Watch(deadline, self.options, cut=greedy.cut)
        goal = problem.capacity or 0 if self.options.fit else 0
        run = _Run(instance, bound.bytes, greedy.layout, "greedy", watch, began, goal)
        run.report()
        if incumbent is not None:
            run.take("incumbent", incumbent)
        for stage in (_search, _exact):
            if not run.finished:
                stage(run)
        deterministic = not (watch.cut or self.options.race)
        stage_name = f"{self.name}/{run.stage}"
        return settle(
            problem, run.layout, bound, stage_name, began, proved=run.proved, deterministic=deterministic
        )


def _search(run: _Run) -> None:
    """Branch and bound where it applies, which beats local search there by far; else local search."""
    instance, searchable = run.instance, not (run.instance.pinned or run.instance.misaligning)
    if searchable and len(instance) <= LADDER_BUFFERS and compiled_search() is not None:
        ladder = Ladder(
            instance, run.layout, run.bound, run.watch, lambda layout, p: run.take("ladder", layout, proved=p)
        )
        climbed = ladder.climb(run.goal)
        run.take("ladder", climbed.layout, proved=climbed.proved)
    elif searchable and len(instance) <= PYTHON_BUFFERS:
        budget = Budget(PYTHON_WORK, run.watch.deadline)
        in_python = climb(instance, run.layout, run.bound, budget)
        run.take("branch-and-bound", in_python.layout, proved=in_python.proved, cut=budget.cut)
    else:
        work = min(SEARCH_WORK, SEARCH_WORK_PER_BUFFER * len(instance))
        improved = improve(instance, run.layout, run.bound, work, run.watch.deadline)
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
