"""Windows of time placed anew by first fit: a first layout's highest places, brought down in milliseconds.

Of a long problem of little depth a sweep in the order of time (`greedy.in_time`) is too high in a few places,
each of which a few dozen buffers make. `compiled.window_kernel` takes these out and puts them back, in orders
that learn from what did not fit: a window takes some microseconds, where the exact search (`exact.windows`)
takes a fraction of a millisecond. That one follows for what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Final

import numpy as np

from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout
from solver.layout.model.sorting import in_order
from solver.native import addressed, runs_compiled

__all__ = [
    "MORE_PASSES",
    "PASSES",
    "FirstFitWindows",
    "first_fit_windows",
    "lowered_in_windows",
    "window_kernel",
]

#: Births before a buffer, and behind it, that its windows reach to, one after the other.
HALVES: Final = (8, 24, 48, 96)

#: Boxes looked at between looks at the clock: a millisecond or so.
LOOK: Final = 500_000

#: Passes through a window at first; and once all capacities have been tried so, and that was of use.
PASSES: Final = 20
MORE_PASSES: Final = (PASSES, 200)

#: Windows that may fail before a capacity counts as out of reach, and one in so many where more are too high:
#: others may still be lowered, and help at the next capacity.
FAILURES: Final = 4
FAILING: Final = 8

#: A peak is close enough to a capacity that was not reached by one part in so many of the bound.
CLOSE: Final = 5000


@cache
def window_kernel() -> ModuleType | None:
    """The compiled module, tried once; None where nothing compiles."""
    from solver.layout.kernels import window_kernel as module

    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    instance = Instance(zero, one, one, one, one, zero + FREE, 1)
    FirstFitWindows(instance, zero + 1, module).lower(1, 1, lambda: False)
    return module if runs_compiled(module.lower_in_windows) else None


def lowered_in_windows(
    instance: Instance,
    layout: Layout,
    bound: int,
    deadline: Deadline,
    levels: Sequence[int] = MORE_PASSES,
) -> Layout:
    """A layout whose peak is at most that of `layout`; the same one where nothing compiles.

    The capacity aimed at is the bound (bytes) first, then halfway between the peak and the highest capacity
    that was not reached, until the two are close. `levels`: the most passes through a window; where that was
    of use, all again with the next number. Pins stay, alignments are kept. O(n log n) once, then by what is
    too high; 60 bytes a buffer.
    """
    offsets = np.array(layout.offsets, dtype=np.int64)
    windows = first_fit_windows(instance, offsets) if layout.peak > bound else None
    if windows is None:
        return layout
    peak, before = layout.peak, MAX_BYTES
    for passes in levels:
        if not bound < peak < before:
            break
        low, aim, before = bound - 1, bound, peak
        while peak > bound and peak - low > max(1, bound // CLOSE) and not deadline.expired:
            windows.lower(aim, passes, lambda: deadline.expired)
            peak = int((offsets + instance.exact).max())
            low = aim if peak > aim else low
            aim = max(bound, low + (peak - low) // 2)
    return layout if peak >= layout.peak else layout_of(instance, offsets)


def first_fit_windows(instance: Instance, offsets: Integers) -> FirstFitWindows | None:
    """Windows over these offsets, which they lower in place; None where nothing compiles."""
    module = window_kernel()
    return None if module is None else FirstFitWindows(instance, offsets, module)


class FirstFitWindows:
    """See `first_fit_windows`."""

    def __init__(self, instance: Instance, offsets: Integers, module: ModuleType) -> None:
        self._instance, self._offsets, self._module = instance, offsets, module
        by_birth = in_order(instance.start)
        buffers = module.Buffers(
            instance.start,
            instance.end,
            instance.size,
            instance.exact,
            np.ascontiguousarray(instance.alignment),
            instance.offset != FREE,
            by_birth,
            instance.start[by_birth],
            np.maximum.accumulate(instance.end[by_birth]),
        )
        self._counts = np.zeros(2, np.int64)
        columns = np.empty((len(module.Scratch._fields) - 1, module.MOST), np.int64)
        self._arrays = tuple(map(addressed, (buffers, module.Scratch(*columns, self._counts), offsets)))
        self._halves = addressed(np.array(HALVES))

    def lower(self, capacity: int, passes: int, late: Callable[[], bool]) -> None:
        """Tries to bring all under this capacity (bytes), until too many have failed."""
        high = np.flatnonzero(self._offsets + self._instance.exact > capacity)
        given, failed = addressed(high[in_order(self._instance.start[high])]), self._module.FAILED
        most, done = max(FAILURES, len(high) // FAILING), 0
        self._counts[:] = 0
        while done < len(high) and self._counts[failed] < most and not late():
            done = self._module.lower_in_windows(
                *self._arrays, given, self._halves, capacity, passes, done, LOOK
            )
