"""What can be decided before any search: buffers that always fit last, parts that never meet."""

from __future__ import annotations

import numpy as np

from solver.layout.instance import Instance, Integers

__all__ = ["components", "peel"]


def peel(instance: Instance, capacity: int) -> tuple[Integers, Integers]:
    """Split into a core and those that fit under `capacity` wherever the core ends up.

    A buffer i placed last among live neighbours j, in units of the common divisor of all sizes,
    finds at most ``size_j + size_i - 1`` of its positions blocked by each j. If these and its own
    size together stay within the capacity, a position is left, whatever the neighbours do. So it
    can be set aside, and the same asked of the others without it. First fit in the order returned
    (last set aside, first placed) never fails. No pins, no `misaligning`. O(n) per buffer peeled.
    """
    unit = instance.unit
    size = instance.size // unit
    room = (capacity + instance.size - instance.exact) // unit
    neighbours, crowd = instance.degree(), _neighbour_load(instance, size)
    left = np.ones(len(instance), dtype=bool)
    peeled: list[int] = []
    while True:
        need = crowd.astype(np.float64) + neighbours * (size - 1.0) + size
        loose = np.flatnonzero(left & (need < room * (1 - 1e-9)))
        if not len(loose):
            break
        for i in loose.tolist():
            met = (instance.start < instance.end[i]) & (instance.end > instance.start[i])
            left[i] = False
            crowd[met] -= size[i]
            neighbours[met] -= 1
            peeled.append(i)
    return np.flatnonzero(left), np.array(peeled[::-1], dtype=np.int64)


def _neighbour_load(instance: Instance, size: Integers) -> Integers:
    """The total size of the buffers that each one conflicts with."""
    by_start, by_end = np.argsort(instance.start), np.argsort(instance.end)
    born = np.concatenate(([0], np.cumsum(size[by_start])))
    dead = np.concatenate(([0], np.cumsum(size[by_end])))
    before = instance.start[by_start].searchsorted(instance.end, side="left")
    gone = instance.end[by_end].searchsorted(instance.start, side="right")
    crowd: Integers = born[before] - dead[gone] - size
    return crowd


def components(start: list[int], end: list[int], items: list[int]) -> list[tuple[int, int, list[int]]]:
    """Maximal stretches of sections that items, sorted by start, cover without a break.

    Each as (first section, past the last, its items in the given order). O(items).
    """
    parts: list[tuple[int, int, list[int]]] = []
    members: list[int] = []
    first = last = -1
    for i in items:
        if start[i] >= last:
            if members:
                parts.append((first, last, members))
            members, first, last = [], start[i], end[i]
        members.append(i)
        last = max(last, end[i])
    return [*parts, (first, last, members)] if members else parts
