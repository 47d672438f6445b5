"""First fit in the order of birth, compiled: a sweep that keeps what lives, the lowest first."""

from __future__ import annotations

from solver.layout.compiled.jit import compiled
from solver.layout.model.instance import Integers

__all__ = ["place_in_time"]


@compiled
def place_in_time(
    order: Integers,
    start: Integers,
    end: Integers,
    size: Integers,
    alignment: Integers,
    offset: Integers,
    live: Integers,
    count: int,
) -> int:
    """Places the buffers of `order`, which is by start; how many of `live` are in use then.

    The first `count` of `live` are what has been placed and may live still, by offset. O(live) a buffer.
    """
    for position in range(len(order)):
        i = order[position]
        # What has ended is dropped on the way; the new one goes before the first that leaves room below it.
        kept, reach, before = 0, 0, -1
        for k in range(count):
            j = live[k]
            if end[j] <= start[i]:
                continue
            if before < 0:
                bottom = (reach + (alignment[i] - 1)) & -alignment[i]
                if offset[j] - bottom >= size[i]:
                    before = kept
                else:
                    reach = offset[j] + size[j]
            live[kept] = j
            kept += 1
        if before < 0:
            before = kept
        for k in range(kept, before, -1):
            live[k] = live[k - 1]
        live[before] = i
        offset[i] = (reach + (alignment[i] - 1)) & -alignment[i]
        count = kept + 1
    return count
