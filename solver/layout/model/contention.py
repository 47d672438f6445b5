"""How contended memory is during a life."""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import Instance, Integers

__all__ = ["peak_load_seen"]


def peak_load_seen(instance: Instance) -> Integers:
    """The largest load that each buffer lives through: running maxima over 1, 2, 4 ... sections.

    O(S log S), of which one row is kept at a time.
    """
    contention, width = np.zeros(len(instance), dtype=np.int64), instance.end - instance.start
    maxima, level = instance.load(), np.frexp(width.astype(np.float64))[1] - 1
    for k in range(int(level.max(initial=-1)) + 1):
        if k:
            half = 2 ** (k - 1)
            maxima = np.maximum(maxima[:-half], maxima[half:])
        chosen = np.flatnonzero(level == k)
        left, right = instance.start[chosen], instance.end[chosen] - 2**k
        contention[chosen] = np.maximum(maxima[left], maxima[right])
    return contention
