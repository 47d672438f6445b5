"""The compiled skyline branch and bound: can these buffers stand in `capacity`?

Depth first over *parts* (stretches of sections that unplaced buffers join) with an explicit stack::

    agenda  HEAD -> part -> part -> part        solved one by one; empty: everything fits
    frames  choice, choice, choice              each with the part it belongs to

A part is surveyed (`skyline_survey`), which ends in a failure, or in a section to branch on: first
every buffer inside the plateau that covers it goes onto the floor, by priority, then the gap is left.
Where a placement cuts the part in two or more, the pieces share no buffer, so each is solved by
itself; a piece without a solution refutes the choice that made it, whatever its siblings do, and the
search goes back to that choice at once.

A failure says which sections have caused it (`skyline_blame`); choices that have nothing to do with them are
undone without trying the rest of their alternatives.

A part that has been refuted is remembered by two independent hashes over what decides its fate: the
headroom of its sections and the multiset of its unplaced buffers (`skyline_table`). With k states met, the
chance that any of them was ever wrongly taken for refuted is below ``k**2 / 2**123``.
The skyline view follows MiniMalloc (ASPLOS 2023), the weights dom/wdeg (Boussemart et al., 2004).
"""

from __future__ import annotations

import numpy as np

from solver.layout.compiled.jit import compiled, inlined
from solver.layout.compiled.skyline_choice import ROUND, candidate, prepare, raised
from solver.layout.compiled.skyline_conflicts import blame_valley, concerned, grounds, no_other
from solver.layout.compiled.skyline_parts import divide, same_part, split
from solver.layout.compiled.skyline_state import (
    BEST_SEED,
    BEST_WORK,
    BLAME,
    CAPACITY,
    CAUSE,
    COUNT,
    FIRST,
    FLOOR,
    FRAME_COUNT,
    FULL,
    GAP,
    HASH1,
    HASH2,
    HEAD,
    HITS,
    LAST,
    LEFT,
    LIMIT,
    NEXT,
    NO,
    NODES,
    NONE,
    ONE,
    ONLY,
    PARENT,
    PART_COUNT,
    PARTS,
    PAUSE,
    REST,
    RIGHT,
    RULES,
    RUNS,
    SECTION,
    SEED,
    SKY,
    STOP,
    TABLE,
    TRAIL,
    TRAIL_COUNT,
    TRIED,
    TWO,
    UNKNOWN,
    UNTRIED,
    WORK,
    WORK_LIMIT,
    YES,
    Board,
)
from solver.layout.compiled.skyline_survey import DEAD, OVERFLOW, raise_floor, survey, touch
from solver.layout.compiled.skyline_table import foresee, known, remember
from solver.layout.model.instance import Integers

__all__ = ["race"]

#: In place of a number of frames: nothing is left of the part; the trail is full.
SOLVED, NO_ROOM = -1, -2

#: A run is never longer than this.
MOST_NODES = 1e15


@compiled
def race(b: Board, ranks: Integers, first_limit: int, growth: float) -> int:
    """Runs with growing node limits over all rows of `ranks` and ways to choose until one answers.

    NO, YES (offsets in `b.offset`), UNKNOWN (out of work, stopped or beaten; or paused, to be called again
    as it is) or FULL (the depth is used
    up, by every run of a round). A growth below 1 means one run without a limit.
    """
    c, full = b.counters, 0
    while True:
        k = c[RUNS]
        prepare(b, ranks, k)
        limit = first_limit * growth ** (k // ROUND)
        c[LIMIT] = c[NODES] + np.int64(min(limit, MOST_NODES)) if growth >= 1 else SKY
        answer = run(b)
        full = full + 1 if answer == FULL else 0
        if answer in (NO, YES) or stopped(b) or full == ROUND:
            return answer
        c[RUNS] = k + 1
        if c[PAUSE] != 0 and (k + 1) % ROUND == 0:
            return UNKNOWN


@compiled
def run(b: Board) -> int:
    """One depth-first search, up to LIMIT nodes."""
    reset(b)
    c = b.counters
    while c[HEAD] != NONE:
        if c[NODES] >= c[LIMIT] or stopped(b):
            return UNKNOWN
        if c[FRAME_COUNT] + 2 > len(b.frames) or c[PART_COUNT] + len(b.floor) + 1 > len(b.parts):
            return FULL
        c[NODES] += 1
        height = expand(b, c[HEAD])
        if height == NO_ROOM:
            return FULL
        if height != SOLVED and not advance(b, height):
            return NO
    return YES


@inlined
def stopped(b: Board) -> bool:
    """Asked to stop, out of work, or beaten by another seed, whatever the clock says."""
    c, shared = b.counters, b.signals
    if c[WORK] >= c[WORK_LIMIT] or shared[STOP] != 0:
        return True
    return c[WORK] > shared[BEST_WORK] or (c[WORK] == shared[BEST_WORK] and c[SEED] > shared[BEST_SEED])


@inlined
def reset(b: Board) -> None:
    """An empty floor, and all buffers as the one part."""
    c, sections = b.counters, len(b.floor) - 1
    for t in range(sections + 1):
        b.floor[t] = b.live[t] = b.crossing[t] = b.fresh[t] = 0
        b.slack[t] = c[CAPACITY]
    for i in range(len(b.size)):
        b.placed[i] = 0
        foresee(b, i)
    hang(b, 0, sections)
    for i in range(len(b.size)):
        for t in range(b.start[i], b.end[i]):
            b.live[t] += 1
            b.slack[t] -= b.size[i]
        for t in range(b.start[i] + 1, b.end[i]):
            b.crossing[t] += 1
    c[FRAME_COUNT] = c[PART_COUNT] = c[TRAIL_COUNT] = 0
    c[HEAD] = NONE
    split(b, 0, sections, 0, NONE)


@inlined
def expand(b: Board, part: int) -> int:
    """Looks at a part: the number of frames to go on from, one more or those of its parent; or SOLVED."""
    p, c = b.parts, b.counters
    if p[part, COUNT] == 1:
        return drop(b, part)
    c[HASH1], c[HASH2] = p[part, ONE], p[part, TWO]
    first, last, mark = p[part, FIRST], p[part, LAST], c[TRAIL_COUNT]
    state, left = survey(b, first, last)
    if state == OVERFLOW:
        return NO_ROOM
    if state == DEAD:
        blame_valley(b, first, last)
    elif c[RULES] & TABLE and known(b, c[HASH1], c[HASH2]):
        c[HITS] += 1
    else:
        return push(b, part, left)
    grounds(b, mark, first, last)
    return p[part, PARENT]


@inlined
def drop(b: Board, part: int) -> int:
    """The only buffer of a part goes down as far as it can."""
    bottom, i, c = 0, b.born[b.parts[part, FIRST]], b.counters
    while b.placed[i] != 0:
        i += 1
    for t in range(b.start[i], b.end[i]):
        if b.floor[t] >= bottom:
            bottom, c[CAUSE] = b.floor[t], b.bit[t]
    bottom = raised(b, i, bottom)
    if bottom + b.size[i] > b.limit[i]:
        return b.parts[part, PARENT]
    b.offset[i] = bottom
    c[HEAD] = b.parts[part, NEXT]
    return SOLVED


@inlined
def push(b: Board, part: int, left: int) -> int:
    """A choice on the plateau from `left` on: everything needed to try its alternatives one by one."""
    c, frame = b.counters, b.counters[FRAME_COUNT]
    for field in range(NEXT):
        b.frames[frame, field] = b.parts[part, field]
    b.frames[frame, ONE] = c[HASH1]
    b.frames[frame, TWO] = c[HASH2]
    b.frames[frame, LEFT] = left
    b.frames[frame, RIGHT] = b.stop[left]
    b.frames[frame, SECTION] = b.pick[left]
    b.frames[frame, FLOOR] = b.floor[left]
    b.frames[frame, GAP] = b.gap[left]
    b.frames[frame, TRIED] = UNTRIED
    b.frames[frame, ONLY] = b.only[left]
    b.frames[frame, PARTS] = c[PART_COUNT]
    b.frames[frame, TRAIL] = c[TRAIL_COUNT]
    b.frames[frame, REST] = b.parts[part, NEXT]
    b.frames[frame, BLAME] = 0
    c[FRAME_COUNT] = frame + 1
    return frame + 1


@inlined
def advance(b: Board, height: int) -> bool:
    """Goes back to `height` frames and takes the next alternative there, or goes back further."""
    f, c = b.frames, b.counters
    while height > 0:
        frame = height - 1
        c[FRAME_COUNT] = height
        c[PART_COUNT] = f[frame, PARTS]
        if retract(b, frame):
            if branch(b, frame):
                return True
            c[CAUSE] = f[frame, BLAME] | no_other(b, frame)
        if c[RULES] & TABLE:
            remember(b, f[frame, ONE], f[frame, TWO])
        height = f[frame, PARENT]
        grounds(b, f[height - 1, TRAIL] + 1 if height > 0 else 0, f[frame, FIRST], f[frame, LAST])
    return False


@inlined
def retract(b: Board, frame: int) -> bool:
    """Takes back what was tried last, if anything; whether the next alternative of the choice can help."""
    mark = b.frames[frame, TRAIL]
    if b.counters[TRAIL_COUNT] == mark:
        return True
    helps = concerned(b, mark)
    undo(b, mark, b.frames[frame, FIRST])
    b.frames[frame, BLAME] |= b.counters[CAUSE]
    return helps


@inlined
def undo(b: Board, mark: int, first: int) -> None:
    """Takes back gaps and placements until the trail is `mark` entries long; none began before `first`."""
    for k in range(b.counters[TRAIL_COUNT] - 1, mark - 1, -1):
        t, old = b.trail[k, 0], b.trail[k, 1]
        if t >= 0:
            b.slack[t] += b.floor[t] - old
            b.floor[t] = old
            touch(b, first, t, t + 1)
        else:
            b.placed[NONE - t] = 0
            lift(b, NONE - t, -1, old)
            if b.pin[NONE - t] != NONE:
                hang(b, b.start[NONE - t], b.end[NONE - t])
            touch(b, first, b.start[NONE - t], b.end[NONE - t])
    b.counters[TRAIL_COUNT] = mark


@inlined
def hang(b: Board, start: int, end: int) -> None:
    """The lowest unplaced pin over each section, anew. O(pins x sections)."""
    for t in range(start, end):
        b.roof[t] = SKY
    for i in b.pins:
        if b.placed[i] == 0:
            for t in range(max(start, b.start[i]), min(end, b.end[i])):
                b.roof[t] = min(b.roof[t], b.pin[i])


@inlined
def lift(b: Board, i: int, sign: int, padding: int) -> None:
    """Stands buffer i on the floor, or so far above it (sign 1), or takes it away (sign -1)."""
    start, end, size = b.start[i], b.end[i], (b.size[i] + padding) * sign
    if padding > 0:
        for t in range(start, end):
            b.slack[t] -= padding * sign
    b.floor[start] += size
    b.live[start] -= sign
    for t in range(start + 1, end):
        b.floor[t] += size
        b.live[t] -= sign
        b.crossing[t] -= sign


@inlined
def branch(b: Board, frame: int) -> bool:
    """The next alternative of a choice: the next buffer by rank, then the gap; False when none is left."""
    f, c = b.frames, b.counters
    i = candidate(b, frame)
    if i != NONE:
        bottom = raised(b, i, f[frame, FLOOR])
        padding = bottom - f[frame, FLOOR]
        b.placed[i] = 1
        b.offset[i] = bottom
        lift(b, i, 1, padding)
        if b.pin[i] != NONE:
            hang(b, b.start[i], b.end[i])
        touch(b, f[frame, FIRST], b.start[i], b.end[i])
        b.trail[c[TRAIL_COUNT], 0] = NONE - i
        b.trail[c[TRAIL_COUNT], 1] = padding
        c[TRAIL_COUNT] += 1
        divide(b, frame, i, padding)
        return True
    gap, f[frame, GAP] = f[frame, GAP], NONE
    if gap == NONE:
        return False
    section = f[frame, SECTION]
    c[HASH1], c[HASH2] = f[frame, ONE], f[frame, TWO]
    raise_floor(b, section, gap, NONE, SKY)
    touch(b, f[frame, FIRST], section, section + 1)
    same_part(b, frame, f[frame, COUNT])
    return True
