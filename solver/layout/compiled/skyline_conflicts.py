"""Why a part of the compiled search failed: how far to go back, and whom to try earlier from now on.

An *explanation* is a set of sections such that what is known of them alone (their floor, and which unplaced
buffers live there) leaves no way out, wherever the other buffers are::

                        | p |            the buffers over t that cross p or q lie on the lower shore or
       shore ___________|   |            above it; with what else is over t they reach beyond C, or they
            | q |       |   |            leave a gap that t cannot afford: {q, t, p} explains the failure
            |   |___[t]_|   |

A gap that was forced at t has the same three sections for a reason. What explains each alternative of a
choice at section s, together with the sections its buffers would cover and both shores, explains that the
choice fails: the lowest buffer above s crosses a shore, or is one of the alternatives, or lies on a
buffer that meets one. A choice that touches no section of the explanation of what came after it has not
caused the failure, and its other alternatives would fail in the same way: the search goes on back
(conflict-directed backjumping, Prosser, 1993). Explanations are kept as bits, one for each of `STRETCHES`
stretches of sections, rounded up.

Buffers over t that cross a shore came too late: had they been placed before the walls were raised, they
would lie lower. Each failure adds to their *heat*, and below an incumbent, where layouts have room for
gaps, the hotter a kind, the earlier it is tried in the next runs (after squeaky wheel optimisation,
Joslin and Clements, 1999). At the bound itself sizes count, and heat only gets in the way.
"""

from __future__ import annotations

from solver.layout.compiled.jit import inlined
from solver.layout.compiled.skyline_state import (
    CAUSE,
    DEAD_LEFT,
    DEAD_SECTION,
    FIRST,
    JUMPS,
    LAST,
    LEFT,
    NONE,
    ONLY,
    PROMOTION,
    RIGHT,
    RULES,
    SECTION,
    TRAIL_COUNT,
    Board,
)

__all__ = ["blame_valley", "concerned", "grounds", "no_other", "stretch"]


@inlined
def stretch(b: Board, start: int, end: int) -> int:
    """The bits of some sections next to each other."""
    return 2 * int(b.bit[end - 1]) - int(b.bit[start])


@inlined
def shores(b: Board, first: int, last: int, left: int, right: int) -> int:
    """The sections beside [left, right), as far as their part, [first, last), has them."""
    found = 0
    if left > first:
        found |= b.bit[left - 1]
    if right < last:
        found |= b.bit[right]
    return found


@inlined
def blame_valley(b: Board, first: int, last: int) -> None:
    """After a look has found a valley of this part dead: why, and who came too late."""
    c, left, section = b.counters, b.counters[DEAD_LEFT], b.counters[DEAD_SECTION]
    right = b.stop[left]
    c[CAUSE] = b.bit[section] | shores(b, first, last, left, right)
    # Without shores it is for what would end a gap, wherever that lies.
    if left == first and right == last:
        c[CAUSE] = stretch(b, first, last)
    if c[RULES] & PROMOTION:
        for i in range(b.born[first], b.born[section + 1]):
            if b.placed[i] == 0 and b.end[i] > section and (b.start[i] < left or b.end[i] > right):
                b.heat[b.kind[i]] += 1.0


@inlined
def grounds(b: Board, mark: int, first: int, last: int) -> None:
    """Adds to the cause what has forced the gaps in it, from the trail's entry `mark` on."""
    c = b.counters
    for k in range(c[TRAIL_COUNT] - 1, mark - 1, -1):
        t = b.trail[k, 0]
        if t >= 0 and c[CAUSE] & b.bit[t]:
            c[CAUSE] |= shores(b, first, last, b.trail[k, 2], b.trail[k, 3])


@inlined
def concerned(b: Board, entry: int) -> bool:
    """Whether the placement or gap of this entry of the trail is among the causes."""
    t = b.trail[entry, 0]
    bits = b.bit[t] if t >= 0 else stretch(b, b.start[NONE - t], b.end[NONE - t])
    return not b.counters[RULES] & JUMPS or b.counters[CAUSE] & bits != 0


@inlined
def no_other(b: Board, frame: int) -> int:
    """What explains that the alternatives of a choice are all there are; the board is as it was then."""
    f = b.frames
    left, right, section = f[frame, LEFT], f[frame, RIGHT], f[frame, SECTION]
    start, end = section, section + 1
    if f[frame, ONLY] != NONE:
        start, end = left, right
    else:
        for i in range(b.born[left], b.born[section + 1]):
            if b.placed[i] == 0 and section < b.end[i] <= right:
                start, end = min(start, b.start[i]), max(end, b.end[i])
    return stretch(b, start, end) | shores(b, f[frame, FIRST], f[frame, LAST], left, right)
