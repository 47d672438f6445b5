"""Why a part of the compiled search failed: how far to go back, and which buffers to try earlier from now on.

An *explanation* is a set of sections that proves the failure by itself: given their heights, and the unplaced
buffers that live there, no layout exists, wherever the buffers of other sections lie::

                        | p |            the buffers over t that cross p or q lie on the lower neighbour or
    neighbour __________|   |            above it; with what else is over t they reach beyond C, or they
            | q |       |   |            waste more than t can afford: {q, t, p} explains the failure
            |   |___[t]_|   |

Waste that was forced at t has the same three sections for a reason. What explains each alternative of a
choice at section s, together with the sections its buffers would cover and both neighbours, explains that the
choice fails: the lowest buffer above s crosses a neighbour, or is one of the alternatives, or lies on a
buffer that meets one. A choice that touches no section of the explanation of what came after it has not
caused the failure, and its other alternatives would fail in the same way: the search goes on back
(conflict-directed backjumping, Prosser, 1993). Explanations are kept as bits, one for each of `STRETCHES`
stretches of sections, rounded up.

Buffers over t that cross a neighbour were placed too late: placed before the walls were raised, they would
lie lower. Each failure adds to their *activity*, and below an incumbent, where layouts have room for waste,
the more active a kind, the earlier it is tried in the next runs (after squeaky wheel optimisation, Joslin
and Clements, 1999). At the bound itself sizes count, and activity only gets in the way.
"""

from __future__ import annotations

from solver.layout.kernels.skyline_state import (
    BEYOND,
    CAUSE,
    DEAD_LEFT,
    DEAD_SECTION,
    ENDS,
    FIRST,
    JUMPS,
    LAST,
    LEFT,
    MOST,
    NONE,
    ONLY,
    PART,
    PROMOTION,
    RIGHT,
    RULES,
    SECTION,
    SPARE,
    TRAIL_COUNT,
    WHAT,
    SearchState,
)
from solver.native import inlined

__all__ = ["add_reasons", "concerned", "explain_completeness", "explain_niche", "stretch"]


@inlined
def stretch(s: SearchState, start: int, end: int) -> int:
    """The bits of some sections next to each other."""
    return (2 << int(s.bit[end - 1])) - (1 << int(s.bit[start]))


@inlined
def neighbours(s: SearchState, first: int, last: int, left: int, right: int) -> int:
    """The sections beside [left, right), as far as their part, [first, last), has them."""
    found = 0
    if left > first:
        found |= 1 << int(s.bit[left - 1])
    if right < last:
        found |= 1 << int(s.bit[right])
    return found


@inlined
def explain_niche(s: SearchState, first: int, last: int) -> None:
    """After a look has found a niche of this part dead: why, and which kinds were placed too late."""
    c, left, section = s.counters, s.counters[DEAD_LEFT], s.counters[DEAD_SECTION]
    right = s.stop[left]
    c[CAUSE] = stretch(s, section, section + 1) | neighbours(s, first, last, left, right)
    # Without neighbours it is because of what would end the waste, wherever that lies.
    if left == first and right == last:
        c[CAUSE] = stretch(s, first, last)
    if c[RULES] & PROMOTION:
        for i in range(s.born[first], s.born[section + 1]):
            if s.placed[i] == 0 and s.end[i] > section and (s.start[i] < left or s.end[i] > right):
                s.activity[s.kind[i]] = min(s.activity[s.kind[i]] + 1, MOST)


@inlined
def add_reasons(s: SearchState, mark: int, first: int, last: int) -> None:
    """Adds to the cause what has forced the waste in it, from the trail's entry `mark` on."""
    c = s.counters
    for k in range(c[TRAIL_COUNT] - 1, mark - 1, -1):
        t, more = s.trail[k, 0] >> WHAT, s.trail[k, 1] & ((1 << c[SPARE]) - 1)
        if t >= 0 and c[CAUSE] & stretch(s, t, t + more + 1):
            left, right = (s.trail[k, 0] & BEYOND) - 1, s.trail[k, 0] >> ENDS & BEYOND
            c[CAUSE] |= neighbours(s, first, last, left, right)


@inlined
def concerned(s: SearchState, entry: int) -> bool:
    """Whether the placement or waste of this entry of the trail is among the causes."""
    t = s.trail[entry, 0] >> WHAT
    start, end = (t, t + 1) if t >= 0 else (int(s.start[NONE - t]), int(s.end[NONE - t]))
    bits = stretch(s, start, end)
    return not s.counters[RULES] & JUMPS or s.counters[CAUSE] & bits != 0


@inlined
def explain_completeness(s: SearchState, frame: int) -> int:
    """What explains that the alternatives of a choice are all there are; the state is as it was then."""
    f, p, part = s.niches, s.reaches, s.frames[frame, PART]
    left, right, section = f[frame, LEFT], f[frame, RIGHT], f[frame, SECTION]
    start, end = section, section + 1
    if f[frame, ONLY] != NONE:
        start, end = left, right
    else:
        for i in range(s.born[left], s.born[section + 1]):
            if s.placed[i] == 0 and section < s.end[i] <= right:
                start, end = min(start, s.start[i]), max(end, s.end[i])
    return stretch(s, start, end) | neighbours(s, p[part, FIRST], p[part, LAST], left, right)
