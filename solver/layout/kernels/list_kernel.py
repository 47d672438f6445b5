"""First fit and best fit over lists of what is placed, compiled: for buffers of which many live at once.

Time is cut into overlapping windows of many widths: those of a *level* are two steps wide and begin at
every step, and a step of the next level is twice as long. Each window has a list of the boxes placed in it so
far, by their bottoms, in chunks that split in halves when full. A buffer looks through the list of the
smallest window that holds all of its life::

    window      |-------------|-------------|          bottom      0    3    5    9   12   20
                       |-------------|                 top         3    8    9   12   20   31
    buffer                |=======|                    meets       x         x         x    x
                                                       reach       3         9        20   31
                                                       free             3-5      9-12

There, `reach` is the highest top so far of the boxes that meet the life; where the next one begins above
it, the bytes between are a free block. The window is at most four times as long as the life, unless it is one
of the smallest, so the boxes seen are those that meet it times a small number. Two comparisons of 32 bits
tell each.

The index of free space (`index_kernel`) looks only at strips that cover the lifespan; but where much lives at
once, and alignments leave slivers, these are nearly as many as the boxes, and each costs ten times as much.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from solver.layout.kernels.index_kernel import FIRST, PINNED
from solver.layout.kernels.index_strips import ALIGNMENT, EXACT, INFINITY, OFFSET, SIZE, START, UNTIL
from solver.layout.model.instance import Indices, Integers
from solver.native import compiled, inlined

__all__ = ["CHUNK", "Shelf", "list_some"]

#: Boxes in a chunk: what an insertion moves, and what one line of a directory stands for.
CHUNK: Final = 64

#: What `counts` of a shelf holds.
BOXES: Final = 0
CHUNKS: Final = 1


class Shelf(NamedTuple):
    """Boxes by bottom, in windows. Each box is there once, and in windows by its number alone.

    A window has a part of the directory to itself; chunks are of a pool. Level k has steps of
    2**(k + the first shift) sections; window 0 of a level is that of its first step.
    """

    lives: Indices  # box: first section, one past the last
    spans: Integers  # box: bottom, top
    chunks: Indices  # chunk x slot: box
    lengths: Indices  # chunk: boxes in it
    directory: Indices  # chunks of a window, the lowest first, from where its part begins
    begins: Integers  # window: where its part of the directory begins
    used: Integers  # window: chunks in use
    levels: Integers  # level: its first window, and one past its last
    hits: Integers  # boxes of one chunk that meet a lifespan
    counts: Integers  # boxes, and chunks in use


@inlined
def _aligned(bottom: int, alignment: int) -> int:
    return (bottom + (alignment - 1)) & -alignment


@inlined
def _window(lists: Shelf, shift: int, start: int, end: int) -> int:
    """The smallest window that holds [start, end); the last level has one that holds everything."""
    level = 0
    while ((start >> (shift + level)) + 2) << (shift + level) < end:
        level += 1
    return int(lists.levels[level] + (start >> (shift + level)))


@compiled
def _found(lists: Shelf, shift: int, buffer: Integers, fit: int) -> int:
    """The lowest place, or that which leaves the least room, the lowest of these."""
    start, end, size, alignment = buffer[START], buffer[UNTIL], buffer[SIZE], buffer[ALIGNMENT]
    window = _window(lists, shift, start, end)
    at, hits = lists.begins[window], lists.hits
    reach, best, least = 0, -1, INFINITY
    for k in range(at, at + lists.used[window]):
        chunk = lists.directory[k]
        # Without a branch: which boxes meet the lifespan is as good as random.
        count = 0
        for slot in range(lists.lengths[chunk]):
            box = lists.chunks[chunk, slot]
            hits[count] = box
            count += int(lists.lives[box, 0] < end) & int(lists.lives[box, 1] > start)
        for hit in range(count):
            bottom = lists.spans[hits[hit], 0]
            if bottom - reach >= size:
                offset = _aligned(reach, alignment)
                room = bottom - offset
                if size <= room < least:
                    best, least = offset, room
                    if fit == FIRST or room == size:
                        return best
            reach = max(reach, lists.spans[hits[hit], 1])
    return best if best >= 0 else _aligned(reach, alignment)


@inlined
def _fresh(lists: Shelf) -> int:
    """A chunk of the pool that is not in use yet."""
    fresh = lists.counts[CHUNKS]
    lists.counts[CHUNKS] = fresh + 1
    lists.lengths[fresh] = 0
    return int(fresh)


@compiled
def _split(lists: Shelf, window: int, position: int) -> None:
    """Move the upper half of a full chunk into a fresh one after it."""
    at, used, half = lists.begins[window], lists.used[window], CHUNK // 2
    chunk, fresh = lists.directory[at + position], _fresh(lists)
    for k in range(at + used, at + position + 1, -1):
        lists.directory[k] = lists.directory[k - 1]
    lists.directory[at + position + 1] = fresh
    for slot in range(half):
        lists.chunks[fresh, slot] = lists.chunks[chunk, half + slot]
    lists.lengths[chunk], lists.lengths[fresh] = half, half
    lists.used[window] = used + 1


@inlined
def _chunk_for(lists: Shelf, window: int, bottom: int) -> int:
    """Position in the directory of the last chunk that begins at or below `bottom`; the first if none."""
    at, low, high = lists.begins[window], 0, lists.used[window]
    while high - low > 1:
        middle = (low + high) // 2
        if lists.spans[lists.chunks[lists.directory[at + middle], 0], 0] <= bottom:
            low = middle
        else:
            high = middle
    return low


@compiled
def _add(lists: Shelf, window: int, box: int) -> None:
    at, bottom = lists.begins[window], lists.spans[box, 0]
    if lists.used[window] == 0:
        lists.directory[at], lists.used[window] = _fresh(lists), 1
    position = _chunk_for(lists, window, bottom)
    if lists.lengths[lists.directory[at + position]] == CHUNK:
        _split(lists, window, position)
        position = _chunk_for(lists, window, bottom)
    chunk = lists.directory[at + position]
    slot = lists.lengths[chunk]
    lists.lengths[chunk] = slot + 1
    while slot > 0 and lists.spans[lists.chunks[chunk, slot - 1], 0] > bottom:
        lists.chunks[chunk, slot] = lists.chunks[chunk, slot - 1]
        slot -= 1
    lists.chunks[chunk, slot] = box


@compiled
def list_some(lists: Shelf, shift: int, buffers: Integers, limit: int, fit: int) -> int:
    """Place these buffers, `fit` as in `index_kernel`; how many, before one would end beyond `limit`.

    `shift`: of the first level.
    """
    for position in range(len(buffers)):
        buffer = buffers[position]
        offset = buffer[OFFSET] if fit == PINNED else _found(lists, shift, buffer, fit)
        if offset + buffer[EXACT] > limit:
            return position
        buffer[OFFSET] = offset
        start, end, box = buffer[START], buffer[UNTIL], lists.counts[BOXES]
        lists.counts[BOXES] = box + 1
        lists.lives[box, 0], lists.lives[box, 1] = start, end
        lists.spans[box, 0], lists.spans[box, 1] = offset, offset + buffer[SIZE]
        for level in range(len(lists.levels) - 1):
            step = shift + level
            first = lists.levels[level] + max(0, (start >> step) - 1)
            for window in range(first, lists.levels[level] + ((end - 1) >> step) + 1):
                _add(lists, window, box)
    return len(buffers)
