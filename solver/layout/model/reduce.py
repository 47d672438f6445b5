"""Reductions before any search: buffers that always fit last, parts that never meet.

The other reductions stand where they are made: dead time in `model.instance`, common divisors and identical
buffers in `exact.feasibility` and `kernels.skyline_kernel`, waste and spans that may be forced in the latter.
Each says why it changes no answer, and how to get back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from solver.layout.model.instance import Instance, Integers

__all__ = ["peel", "stretches"]

#: Buffers from which counting anew among those that are left takes less than taking each one out.
BATCH: Final = 16


def peel(
    instance: Instance, capacity: int, stop: Callable[[], bool] = lambda: False
) -> tuple[Integers, Integers]:
    """Split into a core and those that fit under `capacity` wherever the core ends up.

    Proof. Count in units of the common divisor of all sizes; i has size z_i and ends at or below the room
    C_i, so it has C_i - z_i + 1 positions. A live neighbour j at p blocks those from p - z_i + 1 to
    p + z_j - 1: at most z_j + z_i - 1 of them, wherever p is. Where the sum over all neighbours stays
    below C_i - z_i + 1, a position is left whatever the neighbours do. So a layout of the others under the
    capacity extends to i, and one with i restricts to the others: the answer is the same without i. The same
    argument then holds among those that remain.

    Inverse: first fit, in the order returned (last set aside, first placed): when i is placed, all its
    neighbours that were there when it was set aside, and no others, are in place. No pins, no `misaligning`.
    Those that are loose at one time are peeled together: O(n log n) for each such batch, or O(n) for each of
    a few. Once `stop` says so, the rest stays in the core, which is as correct.
    """
    unit = instance.unit
    size = instance.size // unit
    room = (capacity + instance.size - instance.exact) // unit
    neighbours, contention = instance.degree(), _neighbour_load(instance, size)
    left = np.ones(len(instance), dtype=bool)
    peeled: list[int] = []
    while True:
        need = contention.astype(np.float64) + neighbours * (size - 1.0) + size
        loose = np.flatnonzero(left & (need < room * (1 - 1e-9)))
        if not len(loose) or stop():
            break
        peeled += loose.tolist()
        left[loose] = False
        if len(loose) < BATCH:
            for i in loose.tolist():
                met = (instance.start < instance.end[i]) & (instance.end > instance.start[i])
                contention[met] -= size[i]
                neighbours[met] -= 1
        else:
            core = np.flatnonzero(left)
            rest = instance.subset(core)
            neighbours[core], contention[core] = rest.degree(), _neighbour_load(rest, size[core])
    return np.flatnonzero(left), np.array(peeled[::-1], dtype=np.int64)


def _neighbour_load(instance: Instance, size: Integers) -> Integers:
    """The total size of the buffers that each one conflicts with."""
    born, dead = np.zeros((2, instance.sections + 1), np.int64)
    np.add.at(born, instance.start + 1, size)
    np.add.at(dead, instance.end, size)
    contention: Integers = born.cumsum()[instance.end] - dead.cumsum()[instance.start] - size
    return contention


def stretches(instance: Instance, members: Integers) -> list[Integers]:
    """The members that are joined through their lifespans, fewest first: a failure there is cheapest.

    Proof that each may be solved alone: buffers of two stretches share no section, so they may share bytes.
    Layouts of all stretches under C are together one of all members under C, and a layout of all restricts to
    each; hence the optimum of all is the largest among the stretches, and one that cannot fit refutes the
    whole. Inverse: the union of the offsets. O(n log n).
    """
    order = members[np.argsort(instance.start[members], kind="stable")]
    # A stretch begins where all before it are dead.
    over = np.maximum.accumulate(instance.end[order])
    begins = np.flatnonzero(instance.start[order][1:] >= over[:-1]) + 1
    return sorted(np.split(order, begins), key=len) if len(order) else []
