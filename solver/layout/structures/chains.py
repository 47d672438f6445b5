"""At most two buffers are live at a time: one stands on the floor, the other hangs above it.

::

    bytes  |   ____b____   _d_                two colours are enough where at most two meet; the buffers of
           |  |         | |   |               one colour stand on the floor, each of the other just above all
           |  |_________|_|___|  __c__        that it meets
           | |__a__| |__c__|
           +---------------------------- sections

A buffer of the other colour meets only buffers that stand on the floor, one at a time. So it ends at the
larger load of a step that it lives through: no layout is lower. Each stretch that no lifespan crosses may be
turned over by itself, which matters where padding counts at the top alone.
"""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import Instance, Integers
from solver.layout.model.sorting import in_order
from solver.layout.structures.colouring import coloured, depth

__all__ = ["chain"]


def chain(instance: Instance) -> Integers | None:
    """Offsets where at most two are live at a time, without pins; None for any other problem.

    Meets the bound where sizes keep alignment; elsewhere padding comes on top. O(n log n).
    """
    if not len(instance) or instance.pinned or depth(instance) > 2:
        return None
    upper = coloured(instance, 2) == 1
    plain, turned = _hanging(instance, upper), _hanging(instance, ~upper)
    stretch = _stretches(instance)
    tops = [_tops(stretch, offsets + instance.exact) for offsets in (plain, turned)]
    return np.where((tops[0] <= tops[1])[stretch], plain, turned)


def _hanging(instance: Instance, upper: np.ndarray) -> Integers:
    """Offsets with these buffers above the others, each above the largest that it meets."""
    offsets = np.zeros(len(instance), dtype=np.int64)
    floor, above = np.flatnonzero(~upper), np.flatnonzero(upper)
    if not len(floor) or not len(above):
        return offsets
    floor = floor[in_order(instance.start[floor])]
    # Those of the floor are apart, so each of the others meets a range of them.
    first = instance.end[floor].searchsorted(instance.start[above], side="right")
    last = instance.start[floor].searchsorted(instance.end[above], side="left")
    meets = first < last
    ranges = np.stack((first[meets], last[meets]), axis=1).ravel()
    size = np.append(instance.size[floor], 0)
    raised = above[meets]
    below = np.maximum.reduceat(size, ranges)[::2] if len(ranges) else 0
    alignment = instance.alignment[raised]
    offsets[raised] = (below + alignment - 1) & -alignment
    return offsets


def _stretches(instance: Instance) -> Integers:
    """Which stretch of sections that no lifespan crosses each buffer lies in, from 0."""
    order = in_order(instance.start)
    reach = np.maximum.accumulate(instance.end[order])
    begins = np.append(False, instance.start[order][1:] >= reach[:-1])
    stretch = np.empty(len(instance), dtype=np.int64)
    stretch[order] = np.cumsum(begins)
    return stretch


def _tops(stretch: Integers, top: Integers) -> Integers:
    """The highest end in each stretch."""
    highest = np.zeros(int(stretch.max()) + 1, dtype=np.int64)
    np.maximum.at(highest, stretch, top)
    return highest
