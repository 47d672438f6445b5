"""Branch and bound as a solver: reductions, restarts, and the range between bound and incumbent narrowed.

The exact search itself, and why it is complete, is in `solver.layout.exact.skyline_search`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

import numpy as np

from solver.errors import OptionsError
from solver.layout.bounds.max_load import max_load
from solver.layout.bounds.settle import settle
from solver.layout.exact.skyline_search import Answer, Budget, Placed, SkylineSearch
from solver.layout.greedy.placement import first_fit, greedy_portfolio, place
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.options import ENDLESS, Progress, Rules, SolveOptions
from solver.layout.model.problem import Deadline, Layout, LayoutProblem, LayoutSolver, Outcome
from solver.layout.model.reduce import peel

__all__ = ["BranchAndBound", "Tightened", "fits", "tighten"]

#: Nodes of the first run for each buffer; each later run, with another priority, may take a bit more.
#: Runs are short because search times are heavy-tailed: another priority often succeeds at once.
FIRST_RUN: Final = 2
RUN_GROWTH: Final = 1.3

#: Buffers and sections looked at: of the order of ten seconds.
WORK: Final = 40_000_000


def _priorities(instance: Instance) -> list[list[int]]:
    """Ranks of the buffers, one per priority rule."""
    width, size = instance.end - instance.start, instance.size
    area = size.astype(np.float64) * width
    ranks = []
    for keys in ((-area, -width), (-width, -size), (-size, -width), (instance.start, -size)):
        order = np.lexsort((keys[1], keys[0]))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        ranks.append([int(r) for r in rank])
    return ranks


def fits(
    instance: Instance, capacity: int, budget: Budget, rules: Rules | None = None, seed: int = 0
) -> tuple[Answer, Integers | None]:
    """Whether everything fits under `capacity` bytes, with offsets if so.

    NO only after the search has been exhausted. Pins and `misaligning` sizes are not supported. `seed` says
    which priority comes first.
    """
    rules, everything = rules or Rules(), np.arange(len(instance))
    core, peeled = (
        peel(instance, capacity, lambda: budget.deadline.expired)
        if rules.peel
        else (everything, everything[:0])
    )
    part = instance.subset(core)
    search, priorities = SkylineSearch(part, capacity, rules), _priorities(part)
    for attempt in count():
        nodes = int(FIRST_RUN * (len(core) + 1) * RUN_GROWTH**attempt) if rules.restarts else ENDLESS
        answer, placed = search.run(priorities[(seed + attempt) % len(priorities)], nodes, budget)
        if answer is Answer.YES:
            return answer, _with_peeled(instance, core, peeled, placed)
        if answer is Answer.NO or budget.spent:
            return answer, None
    raise AssertionError("unreachable")


def _with_peeled(instance: Instance, core: Integers, peeled: Integers, placed: Placed) -> Integers:
    """All offsets: the core where the search put it, then the peeled buffers by first fit."""
    offsets = np.full(len(instance), FREE, dtype=np.int64)
    while placed is not None:
        i, offset, placed = placed
        offsets[core[i]] = offset
    all_offsets = place(replace(instance, offset=offsets), peeled, first_fit)
    assert all_offsets is not None  # no limit was set
    return all_offsets


@dataclass(frozen=True, slots=True)
class Tightened:
    """The best layout, and the bytes that the search has proved necessary (0: nothing proved)."""

    layout: Layout
    proved: int


def tighten(
    instance: Instance,
    layout: Layout,
    bound: int,
    budget: Budget,
    options: SolveOptions | None = None,
    goal: int = 0,
) -> Tightened:
    """Narrow the range between bound and incumbent: ask at the bound or the goal first, then bisect.

    Each YES is a new incumbent, each NO a new bound; where the budget ran out without an answer, only larger
    capacities are asked, each with half of what is left. Stops below `goal` bytes.
    """
    options = options or SolveOptions()
    # Offsets of some best layout are sums of sizes, so its peak is a multiple of this.
    step = int(np.gcd(instance.unit, np.gcd.reduce(instance.exact)))
    low, proved, ask, began = bound, 0, max(bound, goal), time.perf_counter()
    while max(low, goal) < layout.peak and not budget.spent and not proved > goal > 0:
        share = Budget((budget.work + 1) // 2, budget.deadline)
        budget.work -= share.work
        answer, offsets = fits(instance, ask, share, options.rules, options.seed)
        budget.work += share.work
        budget.cut = share.cut
        if offsets is not None:
            layout = layout_of(instance, offsets)
        else:
            low = ask // step * step + step
            proved = low if answer is Answer.NO else proved
        if options.progress is not None and answer is not Answer.UNKNOWN:
            news = Progress(layout.peak, max(bound, proved), time.perf_counter() - began, "branch-and-bound")
            options.progress(news)
        ask = low + (layout.peak - low) // 2
    return Tightened(layout, proved)


@dataclass(frozen=True, slots=True)
class BranchAndBound:
    """Proves optimality where the tree is small enough; otherwise keeps the best layout found.

    In Python, one search on one thread: it needs nothing compiled.
    """

    options: SolveOptions = field(default_factory=SolveOptions)
    work: int = WORK
    name: str = "branch-and-bound"

    def configured(self, options: SolveOptions) -> LayoutSolver:
        """Raises OptionsError for a rule that it cannot leave out."""
        if not options.rules.decomposition:
            raise OptionsError(
                "The solver 'branch-and-bound' cannot leave out decomposition.",
                remedy='Use "portfolio", or keep the rule.',
                path=("rules", "decomposition"),
            )
        return replace(self, options=options, work=options.limit(self.work))

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance = max_load(problem), Instance.of(problem)
        if instance.pinned or instance.misaligning:
            return settle(problem, None, bound, self.name, began)
        enough = self.options.enough(bound.bytes, problem.capacity)
        layout = incumbent or greedy_portfolio(instance, enough, deadline).layout
        budget = Budget(self.work, deadline)
        goal = enough if enough > bound.bytes else 0
        result = tighten(instance, layout, bound.bytes, budget, self.options, goal)
        return settle(
            problem,
            result.layout,
            bound,
            self.name,
            began,
            proved=result.proved,
            deterministic=not budget.cut,
        )
