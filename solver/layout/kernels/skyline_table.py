"""What has been refuted, remembered by two hashes of 61 bits.

The fate of a part depends on the headroom (capacity - skyline) of its sections and on the multiset of
its unplaced buffers, and on nothing else; so what is learnt holds for every later run, and at every
capacity of the same remainder by the unit and by the largest alignment. A hash is a sum modulo the prime
``2**61 - 1``::

    headroom of each section x a random number of the section  +  a random number of each buffer's kind

For any two different states the numbers drawn at the start make it agree with a chance of 1 / prime, and
both hashes with a chance of ``2**-122`` (Carter and Wegman, *Universal classes of hash functions*, 1979).
As the sum is linear, a placement changes it by one product, and so does waste. What is kept of the numbers
of sections are sums from the first section on, so that those of a lifespan come by one subtraction.
"""

from __future__ import annotations

from typing import Final

from solver.layout.kernels.skyline_state import (
    CAPACITY,
    CAUSE,
    HASH1,
    HASH2,
    KNOWN,
    NONE,
    PRIME,
    SearchState,
)
from solver.layout.model.instance import Integers
from solver.native import inlined

__all__ = ["known", "lower", "place", "plus", "remember", "state", "times"]

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
def between(zone: Integers, first: int, last: int) -> int:
    """The random numbers of sections [first, last), added up."""
    return plus(int(zone[last]), PRIME - int(zone[first]))


@inlined
def place(s: SearchState, i: int, padding: int) -> None:
    """The hashes after buffer i is placed, with so much free below: headroom goes, and so does the buffer."""
    c, height = s.counters, int(s.size[i]) + padding
    one = times(height, between(s.zone1, s.start[i], s.end[i]))
    two = times(height, between(s.zone2, s.start[i], s.end[i]))
    c[HASH1] = plus(c[HASH1], PRIME - plus(one, s.key1[i]))
    c[HASH2] = plus(c[HASH2], PRIME - plus(two, s.key2[i]))


@inlined
def state(s: SearchState, first: int, last: int) -> tuple[int, int, int]:
    """How many buffers are unplaced in a part, and its two hashes."""
    count, one, two = 0, 0, 0
    for t in range(first, last):
        room = s.counters[CAPACITY] - s.skyline[t]
        one = plus(one, times(room, between(s.zone1, t, t + 1)))
        two = plus(two, times(room, between(s.zone2, t, t + 1)))
    for i in range(s.born[first], s.born[last]):
        if s.placed[i] == 0:
            count += 1
            one, two = plus(one, s.key1[i]), plus(two, s.key2[i])
    return count, one, two


@inlined
def lower(s: SearchState, t: int, height: int) -> None:
    """The hashes of the part being looked at, after waste of this height at section t."""
    c = s.counters
    c[HASH1] = plus(c[HASH1], PRIME - times(height, between(s.zone1, t, t + 1)))
    c[HASH2] = plus(c[HASH2], PRIME - times(height, between(s.zone2, t, t + 1)))


@inlined
def known(s: SearchState, one: int, two: int) -> bool:
    """Whether this state is among the refuted; then the cause is what explained it."""
    slot = two & (len(s.table) - 1)
    near = slot ^ 1
    found = s.table[slot] - 1
    if found == NONE or s.refuted[found, 0] != one or s.refuted[found, 1] != two:
        found = s.table[near] - 1
        if found != NONE and (s.refuted[found, 0] != one or s.refuted[found, 1] != two):
            found = NONE
    if found != NONE:
        s.counters[CAUSE] = s.refuted[found, 2]
    return found != NONE


@inlined
def remember(s: SearchState, one: int, two: int) -> None:
    """Keeps a refuted state and its cause; where both of its places are taken, one of the two makes room."""
    slot = two & (len(s.table) - 1)
    if s.table[slot] != 0 and (s.table[slot ^ 1] == 0 or one & 1):
        slot ^= 1
    if s.table[slot] == 0:
        s.counters[KNOWN] += 1
        s.table[slot] = s.counters[KNOWN]
    row = s.table[slot] - 1
    s.refuted[row, 0] = one
    s.refuted[row, 1] = two
    s.refuted[row, 2] = s.counters[CAUSE]
