"""First fit and best fit of buffers that are several pieces, compiled.

Pieces that are placed stand in stretches of time of one width, in each that they reach into; a piece looks
only into its own::

    stretches  |  0  |  1  |  2  |  3  |       head[2] -> entry -> entry -> -1, an entry names a piece
    pieces       |=====a=====|  |=b=|          a stands in 0, 1 and 2; b in 2
"""

from __future__ import annotations

from typing import Final

from solver.layout.model.instance import FREE, Indices, Integers
from solver.native import compiled

__all__ = ["NONE", "OFFSET", "place_pieces"]

#: In place of an entry: the end of a list.
NONE: Final = -1

# Fields of a buffer, and of a piece.
EXACT, ALIGNMENT, OFFSET = range(3)
START, END, LOW, HIGH, OWNER = range(5)
# Counter: entries in use.
USED: Final = 0


@compiled
def _sift(begins: Integers, ends: Integers, root: int, count: int) -> None:
    """Heap order by begin below `root`, the largest on top."""
    while 2 * root + 1 < count:
        child = 2 * root + 1
        if child + 1 < count and begins[child + 1] > begins[child]:
            child += 1
        if begins[root] >= begins[child]:
            return
        begins[root], begins[child] = begins[child], begins[root]
        ends[root], ends[child] = ends[child], ends[root]
        root = child


@compiled
def _free_place(begins: Integers, ends: Integers, count: int, alignment: int, best_fit: bool) -> int:
    """The lowest aligned offset outside of all (begin, end), or the one with the least room above it."""
    for root in range(count // 2 - 1, -1, -1):
        _sift(begins, ends, root, count)
    for last in range(count - 1, 0, -1):
        begins[0], begins[last] = begins[last], begins[0]
        ends[0], ends[last] = ends[last], ends[0]
        _sift(begins, ends, 0, last)
    reach, tightest, least = 0, -1, 0
    for k in range(count):
        room = begins[k] - reach
        if room >= 0:
            if not best_fit or room == 0:
                return reach
            if tightest < 0 or room < least:
                tightest, least = reach, room
        reach = max(reach, (ends[k] + (alignment - 1)) & -alignment)
    return reach if tightest < 0 else tightest


@compiled
def _place(
    i: int,
    buffers: Integers,
    pieces: Integers,
    first: Integers,
    width: int,
    head: Integers,
    entries: Indices,
    scratch: Integers,
    best_fit: bool,
) -> int:
    """The offset for buffer i beside what is placed."""
    begins, ends, count = scratch[0], scratch[1], 0
    for p in range(first[i], first[i + 1]):
        start, end, low, high = pieces[p, START], pieces[p, END], pieces[p, LOW], pieces[p, HIGH]
        for stretch in range(start // width, (end - 1) // width + 1):
            entry = head[stretch]
            while entry != NONE:
                q = entries[entry, 0]
                entry = entries[entry, 1]
                if pieces[q, START] >= end or pieces[q, END] <= start:
                    continue
                # Each pair once: in the first stretch that both reach into.
                if max(start, pieces[q, START]) // width != stretch:
                    continue
                offset = buffers[pieces[q, OWNER], OFFSET]
                begins[count], ends[count] = offset + pieces[q, LOW] - high, offset + pieces[q, HIGH] - low
                count += 1
    return int(_free_place(begins, ends, count, buffers[i, ALIGNMENT], best_fit))


@compiled
def place_pieces(
    buffers: Integers,
    pieces: Integers,
    first: Integers,
    order: Integers,
    width: int,
    head: Integers,
    entries: Indices,
    scratch: Integers,
    counts: Integers,
    limit: int,
    best_fit: bool,
) -> int:
    """Places in this order, each at its offset if it has one; how far into the order it got within `limit`.

    The pieces of buffer i are ``first[i]`` up to ``first[i + 1]``. `scratch`: two rows, as long as a buffer
    meets pieces.
    """
    for position in range(len(order)):
        i = order[position]
        if buffers[i, OFFSET] == FREE:
            offset = _place(i, buffers, pieces, first, width, head, entries, scratch, best_fit)
            if offset + buffers[i, EXACT] > limit:
                return position
            buffers[i, OFFSET] = offset
        for p in range(first[i], first[i + 1]):
            for stretch in range(pieces[p, START] // width, (pieces[p, END] - 1) // width + 1):
                entry = counts[USED]
                entries[entry, 0], entries[entry, 1] = p, head[stretch]
                head[stretch] = entry
                counts[USED] += 1
    return len(order)
