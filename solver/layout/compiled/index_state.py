"""Memory of the index of free space, and what its fields and answers are called; see `index_strips`."""

from __future__ import annotations

from typing import Final, NamedTuple

from solver.layout.model.instance import Integers

__all__ = [
    "ALIGNMENT",
    "AT",
    "BEGIN",
    "BEST",
    "BOTTOM",
    "CENTRE",
    "CHUNK",
    "DEPTH",
    "DONE",
    "EARLIEST",
    "END",
    "ENTRIES",
    "EXACT",
    "FIRST",
    "FREE",
    "HEIGHT",
    "HOME",
    "INFINITY",
    "LATEST",
    "LEAF",
    "LEFT",
    "LENGTH",
    "LIMIT",
    "NODE",
    "OFFSET",
    "PINNED",
    "POSITION",
    "RIGHT",
    "ROOM",
    "SHORT_OF_CHUNKS",
    "SHORT_OF_ENTRIES",
    "SHORT_OF_STRIPS",
    "SIZE",
    "SLOT",
    "START",
    "TOP",
    "UNTIL",
    "USED",
    "WHY",
    "Shelf",
]

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


# How to choose among free blocks, and why a walk ended.
FIRST, BEST, PINNED = range(3)
DONE, LIMIT, SHORT_OF_STRIPS, SHORT_OF_CHUNKS, SHORT_OF_ENTRIES = range(5)
