"""Placing in the order of time: first fit and best fit by birth, or by death backwards.

Whatever breaks ties, such an order asks only what is free now: a pass takes a twentieth to a half of what the
index of free space (`greedy.index`) takes, and less memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Final

import numpy as np

from solver.layout.kernels.index_kernel import BEST, FIRST
from solver.layout.kernels.index_strips import INFINITY
from solver.layout.model.instance import FREE, Instance, Integers
from solver.layout.model.problem import MAX_BYTES, Deadline
from solver.layout.model.sorting import in_order
from solver.layout.structures.colouring import depth
from solver.native import addressed, runs_compiled

__all__ = ["State", "Sweep", "in_order_of_time", "in_time", "sweepable", "time_kernel"]

#: Placements between looks at the clock.
LOOK: Final = 250

#: Pins looked at for a placement, and of what lives at once the part, up to which a sweep takes less than the
#: index.
PINS_SEEN: Final = 2000
PINS_OF_LIVE: Final = 2

#: The horizon of a sweep is so many times the longest life but for one buffer in so many. What lives beyond
#: it is set beside all pins.
HORIZON: Final = 2
BEYOND: Final = 64


@cache
def time_kernel() -> ModuleType | None:
    """The compiled module, tried once; None where nothing compiles."""
    from solver.layout.kernels import time_kernel as module

    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    Sweep(Instance(zero, one, one, one, one, zero + FREE, 1), module, backwards=False).place(zero, 1)
    return module if runs_compiled(module.place_in_time) else None


def in_time(instance: Instance, order: Integers) -> int:
    """1 where an order is by birth, -1 where it is by death, the last one first; else 0. O(n).

    0 as well where too many pins would be in reach, which is found in O(n log pins).
    """
    start, end = instance.start[order], instance.end[order]
    if bool((start[:-1] <= start[1:]).all()):
        return 1 if _few_in_reach(instance, order, backwards=False) else 0
    if bool((end[:-1] >= end[1:]).all()):
        return -1 if _few_in_reach(instance, order, backwards=True) else 0
    return 0


def sweepable(instance: Instance) -> bool:
    """Whether orders of time are swept: it compiles, and few pins are in reach. O(n log n) with pins."""
    if time_kernel() is None or not instance.pinned:
        return time_kernel() is not None
    births, deaths = in_order(instance.start), in_order(-instance.end)
    return in_time(instance, births) == 1 and in_time(instance, deaths) == -1


def _horizon(instance: Instance) -> int:
    """The longest life that brings pins into reach."""
    lives = (instance.end - instance.start)[instance.offset == FREE]
    at = len(lives) - len(lives) // BEYOND - 1
    return HORIZON * int(np.partition(lives, at)[at]) if len(lives) else 0


def _few_in_reach(instance: Instance, order: Integers, *, backwards: bool) -> bool:
    """Whether a sweep through this order looks at so few pins that it takes less than the index."""
    if not instance.pinned:
        return True
    start, end = (-instance.end, -instance.start) if backwards else (instance.start, instance.end)
    pinned, horizon = instance.offset != FREE, _horizon(instance)
    order = order[~pinned[order]]
    near = order[end[order] - start[order] <= horizon]
    come = np.searchsorted(np.sort(start[pinned]), np.maximum.accumulate(end[near]))
    gone = np.searchsorted(np.sort(end[pinned]), start[near], side="right")
    seen = int((come - gone).sum()) + (len(order) - len(near)) * int(pinned.sum())
    return seen <= len(order) * max(PINS_SEEN, PINS_OF_LIVE * depth(instance))


@dataclass(frozen=True, slots=True)
class State:
    """What a sweep has come to: free blocks, pins in reach, and their counts."""

    bottoms: Integers
    tops: Integers
    counts: Integers
    reached: Integers
    pins: Integers

    @property
    def nbytes(self) -> int:
        return self.bottoms.nbytes + self.tops.nbytes + self.reached.nbytes


class Sweep:
    """One pass through an order by birth; `backwards`, one by death, the last one first.

    Pins are where they are, before their births too. Memory: 17 bytes a buffer, 16 more backwards, 16 for
    each that lives at once, and 40 a pin.
    """

    def __init__(self, instance: Instance, module: ModuleType, *, backwards: bool) -> None:
        self._module = module
        start, end = (-instance.end, -instance.start) if backwards else (instance.start, instance.end)
        alignment, pinned = np.ascontiguousarray(instance.alignment), instance.offset != FREE
        deaths = in_order(end)
        deaths = deaths[~pinned[deaths]] if instance.pinned else deaths
        lives = module.Lives(start, end, instance.size, instance.exact, alignment, pinned, deaths)
        # Between two free blocks there is one that lives.
        blocks = np.empty((2, depth(instance) + 2), np.int64)
        blocks[:, 0] = 0, INFINITY
        self._blocks = module.Blocks(*blocks, np.array([1, 0]))
        pins = np.flatnonzero(pinned)
        pins = pins[in_order(start[pins])]
        bottom, reached = instance.offset[pins], np.empty(len(pins), np.int64)
        counts = np.array([0, 0, _horizon(instance) if instance.pinned else 0])
        top, lowest = bottom + instance.size[pins], in_order(bottom)
        self._pins = module.Pins(start[pins], end[pins], bottom, top, lowest, reached, counts)
        self.offsets = instance.offset.copy()
        free = addressed(self._blocks), addressed(self._pins)
        self._arrays = addressed(lives), *free, addressed(self.offsets)

    def place(
        self,
        order: Integers,
        limit: int,
        *,
        best_fit: bool = False,
        late: Callable[[], bool] = lambda: False,
    ) -> int:
        """As `Walk.place`. More of the order may follow later, and nothing that was born before."""
        fits, done = np.array([BEST if best_fit else FIRST]), 0
        given = addressed(np.ascontiguousarray(order)), addressed(fits)
        while done < len(order) and not late():
            upto = min(done + LOOK, len(order))
            done = self.go(*given, done, upto, limit)
            if done < upto:
                break
        return done

    def go(self, order: Integers, fits: Integers, first: int, last: int, limit: int) -> int:
        """Place these positions of the order, by the fits of `compiled.time_kernel`; how far it got."""
        lives, blocks, pins, offsets = self._arrays
        return int(self._module.place_in_time(lives, blocks, pins, order, fits, offsets, first, last, limit))

    def state(self) -> State:
        """Free blocks and pins in reach as they are now, to `restore` them."""
        blocks, pins, module = self._blocks, self._pins, self._module
        count = int(blocks.counts[module.BLOCKS])
        return State(
            blocks.bottoms[:count].copy(),
            blocks.tops[:count].copy(),
            blocks.counts.copy(),
            pins.reached[: int(pins.counts[module.REACHED])].copy(),
            pins.counts.copy(),
        )

    def restore(self, state: State) -> None:
        """Go back to a `state`. Offsets of what was placed since stay until they are written again."""
        blocks, pins = self._blocks, self._pins
        blocks.bottoms[: len(state.bottoms)] = state.bottoms
        blocks.tops[: len(state.tops)] = state.tops
        blocks.counts[:] = state.counts
        pins.reached[: len(state.reached)] = state.reached
        pins.counts[:] = state.pins


def in_order_of_time(instance: Instance, deadline: Deadline) -> Integers | None:
    """Offsets of first fit by birth; of equal births the largest goes first.

    None where nothing compiles, too many pins are in reach or the deadline has passed. O(n (log n + live
    ones)), 32 bytes a buffer.
    """
    module, order = time_kernel(), in_order(instance.start, -instance.size)
    if module is None or in_time(instance, order) != 1:
        return None
    sweep = Sweep(instance, module, backwards=False)
    placed = sweep.place(order, MAX_BYTES, late=lambda: deadline.expired)
    return sweep.offsets if placed == len(order) else None
