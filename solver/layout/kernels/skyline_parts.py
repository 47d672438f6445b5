"""Where a placement cuts a part of the compiled search into pieces, and the agenda of what is left.

    sections | part 0 ------- | part 1 -- |   | part 2 ... |      joined by unplaced buffers
    agenda   HEAD -> 1 -> 0 -> 2                                  linked: fewest buffers first

Buffers are in the order of their starts, so a part is a range of sections and of buffers at once.
"""

from __future__ import annotations

from solver.layout.kernels.skyline_state import (
    COUNT,
    DECOMPOSE,
    FIRST,
    HASH1,
    HASH2,
    HEAD,
    LAST,
    NEXT,
    NONE,
    ONE,
    PARENT,
    PART,
    PART_COUNT,
    RULES,
    TWO,
    WORK,
    SearchState,
)
from solver.layout.kernels.skyline_table import place, state
from solver.native import inlined

__all__ = ["divide", "same_part", "split"]


@inlined
def divide(s: SearchState, frame: int, i: int, padding: int) -> None:
    """The parts left after buffer i has been placed, so far above the skyline.

    It can only have broken what it alone joined.
    """
    p, c, part = s.reaches, s.counters, s.frames[frame, PART]
    count, whole = int(p[part, COUNT]) - 1, True
    if c[RULES] & DECOMPOSE:
        for t in range(s.start[i] + 1, s.end[i]):
            whole = whole and s.crossing[t] > 0
    if whole and count > 0:
        c[HASH1], c[HASH2] = s.sums[part, ONE], s.sums[part, TWO]
        place(s, i, padding)
        same_part(s, frame, count)
    else:
        split(s, p[part, FIRST], p[part, LAST], frame + 1, s.parts[part, NEXT])


@inlined
def same_part(s: SearchState, frame: int, count: int) -> None:
    """The part of a choice once more, with so many buffers left in it, and the hashes of the moment."""
    p, part, before = s.parts, s.counters[PART_COUNT], s.frames[frame, PART]
    s.reaches[part, FIRST] = s.reaches[before, FIRST]
    s.reaches[part, LAST] = s.reaches[before, LAST]
    s.reaches[part, COUNT] = count
    p[part, PARENT] = frame + 1
    p[part, NEXT] = p[before, NEXT]
    s.sums[part, ONE] = s.counters[HASH1]
    s.sums[part, TWO] = s.counters[HASH2]
    s.counters[PART_COUNT] = part + 1
    s.counters[HEAD] = part


@inlined
def split(s: SearchState, first: int, last: int, parent: int, rest: int) -> None:
    """One part for each stretch of sections that unplaced buffers join; smallest in front of `rest`."""
    p, c = s.reaches, s.counters
    c[WORK] += last - first + s.born[last] - s.born[first]
    base = c[PART_COUNT]
    count = outline_parts(s, first, last, base)
    c[PART_COUNT] = base + count
    c[HEAD] = rest
    for q in range(base, base + count):
        s.parts[q, PARENT] = parent
        # What lay to the left of it does not concern it any more.
        s.fresh[p[q, FIRST]] = 0
        p[q, COUNT], s.sums[q, ONE], s.sums[q, TWO] = state(s, p[q, FIRST], p[q, LAST])
        link(s, q, rest)


@inlined
def outline_parts(s: SearchState, first: int, last: int, base: int) -> int:
    """Numbers the stretches from `base` on; how many there are."""
    p, count, joined = s.reaches, 0, False
    for t in range(first, last):
        if s.live[t] == 0:
            joined = False
            continue
        if not joined or s.crossing[t] == 0:
            p[base + count, FIRST] = t
            count += 1
        joined = True
        p[base + count - 1, LAST] = t + 1
    return count


@inlined
def link(s: SearchState, q: int, rest: int) -> None:
    """Into the agenda before `rest`, in the order of the number of buffers: fewest fail soonest."""
    p = s.parts
    before, after = NONE, s.counters[HEAD]
    while after != rest and s.reaches[after, COUNT] < s.reaches[q, COUNT]:
        before, after = after, p[after, NEXT]
    p[q, NEXT] = after
    if before == NONE:
        s.counters[HEAD] = q
    else:
        p[before, NEXT] = q
