"""An index of free space, compiled: strips in an interval tree.

Free space is cut into *strips*: at every height, a strip reaches as far in time as it is free::

    offset
      |        ________________________
      |  s3   |  placed                |   s4          strips: [begin, end) x [bottom, top)
      |       |________________________|
      |  s2        s2        s2       s2 |  placed     a buffer with lifespan [start, end) can lie at a
      |__________________________________|             height exactly where one strip covers all of
      |  s1   |  placed   |   s5                       [start, end); a free block is a stack of them
      +----------------------------------- sections

Placing a buffer removes the strips of its block and leaves what sticks out: left, right, below, above. Each
edge of a placed buffer ends at most two strips, so there are O(n) of them. They are kept in an
interval tree (Edelsbrunner, 1980): a strip hangs on the topmost node whose centre it covers, so those that
cover [start, end) hang on one path from the root. The centres are the busiest sections, where
memory is nearly full and strips are few. On a node, strips are sorted by bottom, in chunks that
know their earliest begin and latest end, so that one glance skips a chunk::

    node -> directory -> [ chunk | chunk | chunk ]        CHUNK strips each, at least one

The strips that cover a lifespan hang on one path of the tree. A cursor on each node of the path gives them
from the lowest to the highest; those that touch make a free block.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from solver.layout.model.instance import Integers
from solver.native import compiled, inlined

__all__ = [
    "BEST", "CHUNK", "DEPTH", "DONE", "FIRST", "FREE", "INFINITY", "OFFSET", "PINNED", "SHORT_OF_CHUNKS",
    "SHORT_OF_ENTRIES", "SHORT_OF_STRIPS", "WHY", "Shelf", "grow_tree", "insert", "place_some",
]  # fmt: skip

#: Strips in a chunk: small enough to move, large enough to be worth a skip.
CHUNK: Final = 16

#: Sections below which the tree is not split further; their strips are told apart by looking.
LEAF: Final = 32

#: Above every layout, and a granule below the largest integer so that rounding up cannot overflow.
INFINITY: Final = 2**63 - 1

#: Most nodes on a path: every centre lies in the middle half of its node's sections.
DEPTH: Final = 160

# Fields of a strip.
BEGIN, END, BOTTOM, TOP = range(4)
# Fields of a chunk: strips in it, the least begin, the greatest end.
LENGTH, EARLIEST, LATEST = range(3)
# Fields of a node: centre (-1 on a leaf), children; directory: where it begins, chunks in it, room.
CENTRE, LEFT, RIGHT, AT, USED, ROOM = range(6)
# Fields of a cursor: node, position in its directory, slot in that chunk, bottom of the strip there.
NODE, POSITION, SLOT, HEIGHT = range(4)
# Field of a strip in a free block, after those of a strip: the node it hangs on.
HOME: Final = 4
# Fields of a buffer. Padding to the smallest alignment is part of the size, not of the exact size.
START, UNTIL, SIZE, EXACT, ALIGNMENT, OFFSET = range(6)
# Counters: chunks free to take, directory entries used; why a walk ended.
FREE, ENTRIES, WHY = range(3)


class Shelf(NamedTuple):
    """The tree, its directories, and their chunks of strips. Few arrays: handing one over costs time."""

    nodes: Integers  # node x field; node 0 is the root
    entries: Integers  # directories, one after the other, of chunks by height
    chunks: Integers  # chunk x field
    strips: Integers  # chunk x slot x field
    free: Integers  # stack of unused chunks
    cursors: Integers  # one for each node on a path
    counts: Integers


@compiled
def _busiest(load: Integers, first: int, last: int) -> int:
    """The section of the largest load in the middle half of [first, last), the most central of equals."""
    quarter = (last - first) // 4
    middle = (first + last) // 2
    best = middle
    for step in range(1, quarter + 1):
        if load[middle - step] > load[best]:
            best = middle - step
        if middle + step < last - quarter and load[middle + step] > load[best]:
            best = middle + step
    return best


@compiled
def grow_tree(load: Integers, nodes: Integers, stack: Integers) -> int:
    """Write the nodes over all sections; how many. Depth at most log(sections) / log(4/3).

    `nodes` (2 * sections // 2 + 2 rows, zeros) and `stack` (as many rows of three) are given; O(S log S).
    """
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, len(load)
    held, made = 1, 1
    while held > 0:
        held -= 1
        node, first, last = stack[held, 0], stack[held, 1], stack[held, 2]
        nodes[node, CENTRE] = -1
        if last - first <= LEAF:
            continue
        centre = _busiest(load, first, last)
        nodes[node, CENTRE], nodes[node, LEFT], nodes[node, RIGHT] = centre, made, made + 1
        stack[held, 0], stack[held, 1], stack[held, 2] = made, first, centre
        stack[held + 1, 0], stack[held + 1, 1], stack[held + 1, 2] = made + 1, centre + 1, last
        held, made = held + 2, made + 2
    return made


@inlined
def _home(nodes: Integers, begin: int, end: int) -> int:
    """The node on which a strip over [begin, end) hangs."""
    node = 0
    while nodes[node, CENTRE] >= 0:
        if end <= nodes[node, CENTRE]:
            node = nodes[node, LEFT]
        elif begin > nodes[node, CENTRE]:
            node = nodes[node, RIGHT]
        else:
            break
    return node


@inlined
def _more_chunks(shelf: Shelf, inserts: int) -> int:
    """How many chunks so many insertions take at most.

    Proof: an insertion takes one at most, for an empty node or by a split. Add up what chunks hold beyond a
    half: a split makes two halves of a full one and takes half a chunk from that sum, an insertion adds 1. So
    there is at most one split for each chunk in use, and one for each half of a chunk inserted.
    """
    splits = len(shelf.chunks) - shelf.counts[FREE] + inserts // (CHUNK // 2)
    return int(min(inserts, splits + len(shelf.nodes)))


@inlined
def _more_entries(shelf: Shelf, chunks: int) -> int:
    """How many entries are used when directories move to take in so many chunks, at most.

    Proof: m chunks more in a directory with room for r move it to 2r + 1 entries, and so on: to less than
    2(r + m) + 2 the last time, and to less than half as many each time before. All rooms are at most ENTRIES.
    """
    return int(4 * (shelf.counts[ENTRIES] + chunks) + 4 * chunks)


@inlined
def _summarise(shelf: Shelf, chunk: int) -> None:
    earliest, latest = shelf.strips[chunk, 0, BEGIN], shelf.strips[chunk, 0, END]
    for slot in range(1, shelf.chunks[chunk, LENGTH]):
        earliest = min(earliest, shelf.strips[chunk, slot, BEGIN])
        latest = max(latest, shelf.strips[chunk, slot, END])
    shelf.chunks[chunk, EARLIEST], shelf.chunks[chunk, LATEST] = earliest, latest


@inlined
def _move(strips: Integers, chunk: int, slot: int, other: int, place: int) -> None:
    for field in range(4):
        strips[other, place, field] = strips[chunk, slot, field]


@compiled
def _enter(shelf: Shelf, node: int, position: int) -> int:
    """A fresh chunk in the node's directory at this position."""
    nodes, entries, counts = shelf.nodes, shelf.entries, shelf.counts
    used, room = nodes[node, USED], nodes[node, ROOM]
    if used == room:
        at, room = counts[ENTRIES], 2 * room + 1
        for k in range(used):
            entries[at + k] = entries[nodes[node, AT] + k]
        nodes[node, AT], nodes[node, ROOM] = at, room
        counts[ENTRIES] += room
    at = nodes[node, AT]
    for k in range(used, position, -1):
        entries[at + k] = entries[at + k - 1]
    counts[FREE] -= 1
    chunk = shelf.free[counts[FREE]]
    entries[at + position] = chunk
    nodes[node, USED] = used + 1
    shelf.chunks[chunk, LENGTH] = 0
    return int(chunk)


@compiled
def _split(shelf: Shelf, node: int, position: int) -> None:
    """Move the upper half of a full chunk into a fresh one after it."""
    chunk = shelf.entries[shelf.nodes[node, AT] + position]
    fresh = _enter(shelf, node, position + 1)
    half = CHUNK // 2
    for slot in range(half, CHUNK):
        _move(shelf.strips, chunk, slot, fresh, slot - half)
    shelf.chunks[chunk, LENGTH], shelf.chunks[fresh, LENGTH] = half, CHUNK - half
    _summarise(shelf, chunk)
    _summarise(shelf, fresh)


@inlined
def _chunk_for(shelf: Shelf, node: int, bottom: int) -> int:
    """Position in the directory of the last chunk that begins at or below `bottom`; the first if none."""
    at, low, high = shelf.nodes[node, AT], 0, shelf.nodes[node, USED]
    while high - low > 1:
        middle = (low + high) // 2
        if shelf.strips[shelf.entries[at + middle], 0, BOTTOM] <= bottom:
            low = middle
        else:
            high = middle
    return low


@compiled
def insert(shelf: Shelf, begin: int, end: int, bottom: int, top: int) -> None:
    nodes, chunks, strips = shelf.nodes, shelf.chunks, shelf.strips
    node = _home(nodes, begin, end)
    if nodes[node, USED] == 0:
        _enter(shelf, node, 0)
    position = _chunk_for(shelf, node, bottom)
    if chunks[shelf.entries[nodes[node, AT] + position], LENGTH] == CHUNK:
        _split(shelf, node, position)
        position = _chunk_for(shelf, node, bottom)
    chunk = shelf.entries[nodes[node, AT] + position]
    slot = chunks[chunk, LENGTH]
    if slot == 0:
        chunks[chunk, EARLIEST], chunks[chunk, LATEST] = begin, end
    chunks[chunk, LENGTH] += 1
    chunks[chunk, EARLIEST] = min(chunks[chunk, EARLIEST], begin)
    chunks[chunk, LATEST] = max(chunks[chunk, LATEST], end)
    while slot > 0 and strips[chunk, slot - 1, BOTTOM] > bottom:
        _move(strips, chunk, slot - 1, chunk, slot)
        slot -= 1
    strips[chunk, slot, BEGIN], strips[chunk, slot, END] = begin, end
    strips[chunk, slot, BOTTOM], strips[chunk, slot, TOP] = bottom, top


@inlined
def _slot_of(shelf: Shelf, chunk: int, begin: int, bottom: int) -> int:
    for slot in range(shelf.chunks[chunk, LENGTH]):
        if shelf.strips[chunk, slot, BOTTOM] == bottom and shelf.strips[chunk, slot, BEGIN] == begin:
            return slot
    return -1


@compiled
def _find(shelf: Shelf, node: int, begin: int, bottom: int) -> tuple[int, int]:
    """Directory position and slot of a strip that is there; equal bottoms may reach into earlier chunks."""
    at, position, slot = shelf.nodes[node, AT], _chunk_for(shelf, node, bottom) + 1, -1
    while slot < 0:
        position -= 1
        slot = _slot_of(shelf, shelf.entries[at + position], begin, bottom)
    return position, slot


@compiled
def _remove(shelf: Shelf, node: int, position: int, slot: int) -> None:
    nodes, entries = shelf.nodes, shelf.entries
    at = nodes[node, AT]
    chunk = entries[at + position]
    for k in range(slot + 1, shelf.chunks[chunk, LENGTH]):
        _move(shelf.strips, chunk, k, chunk, k - 1)
    shelf.chunks[chunk, LENGTH] -= 1
    if shelf.chunks[chunk, LENGTH] > 0:
        _summarise(shelf, chunk)
        return
    for k in range(position + 1, nodes[node, USED]):
        entries[at + k - 1] = entries[at + k]
    nodes[node, USED] -= 1
    shelf.free[shelf.counts[FREE]] = chunk
    shelf.counts[FREE] += 1


@compiled
def _trim(shelf: Shelf, strip: Integers, low: int, high: int) -> None:
    """Cut heights [low, high) out of one strip.

    What remains above keeps its slot where the strips of a node are disjoint in height: not on a leaf.
    """
    node, bottom, top = strip[HOME], strip[BOTTOM], strip[TOP]
    position, slot = _find(shelf, node, strip[BEGIN], bottom)
    chunk = shelf.entries[shelf.nodes[node, AT] + position]
    if bottom < low:
        shelf.strips[chunk, slot, TOP] = low
        if top > high:
            insert(shelf, strip[BEGIN], strip[END], high, top)
    elif top > high and shelf.nodes[node, CENTRE] >= 0:
        shelf.strips[chunk, slot, BOTTOM] = high
    else:
        _remove(shelf, node, position, slot)
        if top > high:
            insert(shelf, strip[BEGIN], strip[END], high, top)


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
        _trim(shelf, block[k], low, high)
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
        chunks = _more_chunks(shelf, 2 * strips + 2)
        counts[WHY] = DONE
        if strips < 0:
            counts[WHY] = SHORT_OF_STRIPS
        elif counts[FREE] < chunks:
            counts[WHY] = SHORT_OF_CHUNKS
        elif len(shelf.entries) - counts[ENTRIES] < _more_entries(shelf, chunks):
            counts[WHY] = SHORT_OF_ENTRIES
        elif offset + buffer[EXACT] > limit:
            counts[WHY] = LIMIT
        if counts[WHY] != DONE:
            return position
        buffer[OFFSET] = offset
        _fill(shelf, block, strips, buffer[START], buffer[UNTIL], offset, offset + buffer[SIZE])
    counts[WHY] = DONE
    return len(buffers)
