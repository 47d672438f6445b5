"""What has been refuted, remembered by two hashes of 61 bits.

The fate of a part depends on the headroom (capacity - floor) of its sections and on the multiset of
its unplaced buffers, and on nothing else; so what is learnt holds for every later run, and at every
capacity of the same remainder by the unit. A hash is a sum modulo the prime 2**61 - 1::

    headroom of each section x a random number of the section  +  a random number of each buffer's kind

For any two different states the numbers drawn at the start make it agree with a chance of 1 / prime, and
both hashes with a chance of ``2**-122`` (Carter and Wegman, *Universal classes of hash functions*, 1979).
As the sum is linear, a placement changes it by a number known in advance, and a gap by one product.
"""

from __future__ import annotations

from typing import Final

from solver.layout.compiled.jit import inlined
from solver.layout.compiled.skyline_state import CAPACITY, CAUSE, HASH1, HASH2, NONE, PRIME, Board

__all__ = ["foresee", "known", "lower", "plus", "remember", "state", "times"]

#: Set in every hash that is kept: an empty place is zero.
TAKEN: Final = 1 << 62

_HALF: Final = (1 << 31) - 1
_REST: Final = (1 << 30) - 1


@inlined
def fold(x: int) -> int:
    """The same residue, below ``2**61 + 4``."""
    return (x & PRIME) + (x >> 61)


@inlined
def plus(x: int, y: int) -> int:
    """The sum of two residues."""
    total = x + y
    return total - PRIME if total >= PRIME else total


@inlined
def times(x: int, y: int) -> int:
    """The product of a number below ``2**62`` and a residue.

    With ``x = a * 2**31 + b`` and ``y = c * 2**31 + d`` it is ``2 * ac + (ad + bc) * 2**31 + bd``, as
    ``2**62 = 2``; the middle is cut at 30 bits, so that its upper part comes round as ``2**61 = 1``. No sum
    reaches ``2**63``.
    """
    a, b, c, d = x >> 31, x & _HALF, y >> 31, y & _HALF
    middle = a * d + b * c
    total = fold(2 * (a * c)) + fold(b * d) + (middle >> 30) + ((middle & _REST) << 31)
    total = fold(total)
    return total - PRIME if total >= PRIME else total


@inlined
def foresee(b: Board, i: int) -> None:
    """How the hash of a part changes when buffer i is placed: headroom goes, and so does the buffer."""
    one, two = 0, 0
    for t in range(b.start[i], b.end[i]):
        one, two = plus(one, b.zone1[t]), plus(two, b.zone2[t])
    b.breadth1[i], b.breadth2[i] = one, two
    b.change1[i] = PRIME - plus(times(b.size[i], one), b.key1[i])
    b.change2[i] = PRIME - plus(times(b.size[i], two), b.key2[i])


@inlined
def state(b: Board, first: int, last: int) -> tuple[int, int, int]:
    """How many buffers are unplaced in a part, and its two hashes."""
    count, one, two = 0, 0, 0
    for t in range(first, last):
        room = b.counters[CAPACITY] - b.floor[t]
        one, two = plus(one, times(room, b.zone1[t])), plus(two, times(room, b.zone2[t]))
    for i in range(b.born[first], b.born[last]):
        if b.placed[i] == 0:
            count += 1
            one, two = plus(one, b.key1[i]), plus(two, b.key2[i])
    return count, one, two


@inlined
def lower(b: Board, t: int, height: int) -> None:
    """The hashes of the part being looked at, after a gap of this height at section t."""
    c = b.counters
    c[HASH1] = plus(c[HASH1], PRIME - times(height, b.zone1[t]))
    c[HASH2] = plus(c[HASH2], PRIME - times(height, b.zone2[t]))


@inlined
def known(b: Board, one: int, two: int) -> bool:
    """Whether this state is among the refuted; then the cause is what explained it."""
    slot, one = two & (len(b.table) - 1), one | TAKEN
    near = slot ^ 1
    found = NONE
    if b.table[slot, 0] == one and b.table[slot, 1] == two:
        found = slot
    elif b.table[near, 0] == one and b.table[near, 1] == two:
        found = near
    if found != NONE:
        b.counters[CAUSE] = b.table[found, 2]
    return found != NONE


@inlined
def remember(b: Board, one: int, two: int) -> None:
    """Keeps a refuted state and its cause; where both of its places are taken, one of the two makes room."""
    slot = two & (len(b.table) - 1)
    if b.table[slot, 0] != 0 and (b.table[slot ^ 1, 0] == 0 or one & 1):
        slot ^= 1
    b.table[slot, 0] = one | TAKEN
    b.table[slot, 1] = two
    b.table[slot, 2] = b.counters[CAUSE]
