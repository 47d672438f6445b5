"""Do two of very many buffers overlap? A compiled sweep over time; shares nothing with the solvers.

Live buffers are kept by offset. As long as they are disjoint, a newborn one overlaps some of them only if
it overlaps its neighbour below or above: among *live* buffers, and only then, neighbours are enough. The
sweep ends at the first overlap; naming all of them is left to the slow check.

    live     [  a  ]     [   b   ]      the neighbours of x: a below (top(a) <= bottom(x)?) and
    newborn         [ x ]               b above (top(x) <= bottom(b)?)

The set of live offsets is a binary tree over the ranks of all offsets whose nodes say "occupied below".
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.model.sorting import in_order, ranks
from solver.native import compiled

__all__ = ["disjoint", "sweep"]

_Integers: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.uint8]


def disjoint(start: _Integers, end: _Integers, bottom: _Integers, top: _Integers) -> bool:
    """Whether no two of [start, end) x [bottom, top) share a point; none is empty. O(n log n)."""
    (rank,), by_start, by_end = ranks(bottom), in_order(start), in_order(end)
    leaves = 1 << len(start).bit_length()
    owner, occupied = np.zeros(leaves, np.int64), np.zeros(2 * leaves, np.uint8)
    return bool(sweep(start, end, bottom, top, rank, by_start, by_end, owner, occupied))


@compiled
def _below(occupied: _Flags, leaf: int) -> int:
    """The nearest occupied leaf to the left; -1 if there is none."""
    node = leaf
    while node > 1 and (node & 1 == 0 or occupied[node - 1] == 0):
        node >>= 1
    if node <= 1:
        return -1
    node -= 1
    while node < len(occupied) // 2:
        node = 2 * node + (1 if occupied[2 * node + 1] else 0)
    return node


@compiled
def _above(occupied: _Flags, leaf: int) -> int:
    """The nearest occupied leaf to the right; -1 if there is none."""
    node = leaf
    while node > 1 and (node & 1 == 1 or occupied[node + 1] == 0):
        node >>= 1
    if node <= 1:
        return -1
    node += 1
    while node < len(occupied) // 2:
        node = 2 * node + (0 if occupied[2 * node] else 1)
    return node


@compiled
def _leave(occupied: _Flags, leaf: int) -> None:
    occupied[leaf] = 0
    node = leaf >> 1
    while node > 0 and occupied[2 * node] == 0 and occupied[2 * node + 1] == 0:
        occupied[node] = 0
        node >>= 1


@compiled
def _enter(occupied: _Flags, leaf: int) -> None:
    node = leaf
    while node > 0 and occupied[node] == 0:
        occupied[node] = 1
        node >>= 1


@compiled
def sweep(
    start: _Integers,
    end: _Integers,
    bottom: _Integers,
    top: _Integers,
    ranks: _Integers,
    by_start: _Integers,
    by_end: _Integers,
    owner: _Integers,
    occupied: _Flags,
) -> bool:
    leaves, dead = len(occupied) // 2, 0
    for position in range(len(by_start)):
        i = by_start[position]
        while end[by_end[dead]] <= start[i]:
            _leave(occupied, leaves + ranks[by_end[dead]])
            dead += 1
        leaf = leaves + ranks[i]
        below, above = _below(occupied, leaf), _above(occupied, leaf)
        if occupied[leaf]:
            return False
        if below >= 0 and top[owner[below - leaves]] > bottom[i]:
            return False
        if above >= 0 and bottom[owner[above - leaves]] < top[i]:
            return False
        _enter(occupied, leaf)
        owner[ranks[i]] = i
    return True
