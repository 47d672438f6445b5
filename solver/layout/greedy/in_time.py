"""First fit in the order of birth: for very many buffers of which few live at once, a fraction of a second.

The index of free space (`greedy.index`) takes any order, and ten times as long and fifty times the memory for
this one.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Final

import numpy as np

from solver.layout.compiled.fallback import UNCOMPILED, warn_uncompiled
from solver.layout.model.instance import FREE, Instance, Integers
from solver.layout.model.problem import Deadline
from solver.layout.model.sorting import in_order

__all__ = ["in_order_of_time", "time_kernel"]

#: Placements between looks at the deadline.
LOOK: Final = 1000


@cache
def time_kernel() -> ModuleType | None:
    """The compiled module, tried once; None where nothing compiles."""
    try:
        from solver.layout.compiled import time_kernel as module

        zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
        module.place_in_time(zero, zero, one, one, one, zero.copy(), zero.copy(), 0)
    except UNCOMPILED as error:
        warn_uncompiled(error)
        return None
    return module


def in_order_of_time(instance: Instance, depth: int, deadline: Deadline) -> Integers | None:
    """Offsets; of equal births the largest goes first. At most `depth` live at once.

    None where something is pinned, nothing compiles or the deadline has passed. O(n (log n + depth)), 32
    bytes a buffer.
    """
    module = None if instance.pinned else time_kernel()
    if module is None:
        return None
    order, alignment = in_order(instance.start, -instance.size), np.ascontiguousarray(instance.alignment)
    offset, live, count = np.full(len(order), FREE, np.int64), np.empty(depth + 1, np.int64), 0
    for first in range(0, len(order), LOOK):
        if deadline.expired:
            return None
        count = module.place_in_time(
            order[first : first + LOOK], instance.start, instance.end, instance.size, alignment,
            offset, live, count,
        )  # fmt: skip
    return offset
