"""Going back in an order of time: where a buffer ends too high, what was placed just before is placed anew.

A sweep over an order of time (`greedy.in_time`) leaves nothing behind but what lives, so it can be stopped
anywhere, kept, and taken up again::

    kept      |     |     |     |     |
    time   ---+-----+-----+-----+-----+--x      x: one would end above the target
                                <------          the last part again, in another order
                    <-------------------         or, the more often that has failed, a longer one

In another order: equal births (or deaths) in any order, and now and then the lowest block instead of the
tightest, or the other way round. That decides as much as the choice of an order, and no rule tells what is
best. How far to go back is drawn evenly from all magnitudes (as restarts are: Gomes, Selman and Kautz, 1998).
Where a sweep gets to the end, the target is lowered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import numpy as np

from solver.layout.greedy.in_time import State, Sweep, in_time
from solver.layout.greedy.local_search import Improvement
from solver.layout.kernels.index_kernel import BEST, FIRST
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.problem import Deadline, Layout
from solver.layout.model.sorting import in_order
from solver.native import addressed

__all__ = ["rewind"]

#: A part of an order is one in so many of it, and not less than that: what is placed between two states that
#: are kept.
PARTS: Final = 200
PART: Final = 32

#: Bytes a buffer that states may take; with more, every other one is dropped.
KEPT: Final = 64

#: A target is below the best peak by one part in so many of what that is above the bound; so many failures
#: in a row halve that part.
STEP: Final = 32
FAILURES: Final = 100

#: How many buffers in a hundred get the other fit; one of these is drawn each time.
OTHER_FIT: Final = (0, 2, 10)

#: Passes without success after which it ends, and of all work the share, whichever is more.
IDLE_PASSES: Final = 100
IDLE_SHARE: Final = 0.5

#: Random numbers that break ties.
_TIES: Final = 2**20


def rewind(
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
    """At most about `work` placements and a part more; stops at the bound (bytes), or where it gets nowhere.

    `layout` is the best that is known, and `order` one of time, for best fit or else for first fit. The same
    input gives the same layout, unless the deadline cuts in. Memory: that of a sweep, 100 bytes a buffer.
    """
    search = _Search(instance, module, order, layout.peak, bound, work, seed, best_fit)
    while not (search.over or deadline.expired):
        search.advance()
    found = search.found
    return Improvement(layout if found is None else layout_of(instance, found), cut=deadline.expired)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A state of the sweep: how far into the order it is, and the highest end so far."""

    position: int
    state: State
    top: int


class _Search:
    """A sweep, the states that it can go back to, and the target that it is held to."""

    def __init__(
        self,
        instance: Instance,
        module: ModuleType,
        order: Integers,
        peak: int,
        bound: int,
        work: int,
        seed: int,
        best_fit: bool,
    ) -> None:
        backwards = in_time(instance, order) < 0
        self._sweep = Sweep(instance, module, backwards=backwards)
        self._exact, self._key = instance.exact, -instance.end if backwards else instance.start
        self._order, self._fit = order.copy(), BEST if best_fit else FIRST
        self._fits = np.full(len(order), self._fit)
        self._given = addressed(self._order), addressed(self._fits)
        self._part = max(PART, len(order) // PARTS)
        self._rng = np.random.default_rng([seed, len(order)])
        self._peak, self._bound, self._most = peak, bound, work
        self.found: Integers | None = None
        self._work = self._idle = self._failures = self._near = self._bytes = self._furthest = 0
        self._kept: list[_Kept] = []
        self._keep(0, 0)

    @property
    def over(self) -> bool:
        idle = self._idle > max(IDLE_PASSES * len(self._order), IDLE_SHARE * self._work)
        return self._peak <= self._bound or self._work >= self._most or idle

    @property
    def _target(self) -> int:
        step = (self._peak - self._bound) // STEP >> self._failures // FAILURES
        return max(self._bound, self._peak - max(1, step))

    def advance(self) -> None:
        """A part more, or back."""
        kept = self._kept[-1]
        first, last = kept.position, min(kept.position + self._part, len(self._order))
        end = self._sweep.go(*self._given, first, last, self._target)
        self._work += end - first + 1
        self._idle += end - first + 1
        if end < last:
            self._failures += 1
            self._near += 1
            self._back(min(self._near, 4 * PARTS))
            return
        some = self._order[first:last]
        top = max(kept.top, int((self._sweep.offsets[some] + self._exact[some]).max()))
        if end == len(self._order):
            self._peak, self.found = top, self._sweep.offsets.copy()
            self._idle = self._failures = self._near = 0
            target = self._target
            while self._kept[-1].top > target:
                self._drop()
            self._furthest = self._kept[-1].position + self._part
            self._back(1)
            return
        self._keep(end, top)
        if end > self._furthest:
            self._furthest, self._near = end, 0

    def _back(self, most: int) -> None:
        """Drop up to so many states, and draw anew what comes next, to a little beyond where it failed."""
        for _ in range(min(len(self._kept) - 1, int(math.exp(self._rng.random() * math.log(most + 1))))):
            self._drop()
        kept = self._kept[-1]
        self._sweep.restore(kept.state)
        again = slice(kept.position, self._furthest + 2 * self._part)
        some = self._order[again]
        self._order[again] = some[in_order(self._key[some], self._rng.integers(0, _TIES, len(some)))]
        percent = OTHER_FIT[int(self._rng.integers(len(OTHER_FIT)))]
        other = self._rng.integers(0, 100, len(some)) < percent
        self._fits[again] = np.where(other, FIRST + BEST - self._fit, self._fit)

    def _keep(self, position: int, top: int) -> None:
        kept = _Kept(position, self._sweep.state(), top)
        self._kept.append(kept)
        self._bytes += kept.state.nbytes
        if self._bytes > KEPT * len(self._order):
            self._kept = [*self._kept[:-1:2], kept]
            self._bytes = sum(one.state.nbytes for one in self._kept)

    def _drop(self) -> None:
        self._bytes -= self._kept.pop().state.nbytes
