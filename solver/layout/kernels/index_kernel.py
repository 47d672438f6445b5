"""First fit and best fit over the index of free space, compiled; growth near n log n.

The strips that cover a lifespan hang on one path of the tree. A cursor on each node of the path gives
them from the lowest to the highest; those that touch make a free block.
"""

from __future__ import annotations

from solver.layout.kernels.index_strips import (
    ALIGNMENT,
    AT,
    BEGIN,
    BOTTOM,
    CENTRE,
    EARLIEST,
    END,
    ENTRIES,
    EXACT,
    FREE,
    HEIGHT,
    HOME,
    INFINITY,
    LATEST,
    LEFT,
    LENGTH,
    NODE,
    OFFSET,
    POSITION,
    RIGHT,
    SIZE,
    SLOT,
    START,
    TOP,
    UNTIL,
    USED,
    WHY,
    Shelf,
    insert,
    more_chunks,
    more_entries,
    trim,
)
from solver.layout.model.instance import Integers
from solver.native import compiled, inlined

__all__ = [
    "BEST", "DONE", "FIRST", "LIMIT", "PINNED", "SHORT_OF_CHUNKS", "SHORT_OF_ENTRIES", "SHORT_OF_STRIPS",
    "place_some",
]  # fmt: skip

# How to choose among free blocks, and why a walk ended.
FIRST, BEST, PINNED = range(3)
DONE, LIMIT, SHORT_OF_STRIPS, SHORT_OF_CHUNKS, SHORT_OF_ENTRIES = range(5)


@inlined
def _advance(shelf: Shelf, cursors: Integers, k: int, start: int, end: int) -> None:
    """Move the k-th cursor to its next strip that covers [start, end); to the height INFINITY without one."""
    node, position, slot = cursors[k, NODE], cursors[k, POSITION], cursors[k, SLOT]
    at, used = shelf.nodes[node, AT], shelf.nodes[node, USED]
    chunks, strips = shelf.chunks, shelf.strips
    while position < used:
        chunk = shelf.entries[at + position]
        if chunks[chunk, EARLIEST] <= start and chunks[chunk, LATEST] >= end:
            length = chunks[chunk, LENGTH]
            while slot < length:
                if strips[chunk, slot, BEGIN] <= start and strips[chunk, slot, END] >= end:
                    cursors[k, POSITION], cursors[k, SLOT] = position, slot
                    cursors[k, HEIGHT] = strips[chunk, slot, BOTTOM]
                    return
                slot += 1
        position, slot = position + 1, 0
    cursors[k, HEIGHT] = INFINITY


@compiled
def _open(shelf: Shelf, cursors: Integers, start: int, end: int) -> int:
    """Put a cursor on every node of the path that has strips over [start, end); how many."""
    nodes, count, node = shelf.nodes, 0, 0
    while True:
        if nodes[node, USED] > 0:
            cursors[count, NODE], cursors[count, POSITION], cursors[count, SLOT] = node, 0, 0
            _advance(shelf, cursors, count, start, end)
            if cursors[count, HEIGHT] < INFINITY:
                count += 1
        centre = nodes[node, CENTRE]
        if centre < 0 or start <= centre < end:
            return count
        node = nodes[node, LEFT] if end <= centre else nodes[node, RIGHT]


@compiled
def _next(shelf: Shelf, cursors: Integers, count: int, strip: Integers, start: int, end: int) -> bool:
    """Copy the lowest strip under a cursor to `strip`; false when there is none."""
    low = -1
    for k in range(count):
        if low < 0 or cursors[k, HEIGHT] < cursors[low, HEIGHT]:
            low = k
    if low < 0 or cursors[low, HEIGHT] == INFINITY:
        return False
    node, slot = cursors[low, NODE], cursors[low, SLOT]
    chunk = shelf.entries[shelf.nodes[node, AT] + cursors[low, POSITION]]
    for field in range(4):
        strip[field] = shelf.strips[chunk, slot, field]
    strip[HOME] = node
    cursors[low, SLOT] = slot + 1
    _advance(shelf, cursors, low, start, end)
    return True


@inlined
def _aligned(bottom: int, alignment: int) -> int:
    return (bottom + (alignment - 1)) & -alignment


@compiled
def _lowest(shelf: Shelf, block: Integers, buffer: Integers, least: int) -> tuple[int, int]:
    """How many strips the lowest free block with an aligned place at or above `least` has, and that place.

    The number is negative when `block` is too short for them.
    """
    start, end, size, alignment = buffer[START], buffer[UNTIL], buffer[SIZE], buffer[ALIGNMENT]
    cursors = shelf.cursors
    count, strips = _open(shelf, cursors, start, end), 0
    while strips < len(block):
        _next(shelf, cursors, count, block[strips], start, end)
        if strips > 0 and block[strips, BOTTOM] != block[strips - 1, TOP]:
            for field in range(5):
                block[0, field] = block[strips, field]
            strips = 0
        strips += 1
        offset = _aligned(max(block[0, BOTTOM], least), alignment)
        if block[strips - 1, TOP] - offset >= size:
            return strips, offset
    return -1, 0


@compiled
def _tightest(shelf: Shelf, strip: Integers, buffer: Integers) -> int:
    """The place that leaves the least room in its free block, the lowest of these."""
    start, end, size, alignment = buffer[START], buffer[UNTIL], buffer[SIZE], buffer[ALIGNMENT]
    count = _open(shelf, shelf.cursors, start, end)
    best, least, bottom, top, more = -1, INFINITY, -1, -1, True
    while more:
        more = _next(shelf, shelf.cursors, count, strip, start, end)
        if not more or strip[BOTTOM] != top:
            offset = _aligned(bottom, alignment)
            if bottom >= 0 and size <= top - offset and (best < 0 or top - offset < least):
                best, least = offset, top - offset
            bottom = strip[BOTTOM]
        top = strip[TOP]
    return best


@compiled
def _fill(shelf: Shelf, block: Integers, strips: int, start: int, end: int, low: int, high: int) -> None:
    """Take [start, end) x [low, high) out of a free block's strips and put back what sticks out."""
    left, left_bottom, left_top = -1, 0, 0
    right, right_bottom, right_top = -1, 0, 0
    for k in range(strips):
        begin, stop, bottom, top = block[k, BEGIN], block[k, END], block[k, BOTTOM], block[k, TOP]
        if top <= low or bottom >= high:
            continue
        trim(shelf, block[k], low, high)
        bottom, top = max(bottom, low), min(top, high)
        if begin != left:
            if 0 <= left < start:
                insert(shelf, left, start, left_bottom, left_top)
            left, left_bottom = begin, bottom
        left_top = top
        if stop != right:
            if right > end:
                insert(shelf, end, right, right_bottom, right_top)
            right, right_bottom = stop, bottom
        right_top = top
    if 0 <= left < start:
        insert(shelf, left, start, left_bottom, left_top)
    if right > end:
        insert(shelf, end, right, right_bottom, right_top)


@compiled
def place_some(shelf: Shelf, block: Integers, buffers: Integers, first: int, limit: int, fit: int) -> int:
    """Place these buffers from position `first` on; the position it got to.

    `fit` is FIRST, BEST or PINNED (each at its offset). Why it ended is left in ``counts[WHY]``: DONE, LIMIT
    (the next one would end beyond `limit`), or what to give more of.
    """
    counts = shelf.counts
    for position in range(first, len(buffers)):
        buffer = buffers[position]
        least = buffer[OFFSET] if fit == PINNED else 0
        if fit == BEST:
            least = _tightest(shelf, block[0], buffer)
        strips, offset = _lowest(shelf, block, buffer, least)
        # Every strip may stick out on the left and on the right, and one of them above.
        chunks = more_chunks(shelf, 2 * strips + 2)
        counts[WHY] = DONE
        if strips < 0:
            counts[WHY] = SHORT_OF_STRIPS
        elif counts[FREE] < chunks:
            counts[WHY] = SHORT_OF_CHUNKS
        elif len(shelf.entries) - counts[ENTRIES] < more_entries(shelf, chunks):
            counts[WHY] = SHORT_OF_ENTRIES
        elif offset + buffer[EXACT] > limit:
            counts[WHY] = LIMIT
        if counts[WHY] != DONE:
            return position
        buffer[OFFSET] = offset
        _fill(shelf, block, strips, buffer[START], buffer[UNTIL], offset, offset + buffer[SIZE])
    counts[WHY] = DONE
    return len(buffers)
