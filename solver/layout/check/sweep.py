"""Do any two of very many rectangles meet? A compiled sweep over time; shares nothing with the solvers.

Live rectangles are kept by their lowest byte. As long as they are disjoint, a new one meets some of them only
if it meets its neighbour below or above. The sweep ends at the first meeting.

    live     [  a  ]     [   b   ]      the neighbours of x: a below (high(a) <= low(x)?) and
    new             [ x ]               b above (high(x) <= low(b)?)

The live rows are leaves of a binary tree over the ranks of all lowest bytes; each node says whether a leaf
below it is live.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from solver.native import compiled, compiling_after, may_compile, runs_compiled

__all__ = ["disjoint", "is_compiled", "sweep"]

_Integers: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.uint8]


def disjoint(start: _Integers, end: _Integers, low: _Integers, high: _Integers) -> bool:
    """Whether no two of [start, end) x [low, high) share a point; none is empty. O(n log n)."""
    by_low = np.argsort(low)
    rank = np.empty_like(by_low)
    rank[by_low] = np.arange(len(low))
    live = np.zeros(2 << len(start).bit_length(), np.uint8)
    return bool(sweep(start, end, low, high, rank, by_low, np.argsort(start), np.argsort(end), live))


def is_compiled() -> bool:
    """Whether `disjoint` runs as machine code; compiles it, in a second, unless a deadline forbids that."""
    if not runs_compiled(sweep):
        zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
        with compiling_after(0) if may_compile() else nullcontext():
            disjoint(zero, one, zero, one)
    return runs_compiled(sweep)


@compiled
def _neighbour(live: _Flags, leaf: int, right: int) -> int:
    """The nearest live leaf to the left, or to the `right` (0 or 1); -1 if there is none."""
    node = leaf
    while node > 1 and (node & 1 != 1 - right or live[node ^ 1] == 0):
        node >>= 1
    if node <= 1:
        return -1
    node ^= 1
    while node < len(live) // 2:
        node = 2 * node + 1 - right
        if live[node] == 0:
            node ^= 1
    return node


@compiled
def sweep(
    start: _Integers,
    end: _Integers,
    low: _Integers,
    high: _Integers,
    rank: _Integers,
    by_low: _Integers,
    by_start: _Integers,
    by_end: _Integers,
    live: _Flags,
) -> bool:
    leaves, dead = len(live) // 2, 0
    for position in range(len(by_start)):
        i = by_start[position]
        while end[by_end[dead]] <= start[i]:
            node = leaves + rank[by_end[dead]]
            live[node] = 0
            node >>= 1
            while node > 0 and live[2 * node] == 0 and live[2 * node + 1] == 0:
                live[node] = 0
                node >>= 1
            dead += 1
        node = leaves + rank[i]
        below, above = _neighbour(live, node, 0), _neighbour(live, node, 1)
        if below >= 0 and high[by_low[below - leaves]] > low[i]:
            return False
        if above >= 0 and low[by_low[above - leaves]] < high[i]:
            return False
        while node > 0 and live[node] == 0:
            live[node] = 1
            node >>= 1
    return True
