"""Any problem, in a few sorts: buffers of like sizes share places, a region for each class of sizes.

Two classes for each doubling of the size; within one, places are as large as its largest buffer and are
handed on as colours are (`colouring`). The bytes of two classes are never shared, so the layout is high: a
first one, for problems so large that placing in an order takes seconds.
"""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import FREE, Instance, Integers, round_up
from solver.layout.structures.colouring import coloured, depth

__all__ = ["in_classes"]


def in_classes(instance: Instance) -> Integers | None:
    """Offsets, or None where something is pinned. O(n log n)."""
    if instance.pinned:
        return None
    mantissa, exponent = np.frexp(instance.size.astype(np.float64))
    label = 2 * exponent + (mantissa > np.sqrt(0.5))
    offsets, floor = np.full(len(instance), FREE, dtype=np.int64), 0
    for kind in np.unique(label)[::-1].tolist():
        members = np.flatnonzero(label == kind)
        part = instance.subset(members)
        alignment = int(part.alignment.max())
        place, places = round_up(int(part.size.max()), alignment), depth(part)
        floor = round_up(floor, alignment)
        offsets[members] = floor + coloured(part, places) * place
        floor += places * place
    return offsets
