"""The compiled skyline branch and bound: can these buffers stand in `capacity`?

Depth first over *parts* (stretches of sections that unplaced buffers join) with an explicit stack::

    agenda  HEAD -> part -> part -> part        solved one by one; empty: everything fits
    frames  choice, choice, choice              each with the part it belongs to

A part is surveyed (`survey`), which ends in a failure, or in a section to branch on: first
every buffer inside the plateau that covers it goes onto the skyline, by priority, then it is wasted.
Where a placement cuts the part in two or more, the pieces share no buffer, so each is solved by
itself; a piece without a solution refutes the choice that made it, whatever its siblings do, and the
search goes back to that choice at once.

A failure says which sections have caused it; choices that have nothing to do with them are undone
without trying the rest of their alternatives.

A part that has been refuted is remembered by two independent hashes over what decides its fate: the
headroom of its sections and the multiset of its unplaced buffers (`known`). With k states met, the
chance that any of them was ever wrongly taken for refuted is below ``k**2 / 2**123``.
The skyline view follows MiniMalloc (ASPLOS 2023), the weights dom/wdeg (Boussemart et al., 2004).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.kernels.priorities import ORDERS
from solver.layout.model.heap import paged
from solver.layout.model.instance import FREE, Indices, Instance, Integers
from solver.native import compiled, inlined

__all__ = [
    "LEARNT",
    "PATH",
    "SEARCHABLE",
    "SearchState",
    "Short",
    "allocate",
    "made",
    "race",
    "unchanged",
]


# ------------------------------------------------------------------------------------------------------------
# Memory of the compiled skyline search: plain arrays, allocated once, of stated size.
#
# Everything is in whole units (the common divisor of all sizes). What is changed on the way down is
# written to a trail and taken back on the way up, so a node costs a few numbers, not a copy:
#
#     frames, niches, waits   one per choice on the current path
#     parts, reaches, sums    one per stretch of sections still to solve
#     trail                   one per placement, or waste next to waste
#
# Numbers of buffers and sections take two bytes each, of parts and frames four; heights, hashes and
# explanations take eight. So each kind has rows of its own. What all buffers have alike is there once: `own`.
#
# What a look at a plateau has found is kept under its first section while it is `fresh`: until the skyline
# there or beside it moves, or a failure makes one of its sections heavier. A node looks at what has changed
# only. The look itself counts in the memory of what is kept under all sections of its plateau. Proof that
# nothing is lost: a section that is not the first of a plateau is not fresh, or was the first of an earlier
# part; to be the first again the skyline has to move on one side of it alone, which ends freshness, or a part
# has to begin there, which does, too.
#
# A path places each buffer at most once, so these grow with the depth, which is n plus the number of
# sections wasted. When they are full the search answers "out of memory" and the caller may give it more.


Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.int8]
Short: TypeAlias = npt.NDArray[np.int16]

#: The most buffers, and sections, of a search: their numbers take two bytes.
SEARCHABLE: Final = (1 << 15) - 1

#: Higher than any skyline.
INFINITY: Final = 1 << 61
#: What hashes are residues of.
PRIME: Final = (1 << 61) - 1
#: Explanations tell so many stretches of sections apart, as bits of one number.
STRETCHES: Final = 62
#: Waste is forced in many sections at a time, section by section.
TRAIL_PER_FRAME: Final = 8
#: No part, no buffer.
NONE: Final = -1
#: Failures are counted up to here, in four bytes.
MOST: Final = (1 << 31) - 1
#: Less than any preference.
UNTRIED: Final = -INFINITY

# Fields of a part: frames left if it fails, next part; how far it reaches: sections [FIRST, LAST) and COUNT
# unplaced buffers; and of its sums, the hashes: those of its begin, and once it is looked at, those that its
# choice begins with. A part is looked at once before it is dropped.
PARENT, NEXT = range(2)
PART_FIELDS: Final = 2
FIRST, LAST, COUNT = range(3)
REACH_FIELDS: Final = 3
ONE, TWO = range(2)
SUM_FIELDS: Final = 2
# Fields of a frame. PART is what it is a choice of; PARTS and TRAIL say how many there were before. Of its
# niche, LEFT and RIGHT are the plateau branched on, ONLY is the one buffer to try. And what it waits for:
# TRIED is the preference last placed there, WASTE where waste ends; NONE: no more. EXPLANATION says why the
# alternatives tried so far have failed.
PART, PARTS, TRAIL = range(3)
FRAME_FIELDS: Final = 3
LEFT, RIGHT, SECTION, ONLY = range(4)
NICHE_FIELDS: Final = 4
WASTE, TRIED, EXPLANATION = range(3)
WAIT_FIELDS: Final = 3

# What is kept of a plateau: its most urgent section, and the one buffer to try there, or NONE.
PICK, SOLE = range(2)
PICK_FIELDS: Final = 2

# An entry of the trail: a section and its height before the waste; or NONE - i and the padding under buffer
# i. Entries are most of what a path takes, so the first number has the section, or NONE - i, from bit WHAT
# on, and below it the ends of the plateau that forced the waste: the right one from bit ENDS on, and one more
# than the left one. 0 and BEYOND, which no section reaches: nothing has forced it. One entry stands for
# sections next to each other that one look at a plateau wastes: the height is from bit counters[SPARE] on,
# and below it how many more there are, as many as fit beside heights up to the capacity.
TRAIL_FIELDS: Final = 2
ENDS: Final = 21
WHAT: Final = 2 * ENDS
BEYOND: Final = (1 << ENDS) - 1

# A refuted state: two hashes, and what explains it. They stand in the order in which they came, in memory as
# far as they go; a slot of the table says which, from 1 on.
REFUTED_FIELDS: Final = 3

# Slots of `counters`. WORK is buffers and sections looked at; LIMIT and WORK_LIMIT end a run, a search.
# RUNS have been made, the last FULLS of them ended by the depth. The search comes back where it has made
# UNTIL runs, and at PAUSE work (0: never), in the middle of a run, which GOING tells. HASH1 and HASH2 are of
# the part being looked at. GUIDED: the last row of priorities is a layout's, and every other run's. CAUSE
# explains the last failure; DEAD_LEFT and DEAD_SECTION say where a look has met it. SPARE bits of a height
# are free for other use. KNOWN states are refuted, through all questions. NOISE tells seeds apart.
(
    NODES, LIMIT, WORK, WORK_LIMIT, FRAME_COUNT, PART_COUNT, TRAIL_COUNT, HEAD, CAPACITY, RULES,
    SECTION_RULE, LEANING, HITS, SEED, RUNS, FULLS, UNTIL, PAUSE, GOING, HASH1, HASH2, GUIDED,
    CAUSE, DEAD_LEFT, DEAD_SECTION, SPARE, KNOWN, NOISE, COUNTERS,
) = range(29)  # fmt: skip
# Slots of `signals`, shared by searches that race: stop now; the first turn that found an answer.
STOP, BEST = range(2)
#: Searches that race. They take turns, a run each: turn `SEEDS * run + seed`.
SEEDS: Final = 2

# What the search answers; PAUSED: to be called again as it is.
NO, YES, UNKNOWN, FULL, PAUSED = range(5)

# Rules, as bits of counters[RULES].
ANY_PLATEAU, FORCED_WASTE, TABLE, DECOMPOSE, WEIGHTS, FILL, SPAN, WALLS, JUMPS, PROMOTION = (
    1 << k for k in range(10)
)


class SearchState(NamedTuple):
    """Arrays over buffers, over sections, over depth; see the comments for what they hold."""

    # buffers, by start
    start: Short
    end: Short
    size: Integers
    stride: Integers  # of `own`; offsets are multiples of this power of two
    pin: Integers  # of `own`; the offset that is given, or NONE
    limit: Integers  # of `own`; the buffer must end at or below this
    rank: Integers  # priority, lowest first; where the answer is YES, the offset instead
    key1: Integers  # hashes are below PRIME
    key2: Integers
    kind: Short  # equal for buffers that can take each other's place, and so are their ranks
    activity: Indices  # of a kind: how often it was placed too late
    placed: Flags
    pins: Short  # the buffers that are pinned
    # sections (one more than there are, so that "one past the last" is addressable)
    born: Short  # the first buffer that starts here or later
    skyline: Integers
    roof: Integers  # of `own`; the lowest unplaced pin over it
    slack: Integers  # room that waste may still take: capacity - skyline - what is unplaced there
    bit: Flags  # the number of the bit of its stretch
    zone1: Integers  # the hash of all sections before it, which differs from the next one's by its own number
    zone2: Integers
    crossing: Short  # unplaced buffers alive both before and after the boundary on the left
    live: Short  # unplaced buffers
    weight: Indices  # grows with every failure here
    # sections of the plateau that is looked at
    cover: Short  # buffers inside it that cover this section, in the memory of `stop`
    fill: Integers  # and their total size, in that of `picks`
    before: Integers  # smallest buffer inside it that ends at or before this section, in that of `waste`
    after: Integers  # smallest that starts after it, in that of `key`
    # plateaus, under their first section
    fresh: Flags  # whether all of these hold
    stop: Short  # one past the plateau
    key: Floats  # how urgent its most urgent section is; infinite where there is nothing to decide
    picks: Indices
    waste: Integers  # where waste there would end, or NONE
    # depth
    parts: Indices
    reaches: Short
    sums: Integers
    frames: Indices
    niches: Short
    waits: Integers
    trail: Integers
    # refuted states: two independent hashes each, and why
    table: Indices
    refuted: Integers
    counters: Integers
    signals: Integers


#: Arrays of a state that no search changes; those that hold a run, from its begin to its end; and those that
#: say what is refuted, which is so for every seed.
SAME: Final = ("start", "end", "size", "stride", "pin", "limit", "kind", "pins", "born", "bit")
PATH: Final = (
    "rank", "placed",
    "skyline", "roof", "slack", "crossing", "live", "cover", "fill", "before", "after",
    "fresh", "stop", "key", "picks", "waste",
    "parts", "reaches", "sums", "frames", "niches", "waits", "trail",
)  # fmt: skip
LEARNT: Final = ("key1", "key2", "zone1", "zone2", "table", "refuted")


@inlined
def own(numbers: Integers, i: int) -> int:
    """The number of buffer or section i, where there may be one for all."""
    return int(numbers[min(i, len(numbers) - 1)])


def allocate(
    instance: Instance,
    unit: int,
    limit: Integers,
    table_bits: int,
    depth: int,
    signals: Integers,
    seed: int,
) -> SearchState:
    """Arrays for a search among buffers in the order of their starts, by themselves: `unchanged`, `made`."""
    same = unchanged(instance, np.arange(len(instance)), unit, kinds(instance))
    return made({**same, "limit": limit}, table_bits, depth, signals, seed)


def made(
    same: Mapping[str, npt.NDArray[Any]],
    table_bits: int,
    depth: int,
    signals: Integers,
    seed: int,
    shared: Mapping[str, npt.NDArray[Any]] = MappingProxyType({}),
) -> SearchState:
    """Arrays for a search with those of `SAME`. `shared`: all of `PATH`, or of `LEARNT`, or both, of another.

    They take about ``28 * 2**table_bits + 200 * depth + 120 * n`` bytes; what grows with the depth or with
    what is refuted is in memory only as far as it goes, for it is written before it is read.
    """
    n, width, kind = len(same["size"]), len(same["born"]), same["kind"]
    rng, count = np.random.default_rng([seed, 0x5EED]), int(kind.max(initial=-1)) + 1
    arrays: dict[str, Any] = {**same, **shared}
    if PATH[0] not in arrays:
        arrays |= path(n, width, depth, pinned=len(same["pins"]) > 0)
    arrays["activity"], arrays["weight"] = np.zeros(n, np.int32), np.ones(width, np.int32)
    arrays["counters"], arrays["signals"] = np.zeros(COUNTERS, np.int64), signals
    # A search that shares draws the same numbers and keeps one of them.
    keep = LEARNT[0] not in arrays
    for name in ("key1", "key2"):
        drawn = rng.integers(0, PRIME, count)
        if keep:
            arrays[name] = drawn[kind]
    drawn = rng.integers(0, PRIME, width)
    arrays["counters"][NOISE] = drawn[0]
    if keep:
        arrays["zone1"], arrays["zone2"] = _sums(drawn), _sums(rng.integers(0, PRIME, width))
        arrays["table"] = paged(1 << table_bits, cleared=True, of=np.int32)
        arrays["refuted"] = paged(1 << table_bits, REFUTED_FIELDS)
    return SearchState(**arrays)


def unchanged(instance: Instance, order: Integers, unit: int, kind: Integers) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `SAME` for buffers in this order, by start; their limits are not set yet.

    `kind` is what `kinds` gives. Raises ValueError for more than `SEARCHABLE` buffers or sections.
    """
    n, width = len(instance), instance.sections + 1
    if max(n, width - 1) > SEARCHABLE:
        raise ValueError(
            f"{n:,} buffers over {width - 1:,} sections are too many to search; {SEARCHABLE:,} are not"
        )
    start, pinned = instance.start[order].astype(np.int16), instance.pinned
    padded = bool((instance.size != instance.exact).any())
    return {
        "start": start,
        "end": instance.end[order].astype(np.int16),
        "size": instance.size[order] // unit,
        "stride": _alike(strides(instance, unit)[order]),
        "pin": _pins(instance, order, unit) if pinned else np.full(1, NONE),
        "pins": np.flatnonzero(instance.offset[order] != FREE).astype(np.int16),
        "limit": np.zeros(n if padded else 1, np.int64),
        "kind": kind[order].astype(np.int16),
        "born": np.searchsorted(start, np.arange(width)).astype(np.int16),
        "bit": (np.arange(width) // -(-width // STRETCHES)).astype(np.int8),
    }


def _alike(numbers: Integers) -> Integers:
    """The one number where all are the same: see `own`."""
    return numbers[:1].copy() if bool((numbers == numbers[:1]).all()) else numbers


def _pins(instance: Instance, order: Integers, unit: int) -> Integers:
    offset = instance.offset[order]
    return np.where(offset == FREE, NONE, offset // unit)


def path(n: int, width: int, depth: int, *, pinned: bool) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `PATH` for so many buffers, sections and one more, and choices."""
    stop, key = np.zeros(width, np.int16), np.zeros(width)
    picks, waste = np.zeros((width, PICK_FIELDS), np.int32), np.zeros(width, np.int64)
    return {
        "rank": np.zeros(n, np.int64),
        "placed": np.zeros(n, np.int8),
        "skyline": np.zeros(width, np.int64),
        "roof": np.full(width if pinned else 1, INFINITY),
        "slack": np.zeros(width, np.int64),
        "crossing": np.zeros(width, np.int16),
        "live": np.zeros(width, np.int16),
        "cover": stop,
        "fill": picks.view(np.int64).reshape(width),
        "before": waste,
        "after": key.view(np.int64),
        "fresh": np.zeros(width, np.int8),
        "stop": stop,
        "key": key,
        "picks": picks,
        "waste": waste,
        "parts": paged(depth + width, PART_FIELDS, of=np.int32),
        "reaches": paged(depth + width, REACH_FIELDS, of=np.int16),
        "sums": paged(depth + width, SUM_FIELDS),
        "frames": paged(depth, FRAME_FIELDS, of=np.int32),
        "niches": paged(depth, NICHE_FIELDS, of=np.int16),
        "waits": paged(depth, WAIT_FIELDS),
        "trail": paged(TRAIL_PER_FRAME * depth + 2 * width, TRAIL_FIELDS),
    }


def _sums(numbers: Integers) -> Integers:
    """The sum of all before each number, modulo the prime; the last number is left out.

    Halves have sums that fit. As ``2**61`` is 1, ``high * 2**31`` is ``high >> 30`` and ``2**31`` times what
    is left of it, its lowest 30 bits.
    """
    sums = np.zeros_like(numbers)
    high, low = (numbers[:-1] >> 31).cumsum(), (numbers[:-1] & (1 << 31) - 1).cumsum()
    sums[1:] = ((high >> 30) + ((high & (1 << 30) - 1) << 31) + low) % PRIME
    return sums


def strides(instance: Instance, unit: int) -> Integers:
    """Alignments in units, at least 1: what divides the unit is kept by itself."""
    return np.maximum(1, instance.alignment // unit)


def kinds(instance: Instance) -> Integers:
    """Equal numbers, from 0, for buffers that can take each other's place.

    Proof that one of a kind need be tried: exchange two of equal lifespan, size and alignment, neither of
    them pinned, in any layout, and it is a layout of the same peak; so at a node, a second one of a kind
    leads where the first one led. Inverse: none is needed, every buffer gets an offset of its own.
    """
    stride = strides(instance, instance.unit)
    rows = (instance.offset, stride, instance.exact, instance.size, instance.end, instance.start)
    order = np.lexsort(rows)
    differs = np.zeros(len(instance), np.bool_)
    for row in rows:
        differs[1:] |= np.diff(row[order]) != 0
    found = np.empty(len(instance), dtype=np.int64)
    found[order] = np.cumsum(differs)
    return found


# ------------------------------------------------------------------------------------------------------------
# What has been refuted, remembered by two hashes of 61 bits.
#
# The fate of a part depends on the headroom (capacity - skyline) of its sections and on the multiset of
# its unplaced buffers, and on nothing else; so what is learnt holds for every later run, and at every
# capacity of the same remainder by the unit and by the largest alignment. A hash is a sum modulo the prime
# ``2**61 - 1``::
#
#     headroom of each section x a random number of the section  +  a random number of each buffer's kind
#
# For any two different states the numbers drawn at the start make it agree with a chance of 1 / prime, and
# both hashes with a chance of ``2**-122`` (Carter and Wegman, *Universal classes of hash functions*, 1979).
# As the sum is linear, a placement changes it by one product, and so does waste. What is kept of the numbers
# of sections are sums from the first section on, so that those of a lifespan come by one subtraction.


_HALF: Final = (1 << 31) - 1
_REST: Final = (1 << 30) - 1


@inlined
def fold(x: int) -> int:
    """The same residue, below ``2**61 + 4``."""
    return (x & PRIME) + (x >> 61)


@inlined
def plus(x: int, y: int) -> int:
    """The sum of two residues."""
    total = x + y
    return total - PRIME if total >= PRIME else total


@inlined
def times(x: int, y: int) -> int:
    """The product of a number below ``2**62`` and a residue.

    With ``x = a * 2**31 + b`` and ``y = c * 2**31 + d`` it is ``2 * ac + (ad + bc) * 2**31 + bd``, as
    ``2**62 = 2``; the middle is cut at 30 bits, so that its upper part comes round as ``2**61 = 1``. No sum
    reaches ``2**63``.
    """
    a, b, c, d = x >> 31, x & _HALF, y >> 31, y & _HALF
    middle = a * d + b * c
    total = fold(2 * (a * c)) + fold(b * d) + (middle >> 30) + ((middle & _REST) << 31)
    total = fold(total)
    return total - PRIME if total >= PRIME else total


@inlined
def between(zone: Integers, first: int, last: int) -> int:
    """The random numbers of sections [first, last), added up."""
    return plus(int(zone[last]), PRIME - int(zone[first]))


@inlined
def place(s: SearchState, i: int, padding: int) -> None:
    """The hashes after buffer i is placed, with so much free below: headroom goes, and so does the buffer."""
    c, height = s.counters, int(s.size[i]) + padding
    one = times(height, between(s.zone1, s.start[i], s.end[i]))
    two = times(height, between(s.zone2, s.start[i], s.end[i]))
    c[HASH1] = plus(c[HASH1], PRIME - plus(one, s.key1[i]))
    c[HASH2] = plus(c[HASH2], PRIME - plus(two, s.key2[i]))


@inlined
def state(s: SearchState, first: int, last: int) -> tuple[int, int, int]:
    """How many buffers are unplaced in a part, and its two hashes."""
    count, one, two = 0, 0, 0
    for t in range(first, last):
        room = s.counters[CAPACITY] - s.skyline[t]
        one = plus(one, times(room, between(s.zone1, t, t + 1)))
        two = plus(two, times(room, between(s.zone2, t, t + 1)))
    for i in range(s.born[first], s.born[last]):
        if s.placed[i] == 0:
            count += 1
            one, two = plus(one, s.key1[i]), plus(two, s.key2[i])
    return count, one, two


@inlined
def lower(s: SearchState, t: int, height: int) -> None:
    """The hashes of the part being looked at, after waste of this height at section t."""
    c = s.counters
    c[HASH1] = plus(c[HASH1], PRIME - times(height, between(s.zone1, t, t + 1)))
    c[HASH2] = plus(c[HASH2], PRIME - times(height, between(s.zone2, t, t + 1)))


@inlined
def known(s: SearchState, one: int, two: int) -> bool:
    """Whether this state is among the refuted; then the cause is what explained it."""
    slot = two & (len(s.table) - 1)
    near = slot ^ 1
    found = s.table[slot] - 1
    if found == NONE or s.refuted[found, 0] != one or s.refuted[found, 1] != two:
        found = s.table[near] - 1
        if found != NONE and (s.refuted[found, 0] != one or s.refuted[found, 1] != two):
            found = NONE
    if found != NONE:
        s.counters[CAUSE] = s.refuted[found, 2]
    return found != NONE


@inlined
def remember(s: SearchState, one: int, two: int) -> None:
    """Keeps a refuted state and its cause; where both of its places are taken, one of the two makes room."""
    slot = two & (len(s.table) - 1)
    if s.table[slot] != 0 and (s.table[slot ^ 1] == 0 or one & 1):
        slot ^= 1
    if s.table[slot] == 0:
        s.counters[KNOWN] += 1
        s.table[slot] = s.counters[KNOWN]
    row = s.table[slot] - 1
    s.refuted[row, 0] = one
    s.refuted[row, 1] = two
    s.refuted[row, 2] = s.counters[CAUSE]


# ------------------------------------------------------------------------------------------------------------
# Plateau, niche, waste and slack: what one look at the skyline forces, rules out, and offers to branch on.
#
#          C _________________________________________
#                                                       slack[s]: the part of C - skyline[s] that the
#     skyline  ______                                   unplaced buffers over s do not need
#             |      |             _______
#          ___|      |            |           g         where waste at s would end
#                    |    waste   |
#                    |____[s]_____|           f         a niche: a plateau lower than both neighbours
#             ------ left ------- right ------ sections
#
# Move every buffer of a layout down as far as it goes. Then above section s of a niche
#
# * either some unplaced buffer that lives wholly inside [left, right) and covers s lies on f, or as little
#   above it as its alignment asks for, with nothing beneath it: the padding comes off the slack,
# * or the bytes above s are wasted. What ends the waste rests on a neighbour (not lower than ``nbr``, the
#   lower of the two), or above something inside the niche that does not cover s and lies on f or higher. So
#   the waste reaches at least to ``g = min(nbr, f + smallest buffer inside that does not cover s)``.
#
# Waste takes ``g - f`` from slack[s]; a section that cannot afford it must be covered, and a section that no
# buffer inside covers is wasted up to nbr, because the buffers that cover it reach over a neighbour.
#
# A pin lies at its offset o or nowhere. It can be placed once it is the lowest above all of its sections;
# what is free between f and o is padding, nothing is placed across it, and waste ends at o if not before.
#
# Two rules cut more. *Fill*: below nbr, only buffers inside the niche can stand above s, so
# ``nbr - f - fill[s]`` is lost at least; more than slack[s] is a failure. *Span*: a buffer i that lives
# exactly [left, right) and lies below nbr has only buffers inside beneath it, and i can change places
# with all of them. If without i some section cannot be filled, i does lie below nbr; so put it on f.


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


# ------------------------------------------------------------------------------------------------------------
# Which buffer a choice tries first, and how one run differs from the next.
#
#       left |    |__________|     right     flush: ends level with a neighbour that it touches, so that two
#  neighbour |    |    i     |__________     plateaus become one
#            |____|__________|               leans: touches a neighbour, so that no new niche opens there
#            left            right
#
# Packing by hand one does the same: what fits into a corner goes first, best of all where it levels the
# skyline (Burke, Kendall and Whitwell, *A new placement heuristic for the orthogonal stock-cutting problem*,
# 2004). Ties go by an order from `priorities`, with noise from the second way on, and runs differ in the
# rule for sections, in the order, and in how much corners count: search times are heavy-tailed.


#: How much corners count: not at all, as many neighbours as are touched, or level ones before all.
PLAIN, LEAN, FLUSH = range(3)

#: Row of `priorities`, section rule (`urgency`), regard for corners, in the order of a round.
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


# ------------------------------------------------------------------------------------------------------------
# Why a part of the compiled search failed: how far to go back, and which buffers to try earlier from now on.
#
# An *explanation* is a set of sections that proves the failure by itself: given their heights, and the
# unplaced buffers that live there, no layout exists, wherever the buffers of other sections lie::
#
#                         | p |            the buffers over t that cross p or q lie on the lower neighbour or
#     neighbour __________|   |            above it; with what else is over t they reach beyond C, or they
#             | q |       |   |            waste more than t can afford: {q, t, p} explains the failure
#             |   |___[t]_|   |
#
# Waste that was forced at t has the same three sections for a reason. What explains each alternative of a
# choice at section s, together with the sections its buffers would cover and both neighbours, explains that
# the choice fails: the lowest buffer above s crosses a neighbour, or is one of the alternatives, or lies on a
# buffer that meets one. A choice that touches no section of the explanation of what came after it has not
# caused the failure, and its other alternatives would fail in the same way: the search goes on back
# (conflict-directed backjumping, Prosser, 1993). Explanations are kept as bits, one for each of `STRETCHES`
# stretches of sections, rounded up.
#
# Buffers over t that cross a neighbour were placed too late: placed before the walls were raised, they would
# lie lower. Each failure adds to their *activity*, and below an incumbent, where layouts have room for waste,
# the more active a kind, the earlier it is tried in the next runs (after squeaky wheel optimisation, Joslin
# and Clements, 1999). At the bound itself sizes count, and activity only gets in the way.


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


# ------------------------------------------------------------------------------------------------------------
# Where a placement cuts a part of the compiled search into pieces, and the agenda of what is left.
#
#     sections | part 0 ------- | part 1 -- |   | part 2 ... |      joined by unplaced buffers
#     agenda   HEAD -> 1 -> 0 -> 2                                  linked: fewest buffers first
#
# Buffers are in the order of their starts, so a part is a range of sections and of buffers at once.


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


# ------------------------------------------------------------------------------------------------------------
# Runs: frames of choices, and one run after the other.


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
