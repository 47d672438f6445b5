"""The compiled skyline branch and bound: can these buffers stand in `capacity`?

Depth first over *parts* (stretches of sections that unplaced buffers join) with an explicit stack::

    agenda  HEAD -> part -> part -> part        solved one by one; empty: everything fits
    frames  choice, choice, choice              each with the part it belongs to

A part is surveyed (`skyline_survey`), which ends in a failure, or in a section to branch on: first
every buffer inside the plateau that covers it goes onto the skyline, by priority, then it is wasted.
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

from solver.layout.kernels.skyline_choice import ROUND, candidate, prepare, raised
from solver.layout.kernels.skyline_conflicts import (
    add_reasons,
    concerned,
    explain_completeness,
    explain_niche,
    stretch,
)
from solver.layout.kernels.skyline_parts import divide, same_part, split
from solver.layout.kernels.skyline_state import (
    BEST,
    BEYOND,
    CAPACITY,
    CAUSE,
    COUNT,
    EXPLANATION,
    FIRST,
    FRAME_COUNT,
    FULL,
    FULLS,
    GOING,
    HASH1,
    HASH2,
    HEAD,
    HITS,
    INFINITY,
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
    PART,
    PART_COUNT,
    PARTS,
    PAUSE,
    PAUSED,
    PICK,
    RIGHT,
    RULES,
    RUNS,
    SECTION,
    SEED,
    SEEDS,
    SOLE,
    SPARE,
    STOP,
    TABLE,
    TRAIL,
    TRAIL_COUNT,
    TRIED,
    TWO,
    UNKNOWN,
    UNTIL,
    UNTRIED,
    WASTE,
    WHAT,
    WORK,
    WORK_LIMIT,
    YES,
    SearchState,
    Short,
    own,
)
from solver.layout.kernels.skyline_survey import DEAD, OVERFLOW, raise_skyline, survey, touch
from solver.layout.kernels.skyline_table import known, remember
from solver.native import compiled, inlined

__all__ = ["race"]

#: In place of a number of frames: nothing is left of the part; the trail is full.
SOLVED, NO_ROOM = -1, -2

#: A run is never longer than this.
MOST_NODES = 1e15


@compiled
def race(s: SearchState, ranks: Short, first_limit: int, growth: float) -> int:
    """Runs with growing node limits over all rows of `ranks` and ways to choose until one answers.

    NO, YES (offsets in `s.rank`), UNKNOWN (out of work, stopped or beaten), FULL (the depth is used up, by
    every run of a round) or PAUSED. A growth below 1 means one run without a limit.
    """
    c = s.counters
    while True:
        k = c[RUNS]
        if c[GOING] == 0:
            prepare(s, ranks, k)
            limit = first_limit * growth ** (k // ROUND)
            c[LIMIT] = c[NODES] + np.int64(min(limit, MOST_NODES)) if growth >= 1 else INFINITY
        answer = run(s)
        if answer == PAUSED:
            return PAUSED
        c[FULLS] = c[FULLS] + 1 if answer == FULL else 0
        if answer in (NO, YES) or stopped(s) or c[FULLS] == ROUND:
            return answer
        c[RUNS] = k + 1
        if c[RUNS] == c[UNTIL]:
            return PAUSED


@compiled
def run(s: SearchState) -> int:
    """One depth-first search, up to LIMIT nodes; or the one that was paused goes on."""
    c = s.counters
    if c[GOING] == 0:
        reset(s)
    c[GOING] = 0
    while c[HEAD] != NONE:
        if c[NODES] >= c[LIMIT] or stopped(s):
            return UNKNOWN
        if 0 < c[PAUSE] <= c[WORK]:
            c[GOING] = 1
            return PAUSED
        if c[FRAME_COUNT] + 2 > len(s.frames) or c[PART_COUNT] + len(s.skyline) + 1 > len(s.parts):
            return FULL
        c[NODES] += 1
        height = expand(s, c[HEAD])
        if height == NO_ROOM:
            return FULL
        if height != SOLVED and not advance(s, height):
            return NO
    unwind(s)
    return YES


@inlined
def unwind(s: SearchState) -> None:
    """Where everything stands, the offsets in place of the ranks, which the next run makes anew.

    What was the only buffer of its part is not among the placed, and nothing has moved over its sections
    since. All others stood on the skyline as it was just after them; so the trail is taken back for it.
    """
    spare = s.counters[SPARE]
    for i in range(len(s.size)):
        if s.placed[i] == 0:
            bottom = 0
            for t in range(s.start[i], s.end[i]):
                bottom = max(bottom, s.skyline[t])
            s.rank[i] = raised(s, i, bottom)
    for k in range(s.counters[TRAIL_COUNT] - 1, -1, -1):
        what, old, more = s.trail[k, 0] >> WHAT, s.trail[k, 1] >> spare, s.trail[k, 1] & ((1 << spare) - 1)
        if what >= 0:
            for t in range(what, what + more + 1):
                s.skyline[t] = old
        else:
            i = NONE - what
            s.rank[i] = s.skyline[s.start[i]] - s.size[i]
            for t in range(s.start[i], s.end[i]):
                s.skyline[t] -= s.size[i] + old


@inlined
def stopped(s: SearchState) -> bool:
    """Asked to stop, out of work, or beaten by an earlier turn, whatever the clock says."""
    c, shared = s.counters, s.signals
    return c[WORK] >= c[WORK_LIMIT] or shared[STOP] != 0 or c[RUNS] * SEEDS + c[SEED] > shared[BEST]


@inlined
def reset(s: SearchState) -> None:
    """A level skyline, and all buffers as the one part."""
    c, sections = s.counters, len(s.skyline) - 1
    for t in range(sections + 1):
        s.skyline[t] = s.live[t] = s.crossing[t] = s.fresh[t] = 0
        s.slack[t] = c[CAPACITY]
    for i in range(len(s.size)):
        s.placed[i] = 0
    hang(s, 0, sections)
    for i in range(len(s.size)):
        for t in range(s.start[i], s.end[i]):
            s.live[t] += 1
            s.slack[t] -= s.size[i]
        for t in range(s.start[i] + 1, s.end[i]):
            s.crossing[t] += 1
    c[FRAME_COUNT] = c[PART_COUNT] = c[TRAIL_COUNT] = 0
    c[HEAD] = NONE
    split(s, 0, sections, 0, NONE)


@inlined
def expand(s: SearchState, part: int) -> int:
    """Looks at a part: the number of frames to go on from, one more or those of its parent; or SOLVED."""
    p, c = s.reaches, s.counters
    if p[part, COUNT] == 1:
        return drop(s, part)
    c[HASH1], c[HASH2] = s.sums[part, ONE], s.sums[part, TWO]
    first, last, mark = p[part, FIRST], p[part, LAST], c[TRAIL_COUNT]
    state, left = survey(s, first, last)
    if state == OVERFLOW:
        return NO_ROOM
    if state == DEAD:
        explain_niche(s, first, last)
    elif c[RULES] & TABLE and known(s, c[HASH1], c[HASH2]):
        c[HITS] += 1
    else:
        return push(s, part, left)
    add_reasons(s, mark, first, last)
    return s.parts[part, PARENT]


@inlined
def drop(s: SearchState, part: int) -> int:
    """The only buffer of a part goes down as far as it can."""
    bottom, i, c = 0, s.born[s.reaches[part, FIRST]], s.counters
    while s.placed[i] != 0:
        i += 1
    for t in range(s.start[i], s.end[i]):
        if s.skyline[t] >= bottom:
            bottom, c[CAUSE] = s.skyline[t], stretch(s, t, t + 1)
    bottom = raised(s, i, bottom)
    if bottom + s.size[i] > own(s.limit, i):
        return s.parts[part, PARENT]
    c[HEAD] = s.parts[part, NEXT]
    return SOLVED


@inlined
def push(s: SearchState, part: int, left: int) -> int:
    """A choice on the plateau from `left` on: everything needed to try its alternatives one by one."""
    c, frame = s.counters, s.counters[FRAME_COUNT]
    s.sums[part, ONE], s.sums[part, TWO] = c[HASH1], c[HASH2]
    s.frames[frame, PART] = part
    s.niches[frame, LEFT] = left
    s.niches[frame, RIGHT] = s.stop[left]
    s.niches[frame, SECTION] = s.picks[left, PICK]
    s.niches[frame, ONLY] = s.picks[left, SOLE]
    s.frames[frame, PARTS] = c[PART_COUNT]
    s.frames[frame, TRAIL] = c[TRAIL_COUNT]
    s.waits[frame, WASTE] = s.waste[left]
    s.waits[frame, TRIED] = UNTRIED
    s.waits[frame, EXPLANATION] = 0
    c[FRAME_COUNT] = frame + 1
    return frame + 1


@inlined
def advance(s: SearchState, height: int) -> bool:
    """Goes back to `height` frames and takes the next alternative there, or goes back further."""
    f, p, c = s.frames, s.parts, s.counters
    while height > 0:
        frame = height - 1
        part = f[frame, PART]
        c[FRAME_COUNT] = height
        c[PART_COUNT] = f[frame, PARTS]
        if retract(s, frame):
            if branch(s, frame):
                return True
            c[CAUSE] = s.waits[frame, EXPLANATION] | explain_completeness(s, frame)
        if c[RULES] & TABLE:
            remember(s, s.sums[part, ONE], s.sums[part, TWO])
        height = p[part, PARENT]
        first, last = s.reaches[part, FIRST], s.reaches[part, LAST]
        add_reasons(s, f[height - 1, TRAIL] + 1 if height > 0 else 0, first, last)
    return False


@inlined
def retract(s: SearchState, frame: int) -> bool:
    """Takes back what was tried last, if anything; whether the next alternative of the choice can help."""
    mark = s.frames[frame, TRAIL]
    if s.counters[TRAIL_COUNT] == mark:
        return True
    helps = concerned(s, mark)
    undo(s, mark, s.reaches[s.frames[frame, PART], FIRST])
    s.waits[frame, EXPLANATION] |= s.counters[CAUSE]
    return helps


@inlined
def undo(s: SearchState, mark: int, first: int) -> None:
    """Takes back waste and placements until the trail is `mark` entries long; none began before `first`."""
    spare = s.counters[SPARE]
    for k in range(s.counters[TRAIL_COUNT] - 1, mark - 1, -1):
        what, old, more = s.trail[k, 0] >> WHAT, s.trail[k, 1] >> spare, s.trail[k, 1] & ((1 << spare) - 1)
        if what >= 0:
            for t in range(what + more, what - 1, -1):
                s.slack[t] += s.skyline[t] - old
                s.skyline[t] = old
                touch(s, first, t, t + 1)
        else:
            i = NONE - what
            s.placed[i] = 0
            lift(s, i, -1, old)
            if own(s.pin, i) != NONE:
                hang(s, s.start[i], s.end[i])
            touch(s, first, s.start[i], s.end[i])
    s.counters[TRAIL_COUNT] = mark


@inlined
def hang(s: SearchState, start: int, end: int) -> None:
    """The lowest unplaced pin over each section, anew. O(pins x sections)."""
    if len(s.pins) > 0:
        for t in range(start, end):
            s.roof[t] = INFINITY
    for i in s.pins:
        if s.placed[i] == 0:
            for t in range(max(start, s.start[i]), min(end, s.end[i])):
                s.roof[t] = min(s.roof[t], own(s.pin, i))


@inlined
def lift(s: SearchState, i: int, sign: int, padding: int) -> None:
    """Stands buffer i on the skyline, or so far above it (sign 1), or takes it away (sign -1)."""
    start, end, size = s.start[i], s.end[i], (s.size[i] + padding) * sign
    if padding > 0:
        for t in range(start, end):
            s.slack[t] -= padding * sign
    s.skyline[start] += size
    s.live[start] -= sign
    for t in range(start + 1, end):
        s.skyline[t] += size
        s.live[t] -= sign
        s.crossing[t] -= sign


@inlined
def branch(s: SearchState, frame: int) -> bool:
    """The next alternative of a choice: the next buffer by rank, then waste; False when none is left."""
    f, c, part = s.niches, s.counters, s.frames[frame, PART]
    first, height = s.reaches[part, FIRST], s.skyline[f[frame, LEFT]]
    i = candidate(s, frame)
    if i != NONE:
        bottom = raised(s, i, height)
        padding = bottom - height
        s.placed[i] = 1
        lift(s, i, 1, padding)
        if own(s.pin, i) != NONE:
            hang(s, s.start[i], s.end[i])
        touch(s, first, s.start[i], s.end[i])
        s.trail[c[TRAIL_COUNT], 0] = (NONE - i) << WHAT
        s.trail[c[TRAIL_COUNT], 1] = padding << c[SPARE]
        c[TRAIL_COUNT] += 1
        divide(s, frame, i, padding)
        return True
    wasted_to, s.waits[frame, WASTE] = s.waits[frame, WASTE], NONE
    if wasted_to == NONE:
        return False
    section = f[frame, SECTION]
    c[HASH1], c[HASH2] = s.sums[part, ONE], s.sums[part, TWO]
    raise_skyline(s, section, wasted_to, NONE, BEYOND)
    touch(s, first, section, section + 1)
    same_part(s, frame, s.reaches[part, COUNT])
    return True
