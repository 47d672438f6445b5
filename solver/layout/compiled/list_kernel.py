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

from solver.layout.compiled.index_kernel import FIRST, PINNED
from solver.layout.compiled.index_strips import ALIGNMENT, EXACT, INFINITY, OFFSET, SIZE, START, UNTIL
from solver.layout.compiled.jit import compiled, inlined
from solver.layout.model.instance import Indices, Integers

__all__ = ["CHUNK", "Shelf", "list_some"]

#: Boxes in a chunk: what an insertion moves, and what one line of a directory stands for.
CHUNK: Final = 64


class Shelf(NamedTuple):
    """Boxes by bottom, in windows. A window has a row of chunks and of the directory to itself.

    Level k has steps of 2**(k + the first shift) sections; window 0 of a level is that of its first step.
    """

    starts: Indices  # chunk x slot: first section
    ends: Indices  # chunk x slot: one past the last
    bottoms: Integers  # chunk x slot
    tops: Integers  # chunk x slot
    lengths: Integers  # chunk: boxes in it
    directory: Integers  # chunks of a window, the lowest first, from where its chunks begin
    begins: Integers  # window: its first chunk
    used: Integers  # window: chunks in use
    levels: Integers  # level: its first window, and one past its last
    hits: Integers  # slots of one chunk that meet a lifespan


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
            hits[count] = slot
            count += int(lists.starts[chunk, slot] < end) & int(lists.ends[chunk, slot] > start)
        for hit in range(count):
            slot = hits[hit]
            bottom = lists.bottoms[chunk, slot]
            if bottom - reach >= size:
                offset = _aligned(reach, alignment)
                room = bottom - offset
                if size <= room < least:
                    best, least = offset, room
                    if fit == FIRST or room == size:
                        return best
            reach = max(reach, lists.tops[chunk, slot])
    return best if best >= 0 else _aligned(reach, alignment)


@inlined
def _copy(lists: Shelf, chunk: int, slot: int, other: int, place: int) -> None:
    lists.starts[other, place], lists.ends[other, place] = lists.starts[chunk, slot], lists.ends[chunk, slot]
    lists.bottoms[other, place], lists.tops[other, place] = (
        lists.bottoms[chunk, slot],
        lists.tops[chunk, slot],
    )


@compiled
def _split(lists: Shelf, window: int, position: int) -> None:
    """Move the upper half of a full chunk into a fresh one after it."""
    at, used, half = lists.begins[window], lists.used[window], CHUNK // 2
    chunk, fresh = lists.directory[at + position], at + used
    for k in range(at + used, at + position + 1, -1):
        lists.directory[k] = lists.directory[k - 1]
    lists.directory[at + position + 1] = fresh
    for slot in range(half):
        _copy(lists, chunk, half + slot, fresh, slot)
    lists.lengths[chunk], lists.lengths[fresh] = half, half
    lists.used[window] = used + 1


@inlined
def _chunk_for(lists: Shelf, window: int, bottom: int) -> int:
    """Position in the directory of the last chunk that begins at or below `bottom`; the first if none."""
    at, low, high = lists.begins[window], 0, lists.used[window]
    while high - low > 1:
        middle = (low + high) // 2
        if lists.bottoms[lists.directory[at + middle], 0] <= bottom:
            low = middle
        else:
            high = middle
    return low


@compiled
def _add(lists: Shelf, window: int, start: int, end: int, bottom: int, top: int) -> None:
    position, at = _chunk_for(lists, window, bottom), lists.begins[window]
    if lists.lengths[lists.directory[at + position]] == CHUNK:
        _split(lists, window, position)
        position = _chunk_for(lists, window, bottom)
    chunk = lists.directory[at + position]
    slot = lists.lengths[chunk]
    lists.lengths[chunk] = slot + 1
    while slot > 0 and lists.bottoms[chunk, slot - 1] > bottom:
        _copy(lists, chunk, slot - 1, chunk, slot)
        slot -= 1
    lists.starts[chunk, slot], lists.ends[chunk, slot] = start, end
    lists.bottoms[chunk, slot], lists.tops[chunk, slot] = bottom, top


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
        start, end, top = buffer[START], buffer[UNTIL], offset + buffer[SIZE]
        for level in range(len(lists.levels) - 1):
            step = shift + level
            first = lists.levels[level] + max(0, (start >> step) - 1)
            for window in range(first, lists.levels[level] + ((end - 1) >> step) + 1):
                _add(lists, window, start, end, offset, top)
    return len(buffers)
