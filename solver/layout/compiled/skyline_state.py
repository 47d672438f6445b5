"""Memory of the compiled skyline search: plain arrays, allocated once, of stated size.

Everything is in whole units (the common divisor of all sizes). What is changed on the way down is
written to a trail and taken back on the way up, so a node costs a few numbers, not a copy:

    frames   one per choice on the current path           (FRAME_FIELDS numbers)
    parts    one per stretch of sections still to solve   (PART_FIELDS numbers)
    trail    one per placement or waste on the path       (TRAIL_FIELDS numbers)

What a look at a plateau has found is kept under its first section while it is `fresh`: until the skyline
there or beside it moves, or a failure makes one of its sections heavier. A node looks at what has changed
only.

A path places each buffer at most once, so these grow with the depth, which is n plus the number of
sections wasted. When they are full the search answers "out of memory" and the caller may give it more.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.compiled.memory import paged
from solver.layout.model.instance import FREE, Instance, Integers

__all__ = ["SearchState", "allocate"]

Floats: TypeAlias = npt.NDArray[np.float64]

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
#: Less than any preference.
UNTRIED: Final = -INFINITY

# Fields of a part: sections [FIRST, LAST), COUNT unplaced buffers, its hashes, frames left if it fails, next.
FIRST, LAST, COUNT, ONE, TWO, PARENT, NEXT = range(7)
PART_FIELDS: Final = 7
# Fields of a frame; the first six are those of its part. LEFT and RIGHT are the plateau branched on,
# TRIED the preference last placed there, ONLY the one buffer to try, WASTE where waste ends; NONE: no more.
# EXPLANATION says why the alternatives tried so far have failed.
LEFT, RIGHT, SECTION, HEIGHT, WASTE, TRIED, ONLY, PARTS, TRAIL, REST, EXPLANATION = range(6, 17)
FRAME_FIELDS: Final = 17

# An entry of the trail: a section and its height before the waste; or NONE - i and the padding under buffer
# i. Entries are most of what a path takes, so the first number has the section, or NONE - i, from bit WHAT
# on, and below it the ends of the plateau that forced the waste: the right one from bit ENDS on, and one more
# than the left one. 0 and BEYOND, which no section reaches: nothing has forced it.
TRAIL_FIELDS: Final = 2
ENDS: Final = 21
WHAT: Final = 2 * ENDS
BEYOND: Final = (1 << ENDS) - 1

# A refuted state: two hashes, and what explains it.
TABLE_FIELDS: Final = 3

# Slots of `counters`. WORK is buffers and sections looked at; LIMIT and WORK_LIMIT end a run, a search.
# RUNS have been made, the last FULLS of them ended by the depth. The search comes back where it has made
# UNTIL runs, and at PAUSE work (0: never), in the middle of a run, which GOING tells. HASH1 and HASH2 are of
# the part being looked at. GUIDED: the last row of priorities is a layout's, and every other run's. CAUSE
# explains the last failure; DEAD_LEFT and DEAD_SECTION say where a look has met it.
(
    NODES, LIMIT, WORK, WORK_LIMIT, FRAME_COUNT, PART_COUNT, TRAIL_COUNT, HEAD, CAPACITY, RULES,
    SECTION_RULE, LEANING, HITS, SEED, RUNS, FULLS, UNTIL, PAUSE, GOING, HASH1, HASH2, GUIDED,
    CAUSE, DEAD_LEFT, DEAD_SECTION, COUNTERS,
) = range(26)  # fmt: skip
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
    start: Integers
    end: Integers
    size: Integers
    stride: Integers  # offsets are multiples of this power of two
    pin: Integers  # the offset that is given, or NONE
    limit: Integers  # the buffer must end at or below this
    rank: Integers  # priority, lowest first; equal for buffers that can take each other's place
    key1: Integers  # hashes are below PRIME
    key2: Integers
    breadth1: Integers  # the numbers of its sections, added up
    breadth2: Integers
    change1: Integers  # of the hash of a part, when the buffer is placed
    change2: Integers
    kind: Integers  # equal for buffers that can take each other's place
    activity: Floats  # of a kind: how often it was placed too late
    placed: Integers
    offset: Integers
    pins: Integers  # the buffers that are pinned
    # sections (one more than there are, so that "one past the last" is addressable)
    born: Integers  # the first buffer that starts here or later
    skyline: Integers
    roof: Integers  # the lowest unplaced pin over it
    slack: Integers  # room that waste may still take: capacity - skyline - what is unplaced there
    bit: Integers  # of its stretch
    zone1: Integers
    zone2: Integers
    crossing: Integers  # unplaced buffers alive both before and after the boundary on the left
    live: Integers  # unplaced buffers
    weight: Floats  # grows with every failure here
    cover: Integers  # buffers inside the plateau that cover this section
    fill: Integers  # and their total size
    before: Integers  # smallest buffer inside the plateau that ends at or before this section
    after: Integers  # smallest that starts after it
    # plateaus, under their first section
    fresh: Integers  # whether all of these hold
    stop: Integers  # one past the plateau
    key: Floats  # how urgent its most urgent section is; infinite where there is nothing to decide
    pick: Integers  # that section
    waste: Integers  # where waste there would end, or NONE
    only: Integers  # the one buffer to try there, or NONE
    # depth
    parts: Integers
    frames: Integers
    trail: Integers
    # refuted states: two independent hashes each, and why
    table: Integers
    counters: Integers
    signals: Integers


def allocate(
    instance: Instance,
    unit: int,
    limit: Integers,
    table_bits: int,
    depth: int,
    signals: Integers,
    seed: int,
    kind: Integers | None = None,
) -> SearchState:
    """Arrays for a search among buffers in the order of their starts; `kind` is what `kinds` gives.

    They take about ``24 * 2**table_bits + 320 * depth + 370 * n`` bytes; what grows with the depth is in
    memory only as far as a path has come, for it is written before it is read. Raises ValueError for
    `BEYOND` sections or more.
    """
    n, width = len(instance), instance.sections + 1
    if width > BEYOND:
        raise ValueError(f"{instance.sections:,} sections are too many to search; {BEYOND - 1:,} are not")
    rng = np.random.default_rng([seed, 0x5EED])

    def hashes(count: int) -> Integers:
        return rng.integers(0, PRIME, count)

    kind = kinds(instance) if kind is None else kind
    count = int(kind.max(initial=-1)) + 1
    return SearchState(
        start=np.ascontiguousarray(instance.start),
        end=np.ascontiguousarray(instance.end),
        size=instance.size // unit,
        stride=strides(instance, unit),
        pin=np.where(instance.offset == FREE, NONE, instance.offset // unit),
        pins=np.flatnonzero(instance.offset != FREE),
        limit=limit,
        rank=np.arange(n),
        key1=hashes(count)[kind],
        key2=hashes(count)[kind],
        kind=kind,
        activity=np.zeros(n),
        **{name: np.zeros(n, dtype=np.int64) for name in _BUFFER_ARRAYS},
        born=np.searchsorted(instance.start, np.arange(width)),
        **{name: np.zeros(width, dtype=np.int64) for name in _SECTION_ARRAYS},
        bit=1 << np.arange(width) // -(-width // STRETCHES),
        zone1=hashes(width),
        zone2=hashes(width),
        weight=np.ones(width),
        key=np.zeros(width),
        parts=paged(depth + width, PART_FIELDS),
        frames=paged(depth, FRAME_FIELDS),
        trail=paged(TRAIL_PER_FRAME * depth + 2 * width, TRAIL_FIELDS),
        table=paged(1 << table_bits, TABLE_FIELDS, cleared=True),
        counters=np.zeros(COUNTERS, dtype=np.int64),
        signals=signals,
    )


_BUFFER_ARRAYS: Final = ("breadth1", "breadth2", "change1", "change2", "placed", "offset")
_SECTION_ARRAYS: Final = (
    "skyline", "roof", "slack", "crossing", "live", "cover", "fill", "before", "after",
    "fresh", "stop", "pick", "waste", "only",
)  # fmt: skip


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
    rows = np.stack((instance.offset, stride, instance.exact, instance.size, instance.end, instance.start))
    order = np.lexsort(rows)
    differs = (np.diff(rows[:, order], axis=1) != 0).any(axis=0)
    found = np.empty(len(instance), dtype=np.int64)
    found[order] = np.concatenate(([0], np.cumsum(differs)))[: len(instance)]
    return found
