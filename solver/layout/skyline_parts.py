"""Where a placement cuts a part of the compiled search into pieces, and the agenda of what is left.

    items    | part 0 ------- | part 1 -- | part 2 ... |      every part owns a range of a permutation
    agenda   HEAD -> 1 -> 0 -> 2                              linked: fewest buffers first

A range is only permuted within itself, so the part of an earlier choice still owns its own buffers
when the search comes back to it, in whatever order.
"""

from __future__ import annotations

from solver.layout.jit import inlined
from solver.layout.skyline_board import (
    DECOMPOSE,
    FIRST,
    HEAD,
    HIGH,
    LAST,
    LOW,
    NEXT,
    NONE,
    PARENT,
    PART_COUNT,
    REST,
    RULES,
    Board,
)

__all__ = ["divide", "same_part", "split"]


@inlined
def divide(b: Board, frame: int, i: int) -> None:
    """The parts left after buffer i has been placed: it can only have broken what it alone joined."""
    f = b.frames
    low, high = f[frame, LOW], f[frame, HIGH] - 1
    whole = True
    if b.counters[RULES] & DECOMPOSE:
        for t in range(b.start[i] + 1, b.end[i]):
            whole = whole and b.crossing[t] > 0
    if whole and low < high:
        same_part(b, frame, low, high)
    else:
        split(b, f[frame, FIRST], f[frame, LAST], low, high, frame + 1, f[frame, REST])


@inlined
def same_part(b: Board, frame: int, low: int, high: int) -> None:
    """The part of a choice once more, with what is left in it."""
    f, p, part = b.frames, b.parts, b.counters[PART_COUNT]
    p[part, FIRST] = f[frame, FIRST]
    p[part, LAST] = f[frame, LAST]
    p[part, LOW] = low
    p[part, HIGH] = high
    p[part, PARENT] = frame + 1
    p[part, NEXT] = f[frame, REST]
    b.counters[PART_COUNT] = part + 1
    b.counters[HEAD] = part


@inlined
def split(b: Board, first: int, last: int, low: int, high: int, parent: int, rest: int) -> None:
    """One part for each stretch of sections that unplaced buffers join; smallest in front of `rest`."""
    p, c = b.parts, b.counters
    base = c[PART_COUNT]
    count = outline_parts(b, first, last, base)
    for k in range(low, high):
        b.scratch[k] = b.items[k]
        p[b.label[b.start[b.items[k]]], HIGH] += 1
    at = low
    for q in range(base, base + count):
        p[q, LOW] = at
        at += p[q, HIGH]
        p[q, HIGH] = p[q, LOW]
    for k in range(low, high):
        i = b.scratch[k]
        q = b.label[b.start[i]]
        b.items[p[q, HIGH]] = i
        b.place[i] = p[q, HIGH]
        p[q, HIGH] += 1
    c[PART_COUNT] = base + count
    c[HEAD] = rest
    for q in range(base, base + count):
        p[q, PARENT] = parent
        link(b, q, rest)


@inlined
def outline_parts(b: Board, first: int, last: int, base: int) -> int:
    """Numbers the stretches from `base` on, and labels their sections; how many there are."""
    p, count, joined = b.parts, 0, False
    for t in range(first, last):
        if b.live[t] == 0:
            joined = False
            continue
        if not joined or b.crossing[t] == 0:
            p[base + count, FIRST] = t
            p[base + count, HIGH] = 0
            count += 1
        joined = True
        p[base + count - 1, LAST] = t + 1
        b.label[t] = base + count - 1
    return count


@inlined
def link(b: Board, q: int, rest: int) -> None:
    """Into the agenda before `rest`, in the order of the number of buffers: fewest fail soonest."""
    p = b.parts
    size = p[q, HIGH] - p[q, LOW]
    before, after = NONE, b.counters[HEAD]
    while after != rest and p[after, HIGH] - p[after, LOW] < size:
        before, after = after, p[after, NEXT]
    p[q, NEXT] = after
    if before == NONE:
        b.counters[HEAD] = q
    else:
        p[before, NEXT] = q
