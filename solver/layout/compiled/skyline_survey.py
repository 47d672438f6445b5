"""Plateau, gap and slack: what one look at the floor forces, rules out, and offers to branch on.

         C _________________________________________
                                                      slack[s]: the part of C - floor[s] that the
    floor    ______                                   unplaced buffers over s do not need
            |      |             _______
         ___|      |            |           g         where a gap at s would end
                   |  gap at s  |
                   |____[s]_____|           f         a plateau lower than both neighbours
            ------ left ------- right ------ sections

Move every buffer of a layout down as far as it goes. Then above section s of a local-minimum plateau

* either some unplaced buffer that lives wholly inside [left, right) and covers s lies on f, or as little
  above it as its alignment asks for, with nothing beneath it: the padding comes off the slack,
* or there is a gap. Whatever ends the gap rests on a neighbour (not lower than ``nbr``, the lower of
  the two), or above something inside the plateau that does not cover s and lies on f or higher. So the
  gap reaches at least to ``g = min(nbr, f + smallest buffer inside that does not cover s)``.

A gap takes ``g - f`` from slack[s]; a section that cannot afford one must be covered, and a section
that nobody inside covers has its gap forced up to nbr, for whoever covers it reaches over the shore.

A pin lies at its offset o or nowhere. It can be placed once it is the lowest above all of its sections;
what is free between f and o is padding, nothing is placed across it, and a gap ends at o if not before.

Two rules cut more. *Fill*: below nbr, only buffers inside the plateau can stand above s, so
``nbr - f - fill[s]`` is lost at least; more than slack[s] is a failure. *Span*: a buffer b that lives
exactly [left, right) and lies below nbr has only buffers inside beneath it, and b can change places
with all of them. If without b some section cannot be filled, b does lie below nbr; so put it on f.
"""

from __future__ import annotations

import numpy as np

from solver.layout.compiled.jit import inlined
from solver.layout.compiled.skyline_state import (
    ANY_PLATEAU,
    CAPACITY,
    DEAD_LEFT,
    DEAD_SECTION,
    FILL,
    GAPS,
    NONE,
    RULES,
    SECTION_RULE,
    SKY,
    SPAN,
    TRAIL_COUNT,
    WEIGHTS,
    WORK,
    Board,
)
from solver.layout.compiled.skyline_table import lower

__all__ = ["BY_HEIGHT", "BY_SLACK", "BY_WEIGHT", "DEAD", "OPEN", "OVERFLOW", "raise_floor", "survey", "touch"]

#: What a look at a valley, or at all of them, found.
DEAD, FORCED, OPEN, OVERFLOW = range(4)

#: What tells sections with equally few alternatives apart; weights divide their number.
BY_WEIGHT, BY_SLACK, BY_HEIGHT = range(3)


@inlined
def survey(b: Board, first: int, last: int) -> tuple[int, int]:
    """Forces gaps until none is forced, then picks the plateau of sections [first, last) to branch on.

    Gives OPEN and where that plateau begins, or DEAD, or OVERFLOW of the trail. O(plateaus), and for each
    that is not fresh its sections and the buffers that start there.
    """
    c, every = b.counters, b.counters[RULES] & ANY_PLATEAU
    while True:
        if c[TRAIL_COUNT] + last - first > len(b.trail):
            return OVERFLOW, NONE
        best, lowest, chosen, forced, left = np.inf, SKY, NONE, False, first
        while left < last:
            if b.fresh[left] == 0:
                state = look(b, first, last, left)
                if state == DEAD:
                    return DEAD, NONE
                forced = forced or state == FORCED
            if b.key[left] < best and (every or b.floor[left] < lowest):
                best, lowest, chosen = b.key[left] if every else np.inf, b.floor[left], left
            c[WORK] += 1
            left = b.stop[left]
        if not forced:
            return OPEN, chosen


@inlined
def look(b: Board, first: int, last: int, left: int) -> int:
    """One plateau of sections [first, last), the one from `left` on: DEAD, FORCED or OPEN."""
    right, floor = left + 1, b.floor[left]
    while right < last and b.floor[right] == floor:
        right += 1
    shore = SKY if left == first else b.floor[left - 1]
    if right < last:
        shore = min(shore, b.floor[right])
    b.stop[left] = right
    b.key[left] = np.inf
    b.counters[WORK] += right - left
    state = OPEN
    if shore > floor:
        b.counters[WORK] += b.born[right] - b.born[left]
        spanning = tally(b, left, right)
        state, missing = valley(b, left, right, shore)
        spans = spanning != NONE and (shore == SKY or missing + b.size[spanning] > 0)
        b.only[left] = NONE
        if spans and state == OPEN and b.counters[RULES] & SPAN:
            b.key[left], b.pick[left], b.gap[left], b.only[left] = -1.0, left, NONE, spanning
    b.fresh[left] = state == OPEN
    if state == FORCED:
        for t in range(left, right):
            b.fresh[t] = 0
        touch(b, first, left, right)
    return state


@inlined
def touch(b: Board, first: int, start: int, end: int) -> None:
    """After the floor has moved over [start, end): the plateaus there and on both sides are not fresh.

    `first` is where their part begins. Proof that no other is concerned: what is known of a plateau depends
    on its own sections, on who may stand there, and on the heights beside it. Proof that it is enough when
    moves are taken back: of the moves that concern a plateau as it is in the end, think of the one taken
    back last. From then on the floor there is as in the end, and the plateau begins at `start`, at `end`, or
    where the walk to the left of `start` ends.
    """
    b.fresh[start] = b.fresh[end] = 0
    if start > first:
        t = start - 1
        while t > first and b.floor[t - 1] == b.floor[t]:
            t -= 1
        b.fresh[t] = 0


@inlined
def tally(b: Board, left: int, right: int) -> int:
    """Counts the buffers inside a plateau, as differences where they start and end; its spanning buffer."""
    for t in range(left, right):
        b.cover[t] = 0
        b.fill[t] = 0
        b.before[t] = SKY
        b.after[t] = SKY
    spanning = NONE
    for i in range(b.born[left], b.born[right]):
        start, end, size = b.start[i], b.end[i], b.size[i]
        if b.placed[i] != 0 or end > right:
            continue
        b.cover[start] += 1
        b.fill[start] += size
        if end < right:
            b.cover[end] -= 1
            b.fill[end] -= size
            b.before[end] = min(b.before[end], size)
        elif start == left and (spanning == NONE or size > b.size[spanning]):
            spanning = i
        if start > left:
            b.after[start - 1] = min(b.after[start - 1], size)
    return spanning


@inlined
def valley(b: Board, left: int, right: int, shore: int) -> tuple[int, int]:
    """A plateau lower than its neighbours: its verdict, and what its fullest section could lose.

    Where it is OPEN, its most urgent section is what to branch on.
    """
    run = SKY
    for t in range(right - 1, left - 1, -1):
        run = min(run, b.after[t])
        b.after[t] = run
    best, floor, rules = np.inf, b.floor[left], b.counters[RULES]
    run, cover, fill, missing, state = SKY, 0, 0, -SKY, OPEN
    for t in range(left, right):
        run = min(run, b.before[t])
        cover += b.cover[t]
        fill += b.fill[t]
        if shore < SKY:
            missing = max(missing, shore - floor - fill - b.slack[t])
        ends = min(shore, floor + min(run, b.after[t]), b.roof[t])
        if cover == 0 and shore < SKY:
            ends = shore
        afford = floor < ends < SKY and ends - floor <= b.slack[t]
        if (cover == 0 and not afford) or (rules & FILL and missing > 0):
            b.weight[t] += 1
            b.counters[DEAD_LEFT], b.counters[DEAD_SECTION] = left, t
            return DEAD, missing
        if cover == 0 and rules & GAPS:
            raise_floor(b, t, ends, left, right)
            state = FORCED
        elif state == OPEN:
            key = urgency(b, t, cover + afford)
            if key < best:
                best = key
                b.pick[left] = t
                b.gap[left] = ends if afford else NONE
    b.key[left] = best if state == OPEN else np.inf
    return state, missing


@inlined
def urgency(b: Board, t: int, alternatives: int) -> float:
    """Lowest first. Rules differ in what they trust; restarts go through all of them."""
    rule, weight, slack = b.counters[SECTION_RULE], b.weight[t], b.slack[t] / b.counters[CAPACITY]
    if not b.counters[RULES] & WEIGHTS:
        weight = 1.0
    if rule == BY_WEIGHT:
        return alternatives / weight + 1e-3 * slack
    if rule == BY_HEIGHT:
        return alternatives + 1e-3 * (slack + b.floor[t] / b.counters[CAPACITY])
    return alternatives + 1e-3 * slack


@inlined
def raise_floor(b: Board, t: int, height: int, left: int, right: int) -> None:
    """A gap at section t, forced by a plateau or chosen; taken back by the trail."""
    k = b.counters[TRAIL_COUNT]
    b.trail[k, 0] = t
    b.trail[k, 1] = b.floor[t]
    b.trail[k, 2] = left
    b.trail[k, 3] = right
    b.counters[TRAIL_COUNT] = k + 1
    b.slack[t] -= height - b.floor[t]
    lower(b, t, height - b.floor[t])
    b.floor[t] = height
