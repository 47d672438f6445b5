"""Plateau, niche, waste and slack: what one look at the skyline forces, rules out, and offers to branch on.

         C _________________________________________
                                                      slack[s]: the part of C - skyline[s] that the
    skyline  ______                                   unplaced buffers over s do not need
            |      |             _______
         ___|      |            |           g         where waste at s would end
                   |    waste   |
                   |____[s]_____|           f         a niche: a plateau lower than both neighbours
            ------ left ------- right ------ sections

Move every buffer of a layout down as far as it goes. Then above section s of a niche

* either some unplaced buffer that lives wholly inside [left, right) and covers s lies on f, or as little
  above it as its alignment asks for, with nothing beneath it: the padding comes off the slack,
* or the bytes above s are wasted. What ends the waste rests on a neighbour (not lower than ``nbr``, the
  lower of the two), or above something inside the niche that does not cover s and lies on f or higher. So
  the waste reaches at least to ``g = min(nbr, f + smallest buffer inside that does not cover s)``.

Waste takes ``g - f`` from slack[s]; a section that cannot afford it must be covered, and a section that no
buffer inside covers is wasted up to nbr, because the buffers that cover it reach over a neighbour.

A pin lies at its offset o or nowhere. It can be placed once it is the lowest above all of its sections;
what is free between f and o is padding, nothing is placed across it, and waste ends at o if not before.

Two rules cut more. *Fill*: below nbr, only buffers inside the niche can stand above s, so
``nbr - f - fill[s]`` is lost at least; more than slack[s] is a failure. *Span*: a buffer i that lives
exactly [left, right) and lies below nbr has only buffers inside beneath it, and i can change places
with all of them. If without i some section cannot be filled, i does lie below nbr; so put it on f.
"""

from __future__ import annotations

import numpy as np

from solver.layout.kernels.skyline_state import (
    ANY_PLATEAU,
    CAPACITY,
    DEAD_LEFT,
    DEAD_SECTION,
    ENDS,
    FILL,
    FORCED_WASTE,
    INFINITY,
    MOST,
    NONE,
    PICK,
    RULES,
    SECTION_RULE,
    SOLE,
    SPAN,
    SPARE,
    TRAIL_COUNT,
    WEIGHTS,
    WHAT,
    WORK,
    SearchState,
    own,
)
from solver.layout.kernels.skyline_table import lower
from solver.native import inlined

__all__ = [
    "BY_HEIGHT",
    "BY_SLACK",
    "BY_WEIGHT",
    "DEAD",
    "OPEN",
    "OVERFLOW",
    "raise_skyline",
    "survey",
    "touch",
]

#: What a look at a niche, or at all of them, found.
DEAD, FORCED, OPEN, OVERFLOW = range(4)

#: What tells sections with equally few alternatives apart; weights divide their number.
BY_WEIGHT, BY_SLACK, BY_HEIGHT = range(3)


@inlined
def survey(s: SearchState, first: int, last: int) -> tuple[int, int]:
    """Forces waste until none is forced, then picks the plateau of sections [first, last) to branch on.

    Gives OPEN and where that plateau begins, or DEAD, or OVERFLOW of the trail. O(plateaus), and for each
    that is not fresh its sections and the buffers that start there.
    """
    c, every = s.counters, s.counters[RULES] & ANY_PLATEAU
    while True:
        if c[TRAIL_COUNT] + last - first > len(s.trail):
            return OVERFLOW, NONE
        best, lowest, chosen, forced, left = np.inf, INFINITY, NONE, False, first
        while left < last:
            if s.fresh[left] == 0:
                state = look(s, first, last, left)
                if state == DEAD:
                    return DEAD, NONE
                forced = forced or state == FORCED
            if s.key[left] < best and (every or s.skyline[left] < lowest):
                best, lowest, chosen = s.key[left] if every else np.inf, s.skyline[left], left
            c[WORK] += 1
            left = s.stop[left]
        if not forced:
            return OPEN, chosen


@inlined
def look(s: SearchState, first: int, last: int, left: int) -> int:
    """One plateau of sections [first, last), the one from `left` on: DEAD, FORCED or OPEN."""
    right, height = left + 1, s.skyline[left]
    while right < last and s.skyline[right] == height:
        right += 1
    neighbour = INFINITY if left == first else s.skyline[left - 1]
    if right < last:
        neighbour = min(neighbour, s.skyline[right])
    s.key[left] = np.inf
    s.counters[WORK] += right - left
    state = OPEN
    if neighbour > height:
        s.counters[WORK] += s.born[right] - s.born[left]
        spanning = tally(s, left, right)
        state, missing = niche(s, left, right, neighbour)
        spans = spanning != NONE and (neighbour == INFINITY or missing + s.size[spanning] > 0)
        s.picks[left, SOLE] = NONE
        if spans and state == OPEN and s.counters[RULES] & SPAN:
            s.key[left], s.waste[left] = -1.0, NONE
            s.picks[left, PICK], s.picks[left, SOLE] = left, spanning
    s.stop[left] = right
    s.fresh[left] = state == OPEN
    if state == FORCED:
        for t in range(left, right):
            s.fresh[t] = 0
        touch(s, first, left, right)
    return state


@inlined
def touch(s: SearchState, first: int, start: int, end: int) -> None:
    """After the skyline has moved over [start, end): the plateaus there and on both sides are not fresh.

    `first` is where their part begins. Proof that no other is concerned: what is known of a plateau depends
    on its own sections, on the buffers that may stand there, and on the heights beside it. Proof that it is
    enough when moves are taken back: of the moves that concern a plateau as it is in the end, think of the
    one taken back last. From then on the skyline there is as in the end, and the plateau begins at `start`,
    at `end`, or where the walk to the left of `start` ends.
    """
    s.fresh[start] = s.fresh[end] = 0
    if start > first:
        t = start - 1
        while t > first and s.skyline[t - 1] == s.skyline[t]:
            t -= 1
        s.fresh[t] = 0


@inlined
def tally(s: SearchState, left: int, right: int) -> int:
    """Counts the buffers inside a plateau, as differences where they start and end; its spanning buffer."""
    for t in range(left, right):
        s.cover[t] = 0
        s.fill[t] = 0
        s.before[t] = INFINITY
        s.after[t] = INFINITY
    spanning = NONE
    for i in range(s.born[left], s.born[right]):
        start, end, size = s.start[i], s.end[i], s.size[i]
        if s.placed[i] != 0 or end > right:
            continue
        s.cover[start] += 1
        s.fill[start] += size
        if end < right:
            s.cover[end] -= 1
            s.fill[end] -= size
            s.before[end] = min(s.before[end], size)
        elif start == left and (spanning == NONE or size > s.size[spanning]):
            spanning = i
        if start > left:
            s.after[start - 1] = min(s.after[start - 1], size)
    return spanning


@inlined
def niche(s: SearchState, left: int, right: int, neighbour: int) -> tuple[int, int]:
    """A niche: its verdict, and what its fullest section could lose.

    Where it is OPEN, its most urgent section is what to branch on.
    """
    run = INFINITY
    for t in range(right - 1, left - 1, -1):
        run = min(run, s.after[t])
        s.after[t] = run
    best, height, rules = np.inf, s.skyline[left], s.counters[RULES]
    run, cover, fill, missing, state = INFINITY, 0, 0, -INFINITY, OPEN
    for t in range(left, right):
        run = min(run, s.before[t])
        cover += s.cover[t]
        fill += s.fill[t]
        if neighbour < INFINITY:
            missing = max(missing, neighbour - height - fill - s.slack[t])
        ends = min(neighbour, height + min(run, s.after[t]), own(s.roof, t))
        if cover == 0 and neighbour < INFINITY:
            ends = neighbour
        afford = height < ends < INFINITY and ends - height <= s.slack[t]
        if (cover == 0 and not afford) or (rules & FILL and missing > 0):
            s.weight[t] = min(s.weight[t] + 1, MOST)
            s.counters[DEAD_LEFT], s.counters[DEAD_SECTION] = left, t
            return DEAD, missing
        if cover == 0 and rules & FORCED_WASTE:
            raise_skyline(s, t, ends, left, right)
            state = FORCED
        elif state == OPEN:
            key = urgency(s, t, cover + afford)
            if key < best:
                best = key
                s.picks[left, PICK] = t
                s.waste[left] = ends if afford else NONE
    s.key[left] = best if state == OPEN else np.inf
    return state, missing


@inlined
def urgency(s: SearchState, t: int, alternatives: int) -> float:
    """Lowest first. Rules differ in what they trust; restarts go through all of them."""
    rule, weight, slack = s.counters[SECTION_RULE], s.weight[t], s.slack[t] / s.counters[CAPACITY]
    if not s.counters[RULES] & WEIGHTS:
        weight = 1.0
    if rule == BY_WEIGHT:
        return alternatives / weight + 1e-3 * slack
    if rule == BY_HEIGHT:
        return alternatives + 1e-3 * (slack + s.skyline[t] / s.counters[CAPACITY])
    return alternatives + 1e-3 * slack


@inlined
def raise_skyline(s: SearchState, t: int, height: int, left: int, right: int) -> None:
    """Waste at section t, forced by a niche or (NONE, BEYOND) chosen; taken back by the trail."""
    k, spare, ends = s.counters[TRAIL_COUNT], s.counters[SPARE], right << ENDS | left + 1
    most = (1 << spare) - 1
    more = s.trail[k - 1, 1] & most if k > 0 else most
    # Next to what the same plateau has forced: all of one height before. A choice has an entry of its own.
    if left != NONE and more < most and s.trail[k - 1, 0] == (t - 1 - more) << WHAT | ends:
        s.trail[k - 1, 1] += 1
    else:
        s.trail[k, 0] = t << WHAT | ends
        s.trail[k, 1] = s.skyline[t] << spare
        s.counters[TRAIL_COUNT] = k + 1
    s.slack[t] -= height - s.skyline[t]
    lower(s, t, height - s.skyline[t])
    s.skyline[t] = height
