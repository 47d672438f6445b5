"""What has been refuted, remembered by two hashes of 61 bits.

The fate of a part depends on the headroom (capacity - skyline) of its sections and on the multiset of
its unplaced buffers, and on nothing else; so what is learnt holds for every later run, and at every
capacity of the same remainder by the unit and by the largest alignment. A hash is a sum modulo the prime
``2**61 - 1``::

    headroom of each section x a random number of the section  +  a random number of each buffer's kind

For any two different states the numbers drawn at the start make it agree with a chance of 1 / prime, and
both hashes with a chance of ``2**-122`` (Carter and Wegman, *Universal classes of hash functions*, 1979).
As the sum is linear, a placement changes it by a number known in advance, and waste by one product.
"""

from __future__ import annotations

from typing import Final

from solver.layout.compiled.jit import inlined
from solver.layout.compiled.skyline_state import CAPACITY, CAUSE, HASH1, HASH2, NONE, PRIME, SearchState

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
def foresee(s: SearchState, i: int) -> None:
    """How the hash of a part changes when buffer i is placed: headroom goes, and so does the buffer."""
    one, two = 0, 0
    for t in range(s.start[i], s.end[i]):
        one, two = plus(one, s.zone1[t]), plus(two, s.zone2[t])
    s.breadth1[i], s.breadth2[i] = one, two
    s.change1[i] = PRIME - plus(times(s.size[i], one), s.key1[i])
    s.change2[i] = PRIME - plus(times(s.size[i], two), s.key2[i])


@inlined
def state(s: SearchState, first: int, last: int) -> tuple[int, int, int]:
    """How many buffers are unplaced in a part, and its two hashes."""
    count, one, two = 0, 0, 0
    for t in range(first, last):
        room = s.counters[CAPACITY] - s.skyline[t]
        one, two = plus(one, times(room, s.zone1[t])), plus(two, times(room, s.zone2[t]))
    for i in range(s.born[first], s.born[last]):
        if s.placed[i] == 0:
            count += 1
            one, two = plus(one, s.key1[i]), plus(two, s.key2[i])
    return count, one, two


@inlined
def lower(s: SearchState, t: int, height: int) -> None:
    """The hashes of the part being looked at, after waste of this height at section t."""
    c = s.counters
    c[HASH1] = plus(c[HASH1], PRIME - times(height, s.zone1[t]))
    c[HASH2] = plus(c[HASH2], PRIME - times(height, s.zone2[t]))


@inlined
def known(s: SearchState, one: int, two: int) -> bool:
    """Whether this state is among the refuted; then the cause is what explained it."""
    slot, one = two & (len(s.table) - 1), one | TAKEN
    near = slot ^ 1
    found = NONE
    if s.table[slot, 0] == one and s.table[slot, 1] == two:
        found = slot
    elif s.table[near, 0] == one and s.table[near, 1] == two:
        found = near
    if found != NONE:
        s.counters[CAUSE] = s.table[found, 2]
    return found != NONE


@inlined
def remember(s: SearchState, one: int, two: int) -> None:
    """Keeps a refuted state and its cause; where both of its places are taken, one of the two makes room."""
    slot = two & (len(s.table) - 1)
    if s.table[slot, 0] != 0 and (s.table[slot ^ 1, 0] == 0 or one & 1):
        slot ^= 1
    s.table[slot, 0] = one | TAKEN
    s.table[slot, 1] = two
    s.table[slot, 2] = s.counters[CAUSE]
