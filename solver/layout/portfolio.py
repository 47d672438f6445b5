"""The default solver: the cheapest argument first, and a valid layout whatever happens.

    max-load bound -> greedy portfolio -> branch and bound | local search -> CP-SAT
                      ^ bound met: done                      ^ bound met or proved: done

Every budget is counted in work, so that the same problem gives the same layout on any machine. The
deadline cuts in on top; what was found until then is returned, and the outcome says so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from solver.layout.branch_and_bound import climb
from solver.layout.cp_sat import refine
from solver.layout.greedy import greedy_portfolio
from solver.layout.instance import Instance
from solver.layout.load import max_load
from solver.layout.outcome import settle
from solver.layout.problem import Deadline, Layout, Outcome, Problem
from solver.layout.search import improve
from solver.layout.skyline_search import Budget

__all__ = ["Portfolio"]

#: Buffers up to which branch and bound is asked; beyond, even one descent takes seconds.
EXACT_BUFFERS: Final = 1500

#: CP-SAT takes many seconds to start on more than this, and then rarely improves on the other stages.
CP_SAT_BUFFERS: Final = 100

#: Budgets, each worth two to three seconds at most and far less when the bound is within reach:
#: what branch and bound looks at, placements of the local search, deterministic time of CP-SAT.
BRANCH_WORK: Final = 6_000_000
SEARCH_WORK: Final = 60_000
SEARCH_WORK_PER_BUFFER: Final = 400
CP_SAT_WORK: Final = 0.02

#: Seconds before the deadline at which CP-SAT is no longer started: loading it takes that long.
CP_SAT_START: Final = 1.5


@dataclass(slots=True)
class _Progress:
    """What is known so far, and which stage found the layout."""

    layout: Layout
    stage: str
    proved: int = 0
    cut: bool = False

    def take(self, stage: str, layout: Layout, *, proved: int = 0, cut: bool = False) -> None:
        if layout.peak < self.layout.peak:
            self.layout, self.stage = layout, stage
        self.proved = max(self.proved, proved)
        self.cut = self.cut or cut


class Portfolio:
    """Lower bound, greedy portfolio, then search until the bound is met or the work is spent.

    The outcome's solver is ``portfolio/`` and the stage that found the layout.
    """

    name = "portfolio"

    def solve(self, problem: Problem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance = max_load(problem), Instance.of(problem)
        greedy = greedy_portfolio(instance, bound.bytes, deadline)
        progress = _Progress(greedy.layout, "greedy", cut=greedy.cut)
        if incumbent is not None:
            progress.take("incumbent", incumbent)
        for stage in (_search, _exact):
            if progress.layout.peak > max(bound.bytes, progress.proved):
                stage(instance, bound.bytes, deadline, progress)
        return settle(
            problem,
            progress.layout,
            bound,
            f"{self.name}/{progress.stage}",
            began,
            proved=progress.proved,
            deterministic=not progress.cut,
        )


def _search(instance: Instance, bound: int, deadline: Deadline, progress: _Progress) -> None:
    """Branch and bound where it applies, which beats local search there by far; else local search."""
    if instance.pinned or instance.misaligning or len(instance) > EXACT_BUFFERS:
        work = min(SEARCH_WORK, SEARCH_WORK_PER_BUFFER * len(instance))
        improved = improve(instance, progress.layout, bound, work, deadline)
        progress.take("search", improved.layout, cut=improved.cut)
    else:
        budget = Budget(BRANCH_WORK, deadline)
        climbed = climb(instance, progress.layout, bound, budget)
        progress.take("branch-and-bound", climbed.layout, proved=climbed.proved, cut=budget.cut)


def _exact(instance: Instance, bound: int, deadline: Deadline, progress: _Progress) -> None:
    """CP-SAT, from what the search has found and proved."""
    if len(instance) > CP_SAT_BUFFERS:
        return
    if deadline.remaining < CP_SAT_START:
        progress.cut = True
        return
    known = max(bound, progress.proved)
    refined = refine(instance, progress.layout, known, deadline, CP_SAT_WORK)
    progress.take("cp-sat", refined.layout, proved=refined.proved, cut=refined.cut)
