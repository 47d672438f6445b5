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

* either some unplaced buffer that lives wholly inside [left, right) and covers s lies on f,
* or there is a gap. Whatever ends the gap rests on a neighbour (not lower than ``nbr``, the lower of
  the two), or on something inside the plateau that does not cover s and lies on f or higher. So the
  gap reaches at least to ``g = min(nbr, f + smallest buffer inside that does not cover s)``.

A gap takes ``g - f`` from slack[s]; a section that cannot afford one must be covered, and a section
that nobody inside covers has its gap forced up to nbr, for whoever covers it reaches over the shore.

Two rules cut more. *Fill*: below nbr, only buffers inside the plateau can stand above s, so
``nbr - f - fill[s]`` is lost at least; more than slack[s] is a failure. *Span*: a buffer b that lives
exactly [left, right) and lies below nbr has only buffers inside beneath it, and b can change places
with all of them. If without b some section cannot be filled, b does lie below nbr; so put it on f.
"""

from __future__ import annotations

import numpy as np

from solver.layout.jit import inlined
from solver.layout.skyline_board import (
    ANY_PLATEAU,
    CAPACITY,
    FILL,
    GAPS,
    NONE,
    RULES,
    SECTION_RULE,
    SKY,
    SPAN,
    TRAIL_COUNT,
    WEIGHTS,
    Board,
)

__all__ = ["BY_HEIGHT", "BY_SLACK", "BY_WEIGHT", "DEAD", "OPEN", "OVERFLOW", "raise_floor", "survey"]

#: What a look at a valley, or at all of them, found.
DEAD, FORCED, OPEN, OVERFLOW = range(4)

#: What tells sections with equally few alternatives apart; weights divide their number.
BY_WEIGHT, BY_SLACK, BY_HEIGHT = range(3)


@inlined
def survey(b: Board, first: int, last: int, low: int, high: int) -> tuple[int, int, int, int]:
    """Forces gaps until none is forced, then picks the section of [first, last) to branch on.

    Buffers items[low:high] are unplaced there. Gives (OPEN, section, where its gap ends or NONE, the one
    buffer to put there or NONE), or DEAD, or OVERFLOW of the trail. O(sections + buffers) for each round
    of forced gaps.
    """
    while True:
        if b.counters[TRAIL_COUNT] + last - first > len(b.trail):
            return OVERFLOW, NONE, NONE, NONE
        outline(b, first, last)
        tally(b, first, low, high)
        state, section, gap, only = judge(b, first, last)
        if state != FORCED:
            return state, section, gap, only


@inlined
def outline(b: Board, first: int, last: int) -> None:
    """Finds the plateaus, and clears what is counted on them."""
    right = last
    for t in range(last - 1, first - 1, -1):
        if t + 1 < last and b.floor[t] != b.floor[t + 1]:
            right = t + 1
        b.stop[t] = right
        b.cover[t] = 0
        b.fill[t] = 0
        b.before[t] = SKY
        b.after[t] = SKY
        b.spanning[t] = NONE


@inlined
def tally(b: Board, first: int, low: int, high: int) -> None:
    """Counts the buffers inside plateaus, as differences where they start and end."""
    for k in range(low, high):
        i = b.items[k]
        start, end, size = b.start[i], b.end[i], b.size[i]
        stop = b.stop[start]
        if end > stop:
            continue
        b.cover[start] += 1
        b.fill[start] += size
        begins = start == first or b.floor[start - 1] != b.floor[start]
        if end < stop:
            b.cover[end] -= 1
            b.fill[end] -= size
            b.before[end] = min(b.before[end], size)
        elif begins and (b.spanning[start] == NONE or size > b.size[b.spanning[start]]):
            b.spanning[start] = i
        if not begins:
            b.after[start - 1] = min(b.after[start - 1], size)


@inlined
def judge(b: Board, first: int, last: int) -> tuple[int, int, int, int]:
    """Looks at every valley: (DEAD, FORCED or OPEN, section, gap, only)."""
    best, section, gap, only = np.inf, NONE, NONE, NONE
    forced = False
    rules = b.counters[RULES]
    lowest = SKY
    if not rules & ANY_PLATEAU:
        for t in range(first, last):
            lowest = min(lowest, b.floor[t])
    left = first
    while left < last:
        right, floor = b.stop[left], b.floor[left]
        shore = SKY if left == first else b.floor[left - 1]
        if right < last:
            shore = min(shore, b.floor[right])
        if shore > floor and floor <= lowest:
            state, key, here, ends, single = valley(b, left, right, shore, forced)
            if state == DEAD:
                return DEAD, NONE, NONE, NONE
            forced = forced or state == FORCED
            if key < best:
                best, section, gap, only = key, here, ends, single
            if not rules & ANY_PLATEAU:
                lowest = NONE
        left = right
    return FORCED if forced else OPEN, section, gap, only


@inlined
def valley(b: Board, left: int, right: int, shore: int, hurry: bool) -> tuple[int, float, int, int, int]:
    """One plateau: its verdict, and its best section with key, end of gap and only buffer."""
    run = SKY
    for t in range(right - 1, left - 1, -1):
        run = min(run, b.after[t])
        b.after[t] = run
    best, section, gap = np.inf, NONE, NONE
    floor, rules = b.floor[left], b.counters[RULES]
    run, cover, fill, missing, state = SKY, 0, 0, -SKY, OPEN
    for t in range(left, right):
        run = min(run, b.before[t])
        cover += b.cover[t]
        fill += b.fill[t]
        if shore < SKY:
            missing = max(missing, shore - floor - fill - b.slack[t])
        ends = min(shore, floor + min(run, b.after[t]))
        if cover == 0 and shore < SKY:
            ends = shore
        afford = ends < SKY and ends - floor <= b.slack[t]
        if (cover == 0 and not afford) or (rules & FILL and missing > 0):
            b.weight[t] += 1
            return DEAD, best, section, gap, NONE
        if cover == 0 and rules & GAPS:
            raise_floor(b, t, ends)
            state = FORCED
        elif state == OPEN and not hurry:
            key = urgency(b, t, cover + afford)
            if key < best:
                best, section, gap = key, t, ends if afford else NONE
    single = b.spanning[left]
    if rules & SPAN and state == OPEN and single != NONE and (shore == SKY or missing + b.size[single] > 0):
        return OPEN, -1.0, left, NONE, single
    return state, best, section, gap, NONE


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
def raise_floor(b: Board, t: int, height: int) -> None:
    """A gap at section t; taken back by the trail."""
    k = b.counters[TRAIL_COUNT]
    b.trail[k, 0] = t
    b.trail[k, 1] = b.floor[t]
    b.counters[TRAIL_COUNT] = k + 1
    b.slack[t] -= height - b.floor[t]
    b.floor[t] = height
