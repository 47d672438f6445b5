"""Local search over one order of many buffers: what ends too high is placed earlier.

Two moves take turns, each from the best order so far::

    one     Place within a target just below the best peak. The first buffer that does not fit goes to a
            random earlier place. A pass ends where that is, so it costs a part of the whole.
    many    Place all. Every buffer that ends above a target goes some way to the front.

The first move makes what fits badly come first, and gets far where a pass fails early; the second one changes
much at a time, which helps where a few dozen passes are all there is time for. Squeaky wheel optimisation
(Joslin and Clements, 1999), from the order that a greedy pass did best with: from the order of offsets, as in
`local_search`, it has half the success where there are thousands of buffers.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

import numpy as np

from solver.layout.greedy.index import Walk
from solver.layout.greedy.local_search import Improvement
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout

__all__ = ["reorder"]

#: Passes in a row that may fail before the other move has its turn.
PATIENCE_ONE: Final = 24
PATIENCE_MANY: Final = 6

#: Targets are below the best peak by one part in so many of the bound.
STEP_ONE: Final = 500
STEP_MANY: Final = 200

#: Passes without success after which it ends, and of all work the share, whichever is more.
IDLE_PASSES: Final = 40
IDLE_SHARE: Final = 0.5


def reorder(
    instance: Instance,
    module: ModuleType,
    order: Integers,
    layout: Layout,
    bound: int,
    work: int,
    deadline: Deadline,
    seed: int,
    *,
    best_fit: bool,
) -> Improvement:
    """At most about `work` placements and a pass more; stops at the bound (bytes), or where it gets nowhere.

    `layout` is what placing in this `order` gives, by best fit or else by first fit. A pass takes the
    time and memory of a greedy pass. The same input gives the same layout, unless the deadline cuts in.
    """
    search = _Search(instance, module, order, layout, bound, work, deadline, best_fit)
    rng = np.random.default_rng([seed, len(instance)])
    while not search.over:
        search.move_one(rng)
        search.move_many(rng)
    improved = search.peak < layout.peak
    return Improvement(layout_of(instance, search.offsets) if improved else layout, cut=deadline.expired)


class _Search:
    """The best order, its offsets and peak, and the work so far, in placements."""

    def __init__(
        self,
        instance: Instance,
        module: ModuleType,
        order: Integers,
        layout: Layout,
        bound: int,
        work: int,
        deadline: Deadline,
        best_fit: bool,
    ) -> None:
        self._instance, self._module, self._best_fit = instance, module, best_fit
        self._bound, self._most, self._deadline = bound, work, deadline
        self._order, self.offsets, self.peak = order, np.array(layout.offsets, np.int64), layout.peak
        self._work = self._idle = 0

    @property
    def over(self) -> bool:
        idle = self._idle > max(IDLE_PASSES * len(self._instance), IDLE_SHARE * self._work)
        return self.peak <= self._bound or self._work >= self._most or idle or self._deadline.expired

    def move_one(self, rng: np.random.Generator) -> None:
        order, failures = self._order.copy(), 0
        while failures < PATIENCE_ONE and not self.over:
            offsets, placed = self._place(order, self._target(STEP_ONE))
            if placed == len(order):
                self._keep(order.copy(), offsets)
                failures = 0
            else:
                nearest = 0 if rng.random() < 0.5 else placed // 2
                to = int(rng.integers(nearest, max(nearest + 1, placed)))
                order[to : placed + 1] = np.roll(order[to : placed + 1], 1)
                failures += 1

    def move_many(self, rng: np.random.Generator) -> None:
        order, offsets, failures = self._order, self.offsets, 0
        while failures < PATIENCE_MANY and not self.over:
            rank = np.empty(len(order))
            rank[order] = np.arange(len(order))
            high = np.flatnonzero(offsets + self._instance.exact > self._target(STEP_MANY))
            rank[high] *= np.sqrt(rng.random(len(high)))
            order = np.argsort(rank, kind="stable")
            offsets, placed = self._place(order, MAX_BYTES)
            if placed < len(order):
                return  # time is up
            if int((offsets + self._instance.exact).max()) < self.peak:
                self._keep(order, offsets)
                failures = 0
            else:
                failures += 1

    def _target(self, step: int) -> int:
        return max(self._bound, self.peak - max(1, self._bound // step))

    def _place(self, order: Integers, limit: int) -> tuple[Integers, int]:
        """Offsets, and how many were placed before one did not fit, or time was up."""
        walk = Walk(self._instance, self._module)
        placed = walk.place(order, limit, best_fit=self._best_fit, late=lambda: self._deadline.expired)
        self._work += placed + 1
        self._idle += placed + 1
        return walk.offsets, placed

    def _keep(self, order: Integers, offsets: Integers) -> None:
        self._order, self.offsets, self._idle = order, offsets, 0
        self.peak = int((offsets + self._instance.exact).max())
