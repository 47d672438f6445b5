"""First fit and best fit in the order of time, compiled: a sweep over births that keeps what is free now.

Buffers come by birth, so whatever was placed before and is still there meets the next one, and nothing else
does::

    offset            now
      |  ________      |              free blocks are the gaps between those that live now, the lowest first;
      | |   b    |     |   free       one dies: its bytes join the blocks below and above it
      | |________|_____|___           one is born: it takes the lowest block that is large enough, or
      |       |    a       |          the tightest, and leaves what is over
      +--------------------------->

A pin is in the way before its birth too: of all buffers that live until then. So pins are no part of what is
kept of free space. Those in reach, which are born before the latest death so far and have not died, are kept
beside the free blocks, the lowest first, and cut each block into the rooms between them. A life beyond the
horizon would bring all later pins into reach of the short ones behind it: it is set beside all pins instead.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.kernels.index_kernel import FIRST
from solver.layout.kernels.index_strips import INFINITY
from solver.layout.model.instance import FREE, Integers
from solver.native import compiled, inlined

__all__ = ["BLOCKS", "COMING", "DEAD", "HORIZON", "REACHED", "Blocks", "Lives", "Pins", "place_in_time"]

Flags: TypeAlias = npt.NDArray[np.bool_]

#: What `counts` of blocks holds: how many there are, and how many deaths have passed.
BLOCKS: Final = 0
DEAD: Final = 1

#: What `counts` of pins holds: how many are in reach, how many have come into it so far, and the longest life
#: that brings them there.
REACHED: Final = 0
COMING: Final = 1
HORIZON: Final = 2


class Lives(NamedTuple):
    """The buffers, which of them are pinned, and the numbers of the others by death."""

    start: Integers
    end: Integers
    size: Integers
    exact: Integers
    alignment: Integers
    pinned: Flags
    deaths: Integers


class Blocks(NamedTuple):
    """Free blocks, the lowest first: the last one has no end."""

    bottoms: Integers
    tops: Integers
    counts: Integers


class Pins(NamedTuple):
    """All pins by birth; their numbers, the lowest first, and of these the ones in reach."""

    start: Integers
    end: Integers
    bottom: Integers
    top: Integers
    lowest: Integers
    reached: Integers
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
def _lowest(blocks: Blocks, size: int, alignment: int) -> int:
    """The first block that is large enough."""
    at = 0
    while blocks.tops[at] - _aligned(blocks.bottoms[at], alignment) < size:
        at += 1
    return at


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


@inlined
def _reach(pins: Pins, start: int, end: int) -> int:
    """Drop pins that have died by `start`, take in those born before `end`; how many are in reach."""
    before, count = pins.counts[COMING], 0
    coming = before
    while coming < len(pins.start) and pins.start[coming] < end:
        coming += 1
    if (coming - before) * pins.counts[REACHED] > len(pins.start):
        for pin in pins.lowest:
            if pin < coming and pins.end[pin] > start:
                pins.reached[count] = pin
                count += 1
    else:
        for k in range(pins.counts[REACHED]):
            pin = pins.reached[k]
            if pins.end[pin] > start:
                pins.reached[count] = pin
                count += 1
        for pin in range(before, coming):
            if pins.end[pin] > start:
                at = count
                while at > 0 and pins.bottom[pins.reached[at - 1]] > pins.bottom[pin]:
                    pins.reached[at] = pins.reached[at - 1]
                    at -= 1
                pins.reached[at] = pin
                count += 1
    pins.counts[REACHED], pins.counts[COMING] = count, coming
    return count


@inlined
def _between_pins(
    blocks: Blocks,
    count: int,
    pins: Pins,
    near: Integers,
    start: int,
    end: int,
    size: int,
    alignment: int,
    fit: int,
) -> tuple[int, int]:
    """The block, and the offset in it, that the fit chooses among the rooms that pins leave in [start, end).

    `near`: pins, the lowest first.
    """
    chosen, offset, least, above, k = -1, 0, INFINITY, 0, 0
    for at in range(count):
        low = _aligned(max(blocks.bottoms[at], above), alignment)
        while k < len(near) and pins.bottom[near[k]] < blocks.tops[at]:
            pin = near[k]
            k += 1
            if pins.start[pin] < end and pins.end[pin] > start:
                room = pins.bottom[pin] - low
                if size <= room and (room < least or chosen < 0):
                    chosen, offset, least = at, low, room if fit != FIRST else 0
                above = max(above, pins.top[pin])
                low = max(low, _aligned(above, alignment))
        room = blocks.tops[at] - low
        if size <= room and (room < least or chosen < 0):
            chosen, offset, least = at, low, room if fit != FIRST else 0
        if least == 0:
            break
    return chosen, offset


@compiled
def place_in_time(
    lives: Lives,
    blocks: Blocks,
    pins: Pins,
    order: Integers,
    fits: Integers,
    offset: Integers,
    first: int,
    last: int,
    limit: int,
) -> int:
    """Place from position `first` of an order by birth to before `last`; how far it got within `limit`.

    `fits`: of each position, as in `index_kernel`, and its last one of all beyond. Pinned ones are passed
    over. O(free blocks and pins in reach) a buffer.
    """
    count, dead, position = blocks.counts[BLOCKS], blocks.counts[DEAD], first
    while position < last:
        i = order[position]
        if lives.pinned[i]:
            position += 1
            continue
        while dead < len(lives.deaths) and lives.end[lives.deaths[dead]] <= lives.start[i]:
            gone = lives.deaths[dead]
            if offset[gone] != FREE:
                count = _give_back(blocks, count, offset[gone], offset[gone] + lives.size[gone])
            dead += 1
        size, alignment, fit = lives.size[i], lives.alignment[i], fits[min(position, len(fits) - 1)]
        start, end = lives.start[i], lives.end[i]
        near = pins.lowest
        if len(near) > 0 and end - start <= pins.counts[HORIZON]:
            near = pins.reached[: _reach(pins, start, end)]
        if len(near) > 0:
            at, low = _between_pins(blocks, count, pins, near, start, end, size, alignment, fit)
        else:
            lowest = fit == FIRST
            at = _lowest(blocks, size, alignment) if lowest else _tightest(blocks, count, size, alignment)
            low = _aligned(blocks.bottoms[at], alignment)
        bottom, top, high = blocks.bottoms[at], blocks.tops[at], low + size
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
