"""The default solver: the cheapest argument first, and a valid layout whatever happens."""

from __future__ import annotations

import time

from solver.layout.greedy import greedy_portfolio
from solver.layout.instance import Instance
from solver.layout.load import max_load
from solver.layout.outcome import settle
from solver.layout.problem import Deadline, Layout, Outcome, Problem

__all__ = ["Portfolio"]


class Portfolio:
    """Lower bound, greedy portfolio, then search until the bound is met or the work is spent."""

    name = "portfolio"

    def solve(self, problem: Problem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound = max_load(problem)
        result = greedy_portfolio(Instance.of(problem), bound.bytes, deadline)
        layout = min((x for x in (incumbent, result.layout) if x is not None), key=lambda x: x.peak)
        return settle(problem, layout, bound, self.name, began, deterministic=not result.cut)
