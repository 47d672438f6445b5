"""Which buffer a choice tries first, and how one run differs from the next.

    lshore |    |__________|     rshore      flush: ends level with a shore that it touches, so that two
           |    |    i     |__________       plateaus become one
           |____|__________|                 leans: touches a shore, so that no new valley opens there
           left            right

Packing by hand one does the same: what fits into a corner goes first, best of all where it levels the
floor (Burke, Kendall and Whitwell, *A new placement heuristic for the orthogonal stock-cutting problem*,
2004). Ties go by an order from `priorities`, with noise from the second way on, and runs differ in the
rule for sections, in the order, and in how much corners count: search times are heavy-tailed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from solver.layout.compiled.jit import inlined
from solver.layout.compiled.priorities import ORDERS
from solver.layout.compiled.skyline_state import (
    FIRST,
    FLOOR,
    GUIDED,
    LAST,
    LEANING,
    LEFT,
    NONE,
    ONLY,
    PROMOTION,
    RIGHT,
    RULES,
    SECTION,
    SECTION_RULE,
    SEED,
    SKY,
    TRIED,
    UNTRIED,
    WALLS,
    WORK,
    Board,
)
from solver.layout.compiled.skyline_survey import BY_HEIGHT, BY_SLACK, BY_WEIGHT
from solver.layout.model.instance import Integers

__all__ = ["ROUND", "candidate", "prepare", "raised"]

#: How much corners count: not at all, as many shores as are touched, or level ones before all.
PLAIN, LEAN, FLUSH = range(3)

#: Section rule (`skyline_survey.urgency`) and regard for corners, in the order of a round.
WAYS: Final = (
    (BY_WEIGHT, PLAIN),
    (BY_SLACK, PLAIN),
    (BY_WEIGHT, LEAN),
    (BY_HEIGHT, FLUSH),
)

#: Runs with the same node limit.
ROUND = ORDERS * len(WAYS)

#: More than any rank, and more than two shores.
SHORE, LEVEL = 1 << 52, 1 << 55

#: The hottest kind is tried so many of 2**20 parts of all places earlier than its order says.
HEAT = 1 << 19

#: Noise reaches so many of 2**20 parts of all places, up and down.
NOISE = 50_000


@inlined
def mix(x: Any) -> Any:
    """Spreads 64 bits over 64 bits, one to one (the finaliser of splitmix64, Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def prepare(b: Board, ranks: Integers, run: int) -> None:
    """Sets the ranks and rules of a run, and forgets the weights where the rule for sections changes.

    Weights kept for longer make every run repeat the last one's way. Kinds that were told apart stay so:
    the old rank breaks ties.
    """
    c, n = b.counters, len(b.rank)
    k = run // 2 if c[GUIDED] else run
    order, way = k % ORDERS, k // ORDERS % len(WAYS)
    c[SECTION_RULE], c[LEANING] = WAYS[way]
    if order == 0:
        b.weight[:] = 1.0
    if not c[RULES] & WALLS:
        c[LEANING] = PLAIN
    reach = 0 if k < ORDERS and c[SEED] == 0 else NOISE * n
    if c[GUIDED] and run % 2 == 1:
        order, reach = ORDERS, NOISE * n >> 2 * (k % 4)
    hottest = 1.0
    for i in range(n):
        hottest = max(hottest, b.heat[i])
    for i in range(n):
        rank = ranks[order, i]
        word = mix(mix(np.uint64(rank + 1)) + np.uint64(b.zone1[0]) + np.uint64(run))
        noise = np.int64(word >> np.uint64(2)) % (2 * reach + 1) - reach
        if c[RULES] & PROMOTION and c[GUIDED]:
            noise -= np.int64(HEAT * n * (b.heat[b.kind[i]] / hottest))
        b.rank[i] = ((rank << 20) + noise) // 64 * n + rank


@inlined
def candidate(b: Board, frame: int) -> int:
    """The most preferred buffer not yet tried that may stand at the section; moves TRIED on."""
    f = b.frames
    only, tried, floor = f[frame, ONLY], f[frame, TRIED], f[frame, FLOOR]
    best, lowest = NONE, SKY
    if only != NONE:
        # A spanning buffer: only where neither strides nor pins matter.
        if tried == UNTRIED and floor + b.size[only] <= b.limit[only]:
            best = only
    elif tried < SKY:
        section, left, right = f[frame, SECTION], f[frame, LEFT], f[frame, RIGHT]
        before = b.floor[left - 1] if left > f[frame, FIRST] else SKY
        after = b.floor[right] if right < f[frame, LAST] else SKY
        b.counters[WORK] += b.born[section + 1] - b.born[left]
        for i in range(b.born[left], b.born[section + 1]):
            end, bottom = b.end[i], raised(b, i, floor)
            top = bottom + b.size[i]
            if (
                b.placed[i] == 0
                and section < end <= right
                and top <= b.limit[i]
                and stands(b, i, bottom, bottom - floor)
            ):
                first = preference(b, i, b.start[i] == left, end == right, top == before, top == after)
                if tried < first < lowest:
                    best, lowest = i, first
    f[frame, TRIED] = lowest
    return best


@inlined
def raised(b: Board, i: int, floor: int) -> int:
    """Where buffer i can begin at or above the floor; no floor is above an unplaced pin."""
    pin, stride = int(b.pin[i]), int(b.stride[i])
    return (floor + stride - 1) & -stride if pin == NONE else pin


@inlined
def stands(b: Board, i: int, bottom: int, padding: int) -> bool:
    """Whether so much can be lost under buffer i, and no pin lies under it or in its way."""
    enough, top = True, bottom + b.size[i] if b.pin[i] == NONE else bottom
    if padding > 0 or len(b.pins) > 0:
        for t in range(b.start[i], b.end[i]):
            enough = enough and padding <= b.slack[t] and top <= b.roof[t]
    return enough


@inlined
def preference(b: Board, i: int, leans: bool, hugs: bool, joins: bool, meets: bool) -> int:
    """Lowest first: level with the left or right shore that it touches, touching one, then by rank."""
    regard, rank = b.counters[LEANING], int(b.rank[i])
    if regard != PLAIN:
        rank -= SHORE * (leans + hugs)
    if regard == FLUSH:
        rank -= LEVEL * ((leans and joins) + (hugs and meets))
    return rank
