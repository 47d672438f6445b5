"""Any problem, in a few sorts: buffers of like sizes share places, a region for each class of sizes.

Two classes for each doubling of the size; within one, places are as large as its largest buffer and are
handed on as colours are (`colouring`). The bytes of two classes are never shared, and what is pinned lies
below them all, so the layout is high: a first one, for problems so large that placing in an order takes
seconds.
"""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import FREE, Instance, Integers, round_up
from solver.layout.structures.colouring import coloured, depth

__all__ = ["in_classes"]


def in_classes(instance: Instance) -> Integers:
    """Offsets, in O(n log n)."""
    mantissa, exponent = np.frexp(instance.size.astype(np.float64))
    label, pinned = 2 * exponent + (mantissa > np.sqrt(0.5)), instance.offset != FREE
    offsets, floor = instance.offset.copy(), int((instance.offset + instance.size)[pinned].max(initial=0))
    for kind in np.unique(label[~pinned])[::-1].tolist():
        members = np.flatnonzero((label == kind) & ~pinned)
        part = instance.subset(members)
        alignment = int(part.alignment.max())
        place, places = round_up(int(part.size.max()), alignment), depth(part)
        floor = round_up(floor, alignment)
        offsets[members] = floor + coloured(part, places) * place
        floor += places * place
    return offsets
