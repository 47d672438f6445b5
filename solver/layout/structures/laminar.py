"""Lifespans that are nested or apart: a stack, as of the calls of a program.

::

    bytes  |      |_c_|  |d|              in the order of start, of equal ones the longest first, each buffer
           |   |____b____|  |__e__|       is put on top of the one that it lies in: all that live at its birth
           | |________a______________|    lie below it, and nothing else does
           +------------------------------ sections

So each ends at the load of its birth, and the highest at the largest load: the bound.
"""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import Instance, Integers
from solver.layout.model.sorting import in_order

__all__ = ["laminar"]


def laminar(instance: Instance) -> Integers | None:
    """Offsets where any two lifespans are nested or apart, without pins; None for any other problem.

    Meets the bound where sizes keep alignment. O(n log n), and mostly O(n) to see that two lifespans cross.
    """
    if not len(instance) or instance.pinned:
        return None
    order = in_order(instance.start, -instance.end)
    start, end = instance.start[order], instance.end[order]
    # Two in a row cross in nearly all other problems.
    if bool(((start[1:] < end[:-1]) & (end[:-1] < end[1:])).any()):
        return None
    offsets = np.empty(len(order), dtype=np.int64)
    open_: list[tuple[int, int]] = []
    rows = zip(start.tolist(), end.tolist(), instance.size[order].tolist(), strict=True)
    placed = []
    for (begin, stop, size), alignment in zip(rows, instance.alignment[order].tolist(), strict=True):
        while open_ and open_[-1][0] <= begin:
            open_.pop()
        if open_ and open_[-1][0] < stop:
            return None
        bottom = (open_[-1][1] if open_ else 0) + alignment - 1 & -alignment
        open_.append((stop, bottom + size))
        placed.append(bottom)
    offsets[order] = placed
    return offsets
