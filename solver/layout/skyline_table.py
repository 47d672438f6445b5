"""What has been refuted, remembered by 127 bits of hash.

The fate of a part depends on the headroom (capacity - floor) of its sections and on the multiset of
its unplaced buffers, and on nothing else; so what is learnt holds for every later run, and at every
capacity of the same remainder by the unit. Each set of keys gives 64 bits, by a sum over sections and
buffers of well-mixed words; the sets are drawn independently. A lookup among k entries takes a wrong
one with a probability of about ``k / 2**127``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.layout.jit import inlined
from solver.layout.skyline_board import CAPACITY, Board

__all__ = ["digest", "known", "remember"]


@inlined
def mix(x: Any) -> Any:
    """Spreads 64 bits over 64 bits, one to one (the finaliser of splitmix64, Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def digest(b: Board, first: int, last: int, low: int, high: int) -> tuple[Any, Any]:
    """The hash of a part as it stands; never zero, which marks an empty place."""
    one, two = np.uint64(0), np.uint64(0)
    capacity = b.counters[CAPACITY]
    for t in range(first, last):
        room = np.uint64(capacity - b.floor[t])
        one += mix(b.zone1[t] + room * np.uint64(0x9E3779B97F4A7C15))
        two += mix(b.zone2[t] ^ room * np.uint64(0xD1342543DE82EF95))
    for k in range(low, high):
        one += b.key1[b.items[k]]
        two += b.key2[b.items[k]]
    return one | np.uint64(1), two


@inlined
def known(b: Board, one: Any, two: Any) -> bool:
    """Whether this state is among the refuted."""
    slot = np.int64(two & np.uint64(len(b.table) - 1))
    near = slot ^ 1
    return (b.table[slot, 0] == one and b.table[slot, 1] == two) or (
        b.table[near, 0] == one and b.table[near, 1] == two
    )


@inlined
def remember(b: Board, one: Any, two: Any) -> None:
    """Keeps a refuted state; where both of its places are taken, one of the two makes room."""
    slot = np.int64(two & np.uint64(len(b.table) - 1))
    if b.table[slot, 0] != 0 and (b.table[slot ^ 1, 0] == 0 or one & np.uint64(2)):
        slot ^= 1
    b.table[slot, 0] = one
    b.table[slot, 1] = two
