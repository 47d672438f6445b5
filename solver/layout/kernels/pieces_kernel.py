"""First fit of buffers that are several pieces, compiled; see `solver.layout.holes`.

Pieces that are placed stand in stretches of time of one width, in each that they reach into; a piece looks
only into its own::

    stretches  |  0  |  1  |  2  |  3  |       head[2] -> entry -> entry -> -1, an entry names a piece
    pieces       |=====a=====|  |=b=|          a stands in 0, 1 and 2; b in 2
"""

from __future__ import annotations

from typing import Final

from solver.layout.model.instance import Indices, Integers
from solver.native import compiled

__all__ = ["ALIGNMENT", "EXACT", "NONE", "OFFSET", "USED", "place_pieces", "reorder"]

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
def _lowest(begins: Integers, ends: Integers, count: int, alignment: int) -> int:
    """The lowest aligned offset outside of all (begin, end)."""
    for root in range(count // 2 - 1, -1, -1):
        _sift(begins, ends, root, count)
    for last in range(count - 1, 0, -1):
        begins[0], begins[last] = begins[last], begins[0]
        ends[0], ends[last] = ends[last], ends[0]
        _sift(begins, ends, 0, last)
    reach = 0
    for k in range(count):
        if begins[k] >= reach:
            return reach
        reach = max(reach, (ends[k] + (alignment - 1)) & -alignment)
    return reach


@compiled
def _put(
    pieces: Integers, first: int, last: int, width: int, head: Integers, entries: Indices, counts: Integers
) -> None:
    for p in range(first, last):
        for stretch in range(pieces[p, START] // width, (pieces[p, END] - 1) // width + 1):
            entry = counts[USED]
            entries[entry, 0], entries[entry, 1] = p, head[stretch]
            head[stretch] = entry
            counts[USED] += 1


@compiled
def _take_back(pieces: Integers, first: int, last: int, width: int, head: Integers, entries: Indices) -> int:
    """Undoes the last `_put` that is not undone; how many entries it had."""
    count = 0
    for p in range(first, last):
        for stretch in range(pieces[p, START] // width, (pieces[p, END] - 1) // width + 1):
            head[stretch] = entries[head[stretch], 1]
            count += 1
    return count


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
) -> int:
    """The lowest offset for buffer i beside what is placed."""
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
    return int(_lowest(begins, ends, count, buffers[i, ALIGNMENT]))


@compiled
def place_pieces(
    buffers: Integers,
    pieces: Integers,
    first: Integers,
    order: Integers,
    pinned: int,
    width: int,
    head: Integers,
    entries: Indices,
    scratch: Integers,
    counts: Integers,
    limit: int,
) -> int:
    """Places in this order; how far into it it got within `limit`.

    The first `pinned` of the order stand at their offsets. The pieces of buffer i are ``first[i]`` up to
    ``first[i + 1]``. `scratch`: two rows, as long as a buffer meets pieces.
    """
    for position in range(len(order)):
        i = order[position]
        if position >= pinned:
            offset = _place(i, buffers, pieces, first, width, head, entries, scratch)
            if offset + buffers[i, EXACT] > limit:
                return position
            buffers[i, OFFSET] = offset
        _put(pieces, first[i], first[i + 1], width, head, entries, counts)
    return len(order)


@compiled
def reorder(
    buffers: Integers,
    pieces: Integers,
    first: Integers,
    order: Integers,
    again: Integers,
    pinned: int,
    width: int,
    head: Integers,
    entries: Indices,
    scratch: Integers,
    counts: Integers,
    limit: int,
    placements: int,
    patience: int,
    seed: int,
) -> int:
    """Looks for an order in which all end within `limit`; placements that are left over, or `NONE` if none
    fits.

    What ends beyond it moves to a random earlier position, and what was placed since then is placed anew;
    after `patience` of these moves it starts over from `order`, of which `again` is a copy.
    """
    failures, position, state = 0, 0, seed
    while placements > 0:
        if position == len(order):
            return placements
        i = order[position]
        if position < pinned:
            _put(pieces, first[i], first[i + 1], width, head, entries, counts)
            position += 1
            continue
        placements -= 1
        offset = _place(i, buffers, pieces, first, width, head, entries, scratch)
        if offset + buffers[i, EXACT] <= limit:
            buffers[i, OFFSET] = offset
            _put(pieces, first[i], first[i + 1], width, head, entries, counts)
            position += 1
            continue
        failures += 1
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        nearest = pinned if state & 65536 else pinned + (position - pinned) // 2
        if position == pinned:
            return NONE  # does not fit beside the pins alone
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        back = nearest + (state >> 8) % (position - nearest)
        if failures % patience == 0:
            back = pinned
        while position > back:
            position -= 1
            j = order[position]
            counts[USED] -= _take_back(pieces, first[j], first[j + 1], width, head, entries)
            if failures % patience != 0:
                order[position + 1] = j
        if failures % patience == 0:
            for k in range(len(order)):
                order[k] = again[k]
        else:
            order[back] = i
    return NONE
