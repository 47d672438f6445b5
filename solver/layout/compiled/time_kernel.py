"""First fit and best fit in the order of time, compiled: a sweep over births that keeps what is free now.

Buffers come by birth, so whatever was placed before and is still there meets the next one, and nothing else
does::

    offset            now
      |  ________      |              free blocks are the gaps between those that live now, the lowest first;
      | |   b    |     |   free       one dies: its bytes join the blocks below and above it
      | |________|_____|___           one is born: it takes the lowest block that is large enough, or
      |       |    a       |          the tightest, and leaves what is over
      +--------------------------->
"""

from __future__ import annotations

from typing import Final, NamedTuple

from solver.layout.compiled.index_kernel import FIRST
from solver.layout.compiled.index_strips import INFINITY
from solver.layout.compiled.jit import compiled, inlined
from solver.layout.model.instance import FREE, Integers

__all__ = ["BLOCKS", "DEAD", "Blocks", "Lives", "place_in_time"]

#: What `counts` of blocks holds: how many there are, and how many deaths have passed.
BLOCKS: Final = 0
DEAD: Final = 1


class Lives(NamedTuple):
    """The buffers, and their numbers by death."""

    start: Integers
    end: Integers
    size: Integers
    exact: Integers
    alignment: Integers
    deaths: Integers


class Blocks(NamedTuple):
    """Free blocks, the lowest first: the last one has no end."""

    bottoms: Integers
    tops: Integers
    counts: Integers


@inlined
def _at(blocks: Blocks, count: int, offset: int) -> int:
    """How many blocks begin below `offset`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if blocks.bottoms[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _open(blocks: Blocks, count: int, at: int, bottom: int, top: int) -> int:
    """A block more at this position; how many there are then."""
    for k in range(count, at, -1):
        blocks.bottoms[k] = blocks.bottoms[k - 1]
    for k in range(count, at, -1):
        blocks.tops[k] = blocks.tops[k - 1]
    blocks.bottoms[at], blocks.tops[at] = bottom, top
    return count + 1


@inlined
def _close(blocks: Blocks, count: int, at: int) -> int:
    """One block less; how many are left."""
    for k in range(at, count - 1):
        blocks.bottoms[k] = blocks.bottoms[k + 1]
    for k in range(at, count - 1):
        blocks.tops[k] = blocks.tops[k + 1]
    return count - 1


@inlined
def _give_back(blocks: Blocks, count: int, bottom: int, top: int) -> int:
    """Free these bytes; how many blocks there are then."""
    at = _at(blocks, count, bottom)
    below = at > 0 and blocks.tops[at - 1] == bottom
    # The last block is above everything, so there always is one at this position.
    if blocks.bottoms[at] == top:
        if below:
            blocks.tops[at - 1] = blocks.tops[at]
            return _close(blocks, count, at)
        blocks.bottoms[at] = bottom
        return count
    if below:
        blocks.tops[at - 1] = top
        return count
    return _open(blocks, count, at, bottom, top)


@inlined
def _aligned(bottom: int, alignment: int) -> int:
    return (bottom + (alignment - 1)) & -alignment


@inlined
def _tightest(blocks: Blocks, count: int, size: int, alignment: int) -> int:
    """The block that leaves the least room, the lowest of these. Two plain loops: the first has no branch."""
    least = INFINITY
    for k in range(count):
        room = blocks.tops[k] - _aligned(blocks.bottoms[k], alignment)
        least = min(least, room if room >= size else INFINITY)
    at = 0
    while blocks.tops[at] - _aligned(blocks.bottoms[at], alignment) != least:
        at += 1
    return at


@compiled
def place_in_time(
    lives: Lives,
    blocks: Blocks,
    order: Integers,
    fits: Integers,
    offset: Integers,
    first: int,
    last: int,
    limit: int,
) -> int:
    """Place from position `first` of an order by birth to before `last`; how far it got within `limit`.

    `fits`: of each position, as in `index_kernel`, and its last one of all beyond. O(free blocks) a buffer.
    """
    count, dead, position = blocks.counts[BLOCKS], blocks.counts[DEAD], first
    while position < last:
        i = order[position]
        while dead < len(lives.deaths) and lives.end[lives.deaths[dead]] <= lives.start[i]:
            gone = lives.deaths[dead]
            if offset[gone] != FREE:
                count = _give_back(blocks, count, offset[gone], offset[gone] + lives.size[gone])
            dead += 1
        size, alignment = lives.size[i], lives.alignment[i]
        if fits[min(position, len(fits) - 1)] == FIRST:
            at = 0
            while blocks.tops[at] - _aligned(blocks.bottoms[at], alignment) < size:
                at += 1
        else:
            at = _tightest(blocks, count, size, alignment)
        bottom, top = blocks.bottoms[at], blocks.tops[at]
        low = _aligned(bottom, alignment)
        high = low + size
        if low + lives.exact[i] > limit:
            break
        offset[i] = low
        position += 1
        if low > bottom:
            blocks.tops[at] = low
            if high < top:
                count = _open(blocks, count, at + 1, high, top)
        elif high < top:
            blocks.bottoms[at] = high
        else:
            count = _close(blocks, count, at)
    blocks.counts[BLOCKS], blocks.counts[DEAD] = count, dead
    return int(position)
