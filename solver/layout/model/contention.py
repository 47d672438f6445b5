"""How contended memory is during a life."""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import Instance, Integers

__all__ = ["peak_load_seen"]


def peak_load_seen(instance: Instance) -> Integers:
    """The largest load that each buffer lives through: sparse table of running maxima, O(S log S)."""
    if not len(instance):
        return np.zeros(0, dtype=np.int64)
    tables = [instance.load()]
    while 2 ** len(tables) <= instance.sections:
        half, last = 2 ** (len(tables) - 1), tables[-1]
        tables.append(np.maximum(last[:-half], last[half:]))
    width = instance.end - instance.start
    level = np.frexp(width.astype(np.float64))[1] - 1
    contention = np.zeros(len(instance), dtype=np.int64)
    for k in np.unique(level).tolist():
        chosen = level == k
        left, right = instance.start[chosen], instance.end[chosen] - 2**k
        contention[chosen] = np.maximum(tables[k][left], tables[k][right])
    return contention
