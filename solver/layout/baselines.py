"""What shipping runtimes do, as solvers to compare with.

Bump, FirstFit and WIC are the three planners of the onert training runtime (Samsung ONE).
"""

from __future__ import annotations

import time

import numpy as np

from solver.layout.greedy import first_fit, place
from solver.layout.instance import Instance, layout_of, round_up
from solver.layout.load import max_load, pinned_top
from solver.layout.outcome import settle
from solver.layout.problem import Deadline, Layout, Outcome, Problem

__all__ = ["WIC", "Bump", "FirstFit"]


class Bump:
    """Never reuses a byte: one buffer after the other, above whatever is pinned."""

    name = "bump"

    def solve(self, problem: Problem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        offsets, peak = [], pinned_top(problem)
        for buffer in problem.buffers:
            offset = round_up(peak, buffer.alignment) if buffer.offset is None else buffer.offset
            offsets.append(offset)
            peak = max(peak, offset + buffer.size)
        return settle(problem, Layout(tuple(offsets), peak), max_load(problem), self.name, began)


class FirstFit:
    """The first gap that is large enough, in the order of `Problem.buffers` (the order of requests)."""

    name = "first-fit"

    def solve(self, problem: Problem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        layout = _in_order(Instance.of(problem), np.arange(len(problem.buffers)))
        return settle(problem, layout, max_load(problem), self.name, began)


class WIC:
    """Weighted interval colouring: first fit by descending size, ties in the order of requests."""

    name = "wic"

    def solve(self, problem: Problem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        instance = Instance.of(problem)
        layout = _in_order(instance, np.argsort(-instance.size, kind="stable"))
        return settle(problem, layout, max_load(problem), self.name, began)


def _in_order(instance: Instance, order: np.ndarray) -> Layout:
    offsets = place(instance, order, first_fit)
    assert offsets is not None  # no limit was set
    return layout_of(instance, offsets)
