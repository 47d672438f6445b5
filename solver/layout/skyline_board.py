"""Memory of the compiled skyline search: plain arrays, allocated once, of stated size.

Everything is in whole units (the common divisor of all sizes). What is changed on the way down is
written to a trail and taken back on the way up, so a node costs a few numbers, not a copy:

    frames   one per choice on the current path           (FRAME_FIELDS numbers)
    parts    one per stretch of sections still to solve   (PART_FIELDS numbers)
    trail    one per placement or gap on the path         (2 numbers)

A path places each buffer at most once, so these grow with the depth, which is n plus the number of
gaps. When they are full the search answers "out of memory" and the caller may give it more.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.instance import Instance, Integers

__all__ = ["Board", "allocate"]

Hashes: TypeAlias = npt.NDArray[np.uint64]

#: Higher than any floor.
SKY: Final = 1 << 61
#: Gaps are forced many at a time, section by section.
TRAIL_PER_FRAME: Final = 8
#: No part, no buffer.
NONE: Final = -1
#: Less than any preference.
UNTRIED: Final = -SKY

# Fields of a part: sections [FIRST, LAST), buffers items[LOW:HIGH], frames left if it fails, next part.
FIRST, LAST, LOW, HIGH, PARENT, NEXT = range(6)
PART_FIELDS: Final = 6
# Fields of a frame; the first five are those of its part. LEFT and RIGHT are the plateau branched on,
# TRIED the preference last placed there, ONLY the one buffer to try, GAP where the gap ends; NONE: no more.
LEFT, RIGHT, SECTION, FLOOR, GAP, TRIED, ONLY, PARTS, TRAIL, REST = range(5, 15)
FRAME_FIELDS: Final = 15

# Slots of `counters`. WORK is buffers and sections looked at; LIMIT and WORK_LIMIT end a run, a search.
# RUNS have been made; with PAUSE set the search comes back after each round of them.
(
    NODES, LIMIT, WORK, WORK_LIMIT, FRAME_COUNT, PART_COUNT, TRAIL_COUNT, HEAD, CAPACITY, RULES,
    SECTION_RULE, LEANING, HITS, SEED, RUNS, PAUSE, COUNTERS,
) = range(17)  # fmt: skip
# Slots of `signals`, shared by searches that race: stop now; the least work that found an answer, its seed.
STOP, BEST_WORK, BEST_SEED = range(3)

# What the search answers.
NO, YES, UNKNOWN, FULL = range(4)

# Rules, as bits of counters[RULES].
ANY_PLATEAU, GAPS, TABLE, DECOMPOSE, WEIGHTS, FILL, SPAN, WALLS = (1 << k for k in range(8))


class Board(NamedTuple):
    """Arrays over buffers, over sections, over depth; see the comments for what they hold."""

    # buffers
    start: Integers
    end: Integers
    size: Integers
    limit: Integers  # the buffer must end at or below this
    rank: Integers  # priority, lowest first; equal for buffers that can take each other's place
    key1: Hashes
    key2: Hashes
    items: Integers  # a permutation; every part owns a range of it
    place: Integers  # where in `items` each buffer is
    offset: Integers
    scratch: Integers
    # sections (one more than there are, so that "one past the last" is addressable)
    floor: Integers
    slack: Integers  # room that gaps may still take: capacity - floor - what is unplaced there
    zone1: Hashes
    zone2: Hashes
    crossing: Integers  # unplaced buffers alive both before and after the boundary on the left
    live: Integers  # unplaced buffers
    weight: npt.NDArray[np.float64]  # grows with every failure here
    stop: Integers  # one past the plateau of this section
    cover: Integers  # buffers inside the plateau that cover this section
    fill: Integers  # and their total size
    before: Integers  # smallest buffer inside the plateau that ends at or before this section
    after: Integers  # smallest that starts after it
    spanning: Integers  # where a plateau begins: the largest buffer that lives exactly there
    label: Integers  # which part a section falls to
    # depth
    parts: Integers
    frames: Integers
    states: Hashes  # of frames
    trail: Integers
    # refuted states: two independent 64-bit hashes each
    table: Hashes
    counters: Integers
    signals: Integers


def allocate(
    instance: Instance, unit: int, limit: Integers, table_bits: int, depth: int, signals: Integers, seed: int
) -> Board:
    """Arrays for a search; about ``16 * 2**table_bits + 312 * depth + 250 * n`` bytes."""
    n, width = len(instance), instance.sections + 1
    rng = np.random.default_rng([seed, 0x5EED])

    def hashes(count: int) -> Hashes:
        return rng.integers(0, 2**64, count, dtype=np.uint64)

    kind = kinds(instance)
    count = int(kind.max(initial=-1)) + 1
    return Board(
        start=np.ascontiguousarray(instance.start),
        end=np.ascontiguousarray(instance.end),
        size=instance.size // unit,
        limit=limit,
        rank=np.arange(n),
        key1=hashes(count)[kind],
        key2=hashes(count)[kind],
        items=np.arange(n),
        place=np.arange(n),
        offset=np.zeros(n, dtype=np.int64),
        scratch=np.zeros(n, dtype=np.int64),
        **{name: np.zeros(width, dtype=np.int64) for name in _SECTION_ARRAYS},
        zone1=hashes(width),
        zone2=hashes(width),
        weight=np.ones(width),
        parts=np.zeros((depth + width, PART_FIELDS), dtype=np.int64),
        frames=np.zeros((depth, FRAME_FIELDS), dtype=np.int64),
        states=np.zeros((depth, 2), dtype=np.uint64),
        trail=np.zeros((TRAIL_PER_FRAME * depth + 2 * width, 2), dtype=np.int64),
        table=np.zeros((1 << table_bits, 2), dtype=np.uint64),
        counters=np.zeros(COUNTERS, dtype=np.int64),
        signals=signals,
    )


_SECTION_ARRAYS: Final = (
    "floor", "slack", "crossing", "live", "stop", "cover", "fill", "before", "after",
    "spanning", "label",
)  # fmt: skip


def kinds(instance: Instance) -> Integers:
    """Equal numbers, from 0, for buffers that can take each other's place.

    Proof that one of a kind need be tried: exchange two of equal lifespan and size in any layout, and it is
    a layout of the same peak; so at a node, a second one of a kind leads where the first one led. Inverse:
    none is needed, every buffer gets an offset of its own.
    """
    rows = np.stack((instance.start, instance.end, instance.size, instance.exact), axis=1)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
