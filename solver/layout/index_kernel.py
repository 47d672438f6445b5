"""First fit and best fit over an index of free space, compiled; growth near n log n.

Free space is cut into *strips*: at every height, a strip reaches as far in time as it is free::

    offset
      |        ________________________
      |  s3   |  placed                |   s4          strips: [begin, end) x [bottom, top)
      |       |________________________|
      |  s2        s2        s2       s2 |  placed     a buffer with lifespan [start, end) can lie at a
      |__________________________________|             height exactly where one strip covers all of
      |  s1   |  placed   |   s5                       [start, end); a gap is a stack of such strips
      +----------------------------------- sections

Placing a buffer removes the strips of its gap and leaves what sticks out: left, right, below, above. Each
edge of a placed buffer ends at most two strips, so there are O(n) of them. They are kept in an
interval tree (Edelsbrunner, 1980): a strip hangs on the topmost node whose centre it covers, so those that
cover [start, end) hang on one path from the root. The centres are the busiest sections, where
memory is nearly full and strips are few. On a node, strips are sorted by bottom, in chunks that
know their earliest begin and latest end, so that one glance skips a chunk::

    node -> directory -> [ chunk | chunk | chunk ]        CHUNK strips each, at least one
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.layout.instance import Integers
from solver.layout.jit import compiled

__all__ = ["place_indexed"]

#: Strips in a chunk: small enough to move, large enough to be worth a skip.
CHUNK: Final = 32

#: Sections below which the tree is not split further; their strips are told apart by looking.
LEAF: Final = 8

#: Above every layout, and a granule below the largest integer so that rounding up cannot overflow.
SKY: Final = 2**63 - 1

#: Most nodes on a path: every centre lies in the middle half of its node's sections.
DEPTH: Final = 160

# Slots of `counts`: chunks used or free to take, directory entries used, capacity of the largest directory.
_FREE, _ENTRIES, _LARGEST = range(3)


class Tree(NamedTuple):
    """Nodes over sections; `centre` is -1 on a leaf. Node 0 is the root."""

    centre: Integers
    left: Integers
    right: Integers


class Shelf(NamedTuple):
    """Chunks of strips, and for each node of the tree its directory of chunks by height."""

    begin: Integers  # chunk x slot
    end: Integers
    bottom: Integers
    top: Integers
    length: Integers  # chunk: strips in it
    earliest: Integers  # chunk: the least begin
    latest: Integers  # chunk: the greatest end
    free: Integers  # stack of unused chunks
    entries: Integers  # directories, one after the other
    at: Integers  # node: where its directory begins in `entries`
    used: Integers  # node: chunks in it
    room: Integers  # node: chunks it can hold there
    counts: Integers


class Gap(NamedTuple):
    """The strips of a gap, lowest first, and the cursors of the walk that finds them."""

    node: Integers
    begin: Integers
    end: Integers
    bottom: Integers
    top: Integers
    path: Integers
    chunk: Integers
    slot: Integers
    height: Integers


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
def _tree(load: Integers) -> Tree:
    """Depth at most log(sections) / log(4/3); O(sections log sections)."""
    nodes = 2 * (len(load) // 2 + 1)
    tree = Tree(np.full(nodes, -1), np.full(nodes, -1), np.full(nodes, -1))
    stack = [(0, 0, len(load))]
    made = 1
    while len(stack) > 0:
        node, first, last = stack.pop()
        if last - first <= LEAF:
            continue
        centre = _busiest(load, first, last)
        tree.centre[node], tree.left[node], tree.right[node] = centre, made, made + 1
        stack.append((made, first, centre))
        stack.append((made + 1, centre + 1, last))
        made += 2
    return Tree(tree.centre[:made].copy(), tree.left[:made].copy(), tree.right[:made].copy())


@compiled
def _home(tree: Tree, begin: int, end: int) -> int:
    """The node on which a strip over [begin, end) hangs."""
    node = 0
    while tree.centre[node] >= 0:
        if end <= tree.centre[node]:
            node = tree.left[node]
        elif begin > tree.centre[node]:
            node = tree.right[node]
        else:
            break
    return node


@compiled
def _empty_shelf(nodes: int, chunks: int) -> Shelf:
    shape = (chunks, CHUNK)
    return Shelf(
        np.empty(shape, np.int64),
        np.empty(shape, np.int64),
        np.empty(shape, np.int64),
        np.empty(shape, np.int64),
        np.zeros(chunks, np.int64),
        np.zeros(chunks, np.int64),
        np.zeros(chunks, np.int64),
        np.arange(chunks - 1, -1, -1),
        np.empty(4 * nodes + 64, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.array([chunks, 0, 1]),
    )


@compiled
def _rows(old: Integers, rows: int) -> Integers:
    new = np.empty((rows, CHUNK), np.int64)
    new[: len(old)] = old
    return new


@compiled
def _longer(old: Integers, length: int) -> Integers:
    new = np.zeros(length, np.int64)
    new[: len(old)] = old
    return new


@compiled
def _grown(shelf: Shelf, inserts: int) -> Shelf:
    """The same with room for so many insertions, each of which may split a chunk and move a directory."""
    chunks, entries = len(shelf.length), len(shelf.entries)
    needed = inserts * (2 * shelf.counts[_LARGEST] + 4)
    if shelf.counts[_FREE] >= 2 * inserts and entries - shelf.counts[_ENTRIES] >= needed:
        return shelf
    more = 2 * chunks + 2 * inserts
    free = np.zeros(more, np.int64)
    free[: more - chunks] = np.arange(more - 1, chunks - 1, -1)
    free[more - chunks : more - chunks + shelf.counts[_FREE]] = shelf.free[: shelf.counts[_FREE]]
    shelf.counts[_FREE] += more - chunks
    return Shelf(
        _rows(shelf.begin, more),
        _rows(shelf.end, more),
        _rows(shelf.bottom, more),
        _rows(shelf.top, more),
        _longer(shelf.length, more),
        _longer(shelf.earliest, more),
        _longer(shelf.latest, more),
        free,
        _longer(shelf.entries, 2 * entries + needed),
        shelf.at,
        shelf.used,
        shelf.room,
        shelf.counts,
    )


@compiled
def _summarise(shelf: Shelf, chunk: int) -> None:
    earliest, latest = shelf.begin[chunk, 0], shelf.end[chunk, 0]
    for slot in range(1, shelf.length[chunk]):
        earliest = min(earliest, shelf.begin[chunk, slot])
        latest = max(latest, shelf.end[chunk, slot])
    shelf.earliest[chunk], shelf.latest[chunk] = earliest, latest


@compiled
def _move(shelf: Shelf, chunk: int, slot: int, other: int, place: int) -> None:
    shelf.begin[other, place] = shelf.begin[chunk, slot]
    shelf.end[other, place] = shelf.end[chunk, slot]
    shelf.bottom[other, place] = shelf.bottom[chunk, slot]
    shelf.top[other, place] = shelf.top[chunk, slot]


@compiled
def _enter(shelf: Shelf, node: int, position: int) -> int:
    """A fresh chunk in the node's directory at this position."""
    used, room = shelf.used[node], shelf.room[node]
    if used == room:
        at, room = shelf.counts[_ENTRIES], 2 * room + 1
        shelf.entries[at : at + used] = shelf.entries[shelf.at[node] : shelf.at[node] + used]
        shelf.at[node], shelf.room[node] = at, room
        shelf.counts[_ENTRIES] += room
        shelf.counts[_LARGEST] = max(shelf.counts[_LARGEST], room)
    at = shelf.at[node]
    for k in range(used, position, -1):
        shelf.entries[at + k] = shelf.entries[at + k - 1]
    shelf.counts[_FREE] -= 1
    chunk = shelf.free[shelf.counts[_FREE]]
    shelf.entries[at + position] = chunk
    shelf.used[node] = used + 1
    shelf.length[chunk] = 0
    return int(chunk)


@compiled
def _split(shelf: Shelf, node: int, position: int) -> None:
    """Move the upper half of a full chunk into a fresh one after it."""
    chunk = shelf.entries[shelf.at[node] + position]
    fresh = _enter(shelf, node, position + 1)
    half = CHUNK // 2
    for slot in range(half, CHUNK):
        _move(shelf, chunk, slot, fresh, slot - half)
    shelf.length[chunk], shelf.length[fresh] = half, CHUNK - half
    _summarise(shelf, chunk)
    _summarise(shelf, fresh)


@compiled
def _chunk_for(shelf: Shelf, node: int, bottom: int) -> int:
    """Position in the directory of the last chunk that begins at or below `bottom`; the first if none."""
    at, low, high = shelf.at[node], 0, shelf.used[node]
    while high - low > 1:
        middle = (low + high) // 2
        if shelf.bottom[shelf.entries[at + middle], 0] <= bottom:
            low = middle
        else:
            high = middle
    return low


@compiled
def _insert(shelf: Shelf, tree: Tree, begin: int, end: int, bottom: int, top: int) -> None:
    node = _home(tree, begin, end)
    if shelf.used[node] == 0:
        _enter(shelf, node, 0)
    position = _chunk_for(shelf, node, bottom)
    if shelf.length[shelf.entries[shelf.at[node] + position]] == CHUNK:
        _split(shelf, node, position)
        position = _chunk_for(shelf, node, bottom)
    chunk = shelf.entries[shelf.at[node] + position]
    slot = shelf.length[chunk]
    while slot > 0 and shelf.bottom[chunk, slot - 1] > bottom:
        _move(shelf, chunk, slot - 1, chunk, slot)
        slot -= 1
    shelf.begin[chunk, slot], shelf.end[chunk, slot] = begin, end
    shelf.bottom[chunk, slot], shelf.top[chunk, slot] = bottom, top
    shelf.length[chunk] += 1
    if shelf.length[chunk] == 1:
        shelf.earliest[chunk], shelf.latest[chunk] = begin, end
    else:
        shelf.earliest[chunk] = min(shelf.earliest[chunk], begin)
        shelf.latest[chunk] = max(shelf.latest[chunk], end)


@compiled
def _slot_of(shelf: Shelf, chunk: int, begin: int, bottom: int) -> int:
    for slot in range(shelf.length[chunk]):
        if shelf.bottom[chunk, slot] == bottom and shelf.begin[chunk, slot] == begin:
            return slot
    return -1


@compiled
def _find(shelf: Shelf, node: int, begin: int, bottom: int) -> tuple[int, int]:
    """Directory position and slot of a strip that is there; equal bottoms may reach into earlier chunks."""
    position = _chunk_for(shelf, node, bottom)
    slot = _slot_of(shelf, shelf.entries[shelf.at[node] + position], begin, bottom)
    while slot < 0:
        position -= 1
        slot = _slot_of(shelf, shelf.entries[shelf.at[node] + position], begin, bottom)
    return position, slot


@compiled
def _remove(shelf: Shelf, node: int, begin: int, bottom: int) -> None:
    position, slot = _find(shelf, node, begin, bottom)
    at = shelf.at[node]
    chunk = shelf.entries[at + position]
    for k in range(slot + 1, shelf.length[chunk]):
        _move(shelf, chunk, k, chunk, k - 1)
    shelf.length[chunk] -= 1
    if shelf.length[chunk] > 0:
        _summarise(shelf, chunk)
        return
    for k in range(position + 1, shelf.used[node]):
        shelf.entries[at + k - 1] = shelf.entries[at + k]
    shelf.used[node] -= 1
    shelf.free[shelf.counts[_FREE]] = chunk
    shelf.counts[_FREE] += 1


@compiled
def _advance(shelf: Shelf, gap: Gap, k: int, start: int, end: int) -> None:
    """Move the k-th cursor to its next strip that covers [start, end); its height is SKY if there is none."""
    node, position, slot = gap.path[k], gap.chunk[k], gap.slot[k]
    at, used = shelf.at[node], shelf.used[node]
    while position < used:
        chunk = shelf.entries[at + position]
        if shelf.earliest[chunk] <= start and shelf.latest[chunk] >= end:
            while slot < shelf.length[chunk]:
                if shelf.begin[chunk, slot] <= start and shelf.end[chunk, slot] >= end:
                    gap.chunk[k], gap.slot[k] = position, slot
                    gap.height[k] = shelf.bottom[chunk, slot]
                    return
                slot += 1
        position, slot = position + 1, 0
    gap.height[k] = SKY


@compiled
def _open(tree: Tree, shelf: Shelf, gap: Gap, start: int, end: int) -> int:
    """Put a cursor on every node of the path that has strips over [start, end); how many."""
    count, node = 0, 0
    while node >= 0:
        if shelf.used[node] > 0:
            gap.path[count], gap.chunk[count], gap.slot[count] = node, 0, 0
            _advance(shelf, gap, count, start, end)
            if gap.height[count] < SKY:
                count += 1
        centre = tree.centre[node]
        if centre < 0 or start <= centre < end:
            break
        node = tree.left[node] if end <= centre else tree.right[node]
    return count


@compiled
def _next(shelf: Shelf, gap: Gap, cursors: int, strips: int, start: int, end: int) -> int:
    """Append the lowest strip under a cursor to the gap, or begin a new gap with it; its strips now."""
    low = 0
    for k in range(1, cursors):
        if gap.height[k] < gap.height[low]:
            low = k
    chunk = shelf.entries[shelf.at[gap.path[low]] + gap.chunk[low]]
    slot = gap.slot[low]
    if strips > 0 and gap.top[strips - 1] != shelf.bottom[chunk, slot]:
        strips = 0
    gap.node[strips] = gap.path[low]
    gap.begin[strips], gap.end[strips] = shelf.begin[chunk, slot], shelf.end[chunk, slot]
    gap.bottom[strips], gap.top[strips] = shelf.bottom[chunk, slot], shelf.top[chunk, slot]
    gap.slot[low] = slot + 1
    _advance(shelf, gap, low, start, end)
    return strips + 1


@compiled
def _wider(gap: Gap) -> Gap:
    length = 2 * len(gap.node)
    return Gap(
        _longer(gap.node, length),
        _longer(gap.begin, length),
        _longer(gap.end, length),
        _longer(gap.bottom, length),
        _longer(gap.top, length),
        gap.path,
        gap.chunk,
        gap.slot,
        gap.height,
    )


@compiled
def _empty_gap() -> Gap:
    return Gap(
        np.zeros(64, np.int64),
        np.zeros(64, np.int64),
        np.zeros(64, np.int64),
        np.zeros(64, np.int64),
        np.zeros(64, np.int64),
        np.zeros(DEPTH, np.int64),
        np.zeros(DEPTH, np.int64),
        np.zeros(DEPTH, np.int64),
        np.zeros(DEPTH, np.int64),
    )


@compiled
def _aligned(bottom: int, alignment: int) -> int:
    return (bottom + (alignment - 1)) & -alignment


@compiled
def _lowest(
    tree: Tree, shelf: Shelf, gap: Gap, start: int, end: int, size: int, alignment: int, floor: int
) -> tuple[Gap, int, int]:
    """The gap with the lowest aligned place for `size` at or above `floor`: its strips and that place."""
    cursors, strips = _open(tree, shelf, gap, start, end), 0
    while True:
        if strips == len(gap.node):
            gap = _wider(gap)
        strips = _next(shelf, gap, cursors, strips, start, end)
        offset = _aligned(max(gap.bottom[0], floor), alignment)
        if gap.top[strips - 1] - offset >= size:
            return gap, strips, offset


@compiled
def _tightest(
    tree: Tree, shelf: Shelf, gap: Gap, start: int, end: int, size: int, alignment: int
) -> int:
    """The place that leaves the least room above itself in its gap; the lowest of these."""
    cursors, strips = _open(tree, shelf, gap, start, end), 0
    best, least, ceiling, bottom = -1, SKY, -1, 0
    while ceiling < SKY:
        strips = min(strips, 1)
        strips = _next(shelf, gap, cursors, strips, start, end)
        here = gap.bottom[strips - 1]
        if here != ceiling:
            bottom = here
        ceiling = gap.top[strips - 1]
        gap.top[0] = ceiling
        closed = True
        for k in range(cursors):
            closed = closed and gap.height[k] != ceiling
        room = ceiling - _aligned(bottom, alignment)
        if (closed or ceiling == SKY) and size <= room and room < least:
            best, least = _aligned(bottom, alignment), room
    return best


@compiled
def _fill(tree: Tree, shelf: Shelf, gap: Gap, strips: int, start: int, end: int, low: int, high: int) -> None:
    """Take [start, end) x [low, high) out of the gap's strips and put back what sticks out."""
    left_begin, left_bottom, left_top = -1, 0, 0
    right_end, right_bottom, right_top = -1, 0, 0
    for k in range(strips):
        begin, stop, bottom, top = gap.begin[k], gap.end[k], gap.bottom[k], gap.top[k]
        if top <= low or bottom >= high:
            continue
        _remove(shelf, gap.node[k], begin, bottom)
        if bottom < low:
            _insert(shelf, tree, begin, stop, bottom, low)
        if top > high:
            _insert(shelf, tree, begin, stop, high, top)
        bottom, top = max(bottom, low), min(top, high)
        if begin != left_begin:
            if 0 <= left_begin < start:
                _insert(shelf, tree, left_begin, start, left_bottom, left_top)
            left_begin, left_bottom = begin, bottom
        left_top = top
        if stop != right_end:
            if right_end > end:
                _insert(shelf, tree, end, right_end, right_bottom, right_top)
            right_end, right_bottom = stop, bottom
        right_top = top
    if 0 <= left_begin < start:
        _insert(shelf, tree, left_begin, start, left_bottom, left_top)
    if right_end > end:
        _insert(shelf, tree, end, right_end, right_bottom, right_top)


@compiled
def place_indexed(
    start: Integers,
    end: Integers,
    size: Integers,
    exact: Integers,
    alignment: Integers,
    pins: Integers,
    load: Integers,
    order: Integers,
    limit: int,
    best_fit: bool,
    stop: Integers,
) -> tuple[Integers, int]:
    """Offsets (-1 where not placed), and how far into the order it got within `limit`.

    Pinned buffers (`pins` >= 0) first. `load` is any weight of the sections; it shapes the tree. The walk
    ends early when another thread makes ``stop[0]`` other than 0.
    """
    tree, gap = _tree(load), _empty_gap()
    shelf = _grown(_empty_shelf(len(tree.centre), 64), 2)
    _insert(shelf, tree, 0, len(load), 0, SKY)
    offsets = pins.copy()
    for i in np.flatnonzero(pins >= 0):
        gap, strips, offset = _lowest(tree, shelf, gap, start[i], end[i], size[i], 1, pins[i])
        shelf = _grown(shelf, 4 * strips + 4)
        _fill(tree, shelf, gap, strips, start[i], end[i], offset, offset + size[i])
    for count in range(len(order)):
        i = order[count]
        if pins[i] >= 0:
            continue
        floor = 0
        if best_fit:
            floor = _tightest(tree, shelf, gap, start[i], end[i], size[i], alignment[i])
        gap, strips, offset = _lowest(tree, shelf, gap, start[i], end[i], size[i], alignment[i], floor)
        if offset + exact[i] > limit or stop[0] != 0:
            return offsets, count
        offsets[i] = offset
        shelf = _grown(shelf, 4 * strips + 4)
        _fill(tree, shelf, gap, strips, start[i], end[i], offset, offset + size[i])
    return offsets, len(order)
