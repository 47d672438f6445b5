"""Do two of very many buffers overlap? A compiled sweep over time; shares nothing with the solvers.

Live buffers are kept by offset. As long as they are disjoint, a newborn one overlaps some of them only if
it overlaps its neighbour below or above: among *live* buffers, and only then, neighbours are enough. The
sweep ends at the first overlap; naming all of them is left to the slow check.

    live     [  a  ]     [   b   ]      the neighbours of x: a below (top(a) <= bottom(x)?) and
    newborn         [ x ]               b above (top(x) <= bottom(b)?)

The set of live offsets is a binary tree over the ranks of all offsets whose nodes say "occupied below".
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.compiled.kernels import Kernel

__all__ = ["disjoint"]

_Integers: TypeAlias = npt.NDArray[np.int64]


def disjoint(start: _Integers, end: _Integers, bottom: _Integers, top: _Integers) -> bool:
    """Whether no two of [start, end) x [bottom, top) share a point; none is empty. O(n log n)."""
    return bool(_sweep(*_prepared(start, end, bottom, top)))


def _prepared(start: _Integers, end: _Integers, bottom: _Integers, top: _Integers) -> tuple[Any, ...]:
    ranks = np.unique(bottom, return_inverse=True)[1].astype(np.int64)
    leaves = 1 << len(start).bit_length()
    by_start = np.argsort(start, kind="stable")
    by_end = np.argsort(end, kind="stable")
    owner, occupied = np.zeros(leaves, np.int64), np.zeros(2 * leaves, np.uint8)
    return start, end, bottom, top, ranks, by_start, by_end, owner, occupied


def _one() -> tuple[Any, ...]:
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    return _prepared(zero, one, zero, one)


_sweep: Final = Kernel("solver.layout.check.sweep_kernel", "sweep", _one)
