"""Which buffer a choice tries first, and how one run differs from the next.

      left |    |__________|     right     flush: ends level with a neighbour that it touches, so that two
 neighbour |    |    i     |__________     plateaus become one
           |____|__________|               leans: touches a neighbour, so that no new niche opens there
           left            right

Packing by hand one does the same: what fits into a corner goes first, best of all where it levels the
skyline (Burke, Kendall and Whitwell, *A new placement heuristic for the orthogonal stock-cutting problem*,
2004). Ties go by an order from `priorities`, with noise from the second way on, and runs differ in the
rule for sections, in the order, and in how much corners count: search times are heavy-tailed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from solver.layout.kernels.priorities import ORDERS
from solver.layout.kernels.skyline_state import (
    FIRST,
    GUIDED,
    INFINITY,
    LAST,
    LEANING,
    LEFT,
    NOISE,
    NONE,
    ONLY,
    PART,
    PROMOTION,
    RIGHT,
    RULES,
    SECTION,
    SECTION_RULE,
    SEED,
    SEEDS,
    TRIED,
    UNTRIED,
    WALLS,
    WORK,
    SearchState,
    Short,
    own,
)
from solver.layout.kernels.skyline_survey import BY_HEIGHT, BY_SLACK, BY_WEIGHT
from solver.native import inlined

__all__ = ["ROUND", "candidate", "prepare", "raised"]

#: How much corners count: not at all, as many neighbours as are touched, or level ones before all.
PLAIN, LEAN, FLUSH = range(3)

#: Row of `priorities`, section rule (`skyline_survey.urgency`), regard for corners, in the order of a round.
#: The first seven each solve most of what those before them leave, of 180 problems cut out of layouts of
#: MiniMalloc's at 1,000 nodes a run; the third is for training steps that were made small. Those after them
#: are for problems that take hundreds of runs: combinations, each once, of the orders, rules and corners that
#: answer most often there. Level ones before all answers 1.3 to 2.6 times as often as the mean, not at all
#: half as often.
WAYS: Final = (
    (2, BY_HEIGHT, PLAIN),
    (0, BY_HEIGHT, PLAIN),
    (1, BY_WEIGHT, PLAIN),
    (1, BY_HEIGHT, FLUSH),
    (2, BY_SLACK, FLUSH),
    (5, BY_WEIGHT, FLUSH),
    (0, BY_WEIGHT, PLAIN),
    (3, BY_WEIGHT, FLUSH),
    (4, BY_SLACK, FLUSH),
    (5, BY_WEIGHT, LEAN),
    (0, BY_HEIGHT, FLUSH),
    (2, BY_WEIGHT, FLUSH),
    (3, BY_SLACK, FLUSH),
    (6, BY_SLACK, FLUSH),
    (3, BY_SLACK, PLAIN),
    (5, BY_HEIGHT, FLUSH),
    (0, BY_WEIGHT, FLUSH),
    (4, BY_HEIGHT, FLUSH),
    (3, BY_HEIGHT, FLUSH),
    (2, BY_HEIGHT, FLUSH),
    (6, BY_HEIGHT, LEAN),
    (5, BY_SLACK, FLUSH),
    (0, BY_SLACK, FLUSH),
    (4, BY_WEIGHT, FLUSH),
    (2, BY_SLACK, LEAN),
    (6, BY_WEIGHT, FLUSH),
    (3, BY_SLACK, LEAN),
    (4, BY_SLACK, PLAIN),
)

#: Runs with the same node limit.
ROUND = len(WAYS)

#: So many runs share the weights of sections, and the first so many of the first seed go without noise.
SHARED = 7

#: More than any rank, and more than two touches.
TOUCH, LEVEL = 1 << 52, 1 << 55

#: The most active kind is tried so many of 2**20 parts of all places earlier than its order says.
PROMOTED = 1 << 19

#: Noise reaches so many of 2**20 parts of all places, up and down; that around a layout less, and less again
#: in each of four runs.
REACH = 150_000
REACH_GUIDED = 50_000


@inlined
def mix(x: Any) -> Any:
    """Spreads 64 bits over 64 bits, one to one (the finaliser of splitmix64, Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def prepare(s: SearchState, ranks: Short, run: int) -> None:
    """Sets the ranks and rules of a run, and forgets the weights now and then.

    Weights kept for longer make every run repeat the last one's way. Kinds that were told apart stay so:
    the old rank breaks ties. The second seed is half a round ahead, for two that take turns to differ.
    """
    c, n = s.counters, len(s.rank)
    k = run // 2 if c[GUIDED] else run
    order, c[SECTION_RULE], c[LEANING] = WAYS[(k + c[SEED] * ROUND // SEEDS) % ROUND]
    if k % SHARED == 0:
        s.weight[:] = 1
    if not c[RULES] & WALLS:
        c[LEANING] = PLAIN
    reach = 0 if k < SHARED and c[SEED] == 0 else REACH * n
    if c[GUIDED] and run % 2 == 1:
        order, reach = ORDERS, REACH_GUIDED * n >> 2 * (k % 4)
    most_active = 1.0
    for i in range(n):
        most_active = max(most_active, s.activity[i])
    for i in range(n):
        rank = np.int64(ranks[order, i])
        word = mix(mix(np.uint64(rank + 1)) + np.uint64(c[NOISE]) + np.uint64(run))
        noise = np.int64(word >> np.uint64(2)) % (2 * reach + 1) - reach
        if c[RULES] & PROMOTION and c[GUIDED]:
            noise -= np.int64(PROMOTED * n * (s.activity[s.kind[i]] / most_active))
        s.rank[i] = ((rank << 20) + noise) // 64 * n + rank


@inlined
def candidate(s: SearchState, frame: int) -> int:
    """The most preferred buffer not yet tried that may stand at the section; moves TRIED on."""
    f, part = s.niches, s.frames[frame, PART]
    only, tried, height = f[frame, ONLY], s.waits[frame, TRIED], s.skyline[f[frame, LEFT]]
    best, lowest = NONE, INFINITY
    if only != NONE:
        # A spanning buffer: only where neither strides nor pins matter.
        if tried == UNTRIED and height + s.size[only] <= own(s.limit, only):
            best = only
    elif tried < INFINITY:
        section, left, right = f[frame, SECTION], f[frame, LEFT], f[frame, RIGHT]
        before = s.skyline[left - 1] if left > s.reaches[part, FIRST] else INFINITY
        after = s.skyline[right] if right < s.reaches[part, LAST] else INFINITY
        s.counters[WORK] += s.born[section + 1] - s.born[left]
        for i in range(s.born[left], s.born[section + 1]):
            end, bottom = s.end[i], raised(s, i, height)
            top = bottom + s.size[i]
            if (
                s.placed[i] == 0
                and section < end <= right
                and top <= own(s.limit, i)
                and stands(s, i, bottom, bottom - height)
            ):
                first = preference(s, i, s.start[i] == left, end == right, top == before, top == after)
                if tried < first < lowest:
                    best, lowest = i, first
    s.waits[frame, TRIED] = lowest
    return best


@inlined
def raised(s: SearchState, i: int, height: int) -> int:
    """Where buffer i can begin at or above this height; the skyline is never above an unplaced pin."""
    pin, stride = own(s.pin, i), own(s.stride, i)
    return (height + stride - 1) & -stride if pin == NONE else pin


@inlined
def stands(s: SearchState, i: int, bottom: int, padding: int) -> bool:
    """Whether so much can be lost under buffer i, and no pin lies under it or in its way."""
    enough, top = True, bottom + s.size[i] if own(s.pin, i) == NONE else bottom
    if padding > 0 or len(s.pins) > 0:
        for t in range(s.start[i], s.end[i]):
            enough = enough and padding <= s.slack[t] and top <= own(s.roof, t)
    return enough


@inlined
def preference(s: SearchState, i: int, leans: bool, hugs: bool, joins: bool, meets: bool) -> int:
    """Lowest first: level with the left or right neighbour that it touches, touching one, then by rank."""
    regard, rank = s.counters[LEANING], int(s.rank[i])
    if regard != PLAIN:
        rank -= TOUCH * (leans + hugs)
    if regard == FLUSH:
        rank -= LEVEL * ((leans and joins) + (hugs and meets))
    return rank
