"""Local search over placement orders: a buffer that did not fit moves forward and is placed earlier.

Place in order, first fit, under a target. The first buffer that would end beyond the target was
placed too late: move it to a random earlier position and try again (after squeaky wheel
optimisation, Joslin & Clements, 1999). Every success lowers the target. Works with pins and any
alignment, and with problems too large for the exact search.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from solver.layout.bounds import max_load, settle
from solver.layout.greedy.placement import greedy_portfolio, place
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.options import SolveOptions
from solver.layout.model.problem import Deadline, Layout, LayoutProblem, LayoutSolver, Outcome
from solver.layout.model.reduce import peel

__all__ = ["PATIENCE", "Improvement", "LocalSearch", "improve"]

SEED: Final = 1

#: Attempts in a row that may fail before the search starts over from the incumbent, aiming at the
#: other target: the bound itself, or just below the incumbent.
PATIENCE: Final = 60


@dataclass(frozen=True, slots=True)
class Improvement:
    """The best layout, and whether wall time rather than work ended the search."""

    layout: Layout
    cut: bool


class _Walk:
    """The order walked from, the best layout so far and what it aims at."""

    def __init__(self, instance: Instance, layout: Layout, bound: int, seed: int, deadline: Deadline) -> None:
        self.layout, self._deadline = layout, deadline
        self._instance, self._bound = instance, bound
        self._random = random.Random(SEED + seed)
        self._tail = _peeled(instance, bound, deadline)
        self._low = True
        self.restart()

    def restart(self) -> None:
        """From the incumbent, whose order of offsets reproduces it; aim at the other target."""
        self._low = not self._low
        self._target = self.layout.peak - 1 if self._low else self._bound
        by_offset = np.argsort(np.array(self.layout.offsets, dtype=np.int64), kind="stable")
        last = set(self._tail)
        self._order = [i for i in by_offset.tolist() if i not in last]

    def attempt(self) -> int:
        """One pass through the order; the number of placements made."""
        order = np.array(self._order + self._tail, dtype=np.int64)
        offsets, placed = place(self._instance, order, self._target, late=lambda: self._deadline.expired)
        if placed == len(order):
            self.layout = layout_of(self._instance, offsets)
            self._target = max(self._bound, self.layout.peak - 1)
            return placed
        if self._deadline.expired:
            return placed
        failed = self._order.pop(placed)
        nearest = 0 if self._random.random() < 0.5 else placed // 2
        self._order.insert(self._random.randrange(nearest, max(nearest + 1, placed)), failed)
        return placed + 1


def _peeled(instance: Instance, bound: int, deadline: Deadline) -> list[int]:
    """Buffers that fit under the bound wherever all others are, in the order to place them."""
    if instance.pieces is not None or instance.pinned or instance.misaligning:
        return []
    return [int(i) for i in peel(instance, bound, lambda: deadline.expired)[1]]


def improve(
    instance: Instance,
    layout: Layout,
    bound: int,
    work: int,
    deadline: Deadline,
    seed: int = 0,
) -> Improvement:
    """At most about `work` placements more; stops at the bound. The same input gives the same layout.

    Does nothing where the layout meets the bound, which may be larger than any offset, or where the work is
    less than one pass.
    """
    if layout.peak <= bound or len(instance) > work:
        return Improvement(layout, cut=layout.peak > bound and deadline.expired)
    walk, failures = _Walk(instance, layout, bound, seed, deadline), 0
    while work > 0 and walk.layout.peak > bound:
        if deadline.expired:
            return Improvement(walk.layout, cut=True)
        before = walk.layout.peak
        work -= walk.attempt()
        failures = failures + 1 if walk.layout.peak == before else 0
        if failures >= PATIENCE:
            walk.restart()
            failures = 0
    return Improvement(walk.layout, cut=False)


#: Placements; each takes about 20 microseconds among a few hundred buffers.
WORK: Final = 200_000

#: Placements for each buffer: problems of fewer than 100 buffers have no use for more passes.
WORK_PER_BUFFER: Final = 2_000


@dataclass(frozen=True, slots=True)
class LocalSearch:
    """The portfolio of orders, then local search among orders."""

    options: SolveOptions = field(default_factory=SolveOptions)
    work: int = WORK
    name: str = "search"

    def configured(self, options: SolveOptions) -> LayoutSolver:
        return replace(self, options=options)

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance = max_load(problem), Instance.of(problem)
        enough = self.options.enough(bound.bytes, problem.capacity)
        layout = incumbent or greedy_portfolio(instance, enough, deadline).layout
        work = min(self.work, WORK_PER_BUFFER * len(instance))
        result = improve(instance, layout, enough, work, deadline, self.options.seed)
        return settle(problem, result.layout, bound, self.name, began, deterministic=not result.cut)
