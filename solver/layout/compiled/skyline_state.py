"""Memory of the compiled skyline search: plain arrays, allocated once, of stated size.

Everything is in whole units (the common divisor of all sizes). What is changed on the way down is
written to a trail and taken back on the way up, so a node costs a few numbers, not a copy:

    frames, waits   one per choice on the current path           (FRAME_FIELDS and WAIT_FIELDS numbers)
    parts, sums     one per stretch of sections still to solve   (PART_FIELDS and SUM_FIELDS numbers)
    trail           one per placement, or waste next to waste    (TRAIL_FIELDS numbers)

Numbers of buffers, sections, parts and frames take four bytes each; heights, hashes and explanations take
eight, and have rows of their own.

What a look at a plateau has found is kept under its first section while it is `fresh`: until the skyline
there or beside it moves, or a failure makes one of its sections heavier. A node looks at what has changed
only.

A path places each buffer at most once, so these grow with the depth, which is n plus the number of
sections wasted. When they are full the search answers "out of memory" and the caller may give it more.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.compiled.memory import paged
from solver.layout.model.instance import FREE, Indices, Instance, Integers

__all__ = ["PATH", "SAME", "SearchState", "allocate", "path"]

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.int8]

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

# Fields of a part: sections [FIRST, LAST), COUNT unplaced buffers, frames left if it fails, next part; and
# of its sums, the hashes: those of its begin, and once it is looked at, those that its choice begins with. A
# part is looked at once before it is dropped.
FIRST, LAST, COUNT, PARENT, NEXT = range(5)
PART_FIELDS: Final = 5
ONE, TWO = range(2)
SUM_FIELDS: Final = 2
# Fields of a frame. PART is what it is a choice of, LEFT and RIGHT the plateau branched on, ONLY the one
# buffer to try; PARTS and TRAIL say how many there were before. And what it waits for: TRIED is the
# preference last placed there, WASTE where waste ends; NONE: no more. EXPLANATION says why the alternatives
# tried so far have failed.
PART, LEFT, RIGHT, SECTION, ONLY, PARTS, TRAIL = range(7)
FRAME_FIELDS: Final = 7
WASTE, TRIED, EXPLANATION = range(3)
WAIT_FIELDS: Final = 3

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
# are free for other use. KNOWN states are refuted, through all questions.
(
    NODES, LIMIT, WORK, WORK_LIMIT, FRAME_COUNT, PART_COUNT, TRAIL_COUNT, HEAD, CAPACITY, RULES,
    SECTION_RULE, LEANING, HITS, SEED, RUNS, FULLS, UNTIL, PAUSE, GOING, HASH1, HASH2, GUIDED,
    CAUSE, DEAD_LEFT, DEAD_SECTION, SPARE, KNOWN, COUNTERS,
) = range(28)  # fmt: skip
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
    start: Indices
    end: Indices
    size: Integers
    stride: Integers  # offsets are multiples of this power of two
    pin: Integers  # the offset that is given, or NONE
    limit: Integers  # the buffer must end at or below this
    rank: Integers  # priority, lowest first; equal for buffers that can take each other's place
    key1: Integers  # hashes are below PRIME
    key2: Integers
    kind: Indices  # equal for buffers that can take each other's place
    activity: Indices  # of a kind: how often it was placed too late
    placed: Flags
    offset: Integers
    pins: Indices  # the buffers that are pinned
    # sections (one more than there are, so that "one past the last" is addressable)
    born: Indices  # the first buffer that starts here or later
    skyline: Integers
    roof: Integers  # the lowest unplaced pin over it
    slack: Integers  # room that waste may still take: capacity - skyline - what is unplaced there
    bit: Flags  # the number of the bit of its stretch
    zone1: Integers  # the hash of all sections before it, which differs from the next one's by its own number
    zone2: Integers
    crossing: Indices  # unplaced buffers alive both before and after the boundary on the left
    live: Indices  # unplaced buffers
    weight: Indices  # grows with every failure here
    cover: Indices  # buffers inside the plateau that cover this section
    fill: Integers  # and their total size
    before: Integers  # smallest buffer inside the plateau that ends at or before this section
    after: Integers  # smallest that starts after it
    # plateaus, under their first section
    fresh: Flags  # whether all of these hold
    stop: Indices  # one past the plateau
    key: Floats  # how urgent its most urgent section is; infinite where there is nothing to decide
    pick: Indices  # that section
    waste: Integers  # where waste there would end, or NONE
    only: Indices  # the one buffer to try there, or NONE
    # depth
    parts: Indices
    sums: Integers
    frames: Indices
    waits: Integers
    trail: Integers
    # refuted states: two independent hashes each, and why
    table: Indices
    refuted: Integers
    counters: Integers
    signals: Integers


#: Arrays of a state that no search changes; and those that hold a run, from its begin to its end.
SAME: Final = ("start", "end", "size", "stride", "pin", "limit", "kind", "pins", "born", "bit")
PATH: Final = (
    "rank", "placed", "offset",
    "skyline", "roof", "slack", "crossing", "live", "cover", "fill", "before", "after",
    "fresh", "stop", "key", "pick", "waste", "only",
    "parts", "sums", "frames", "waits", "trail",
)  # fmt: skip


def allocate(
    instance: Instance,
    unit: int,
    limit: Integers,
    table_bits: int,
    depth: int,
    signals: Integers,
    seed: int,
    kind: Integers | None = None,
    shared: Mapping[str, npt.NDArray[Any]] = MappingProxyType({}),
) -> SearchState:
    """Arrays for a search among buffers in the order of their starts; `kind` is what `kinds` gives.

    They take about ``28 * 2**table_bits + 220 * depth + 200 * n`` bytes; what grows with the depth or with
    what is refuted is in memory only as far as it goes, for it is written before it is read. `shared`: arrays
    of another state by name, all of `SAME` or all of `PATH` or both. Raises ValueError for `BEYOND` sections
    or more.
    """
    n, width = len(instance), instance.sections + 1
    if width > BEYOND:
        raise ValueError(f"{instance.sections:,} sections are too many to search; {BEYOND - 1:,} are not")
    rng = np.random.default_rng([seed, 0x5EED])

    def hashes(count: int) -> Integers:
        return rng.integers(0, PRIME, count)

    kind = kinds(instance) if kind is None else kind
    count = int(kind.max(initial=-1)) + 1
    arrays: dict[str, Any] = dict(shared)
    if SAME[0] not in arrays:
        arrays |= _same(instance, unit, limit, kind)
    if PATH[0] not in arrays:
        arrays |= path(n, width, depth)
    return SearchState(
        **arrays,
        key1=hashes(count)[kind],
        key2=hashes(count)[kind],
        activity=np.zeros(n, np.int32),
        zone1=_sums(hashes(width)),
        zone2=_sums(hashes(width)),
        weight=np.ones(width, np.int32),
        table=paged(1 << table_bits, cleared=True, of=np.int32),
        refuted=paged(1 << table_bits, REFUTED_FIELDS),
        counters=np.zeros(COUNTERS, dtype=np.int64),
        signals=signals,
    )


def _same(instance: Instance, unit: int, limit: Integers, kind: Integers) -> dict[str, npt.NDArray[Any]]:
    width = instance.sections + 1
    return {
        "start": instance.start.astype(np.int32),
        "end": instance.end.astype(np.int32),
        "size": instance.size // unit,
        "stride": strides(instance, unit),
        "pin": np.where(instance.offset == FREE, NONE, instance.offset // unit),
        "pins": np.flatnonzero(instance.offset != FREE).astype(np.int32),
        "limit": limit,
        "kind": kind.astype(np.int32, copy=False),
        "born": np.searchsorted(instance.start, np.arange(width)).astype(np.int32),
        "bit": (np.arange(width) // -(-width // STRETCHES)).astype(np.int8),
    }


def path(n: int, width: int, depth: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `PATH` for so many buffers, sections and one more, and choices."""
    return {
        "rank": np.zeros(n, np.int64),
        "placed": np.zeros(n, np.int8),
        "offset": np.zeros(n, np.int64),
        **{name: np.zeros(width, np.int64) for name in _SECTION_HEIGHTS},
        **{name: np.zeros(width, np.int32) for name in _SECTION_NUMBERS},
        "fresh": np.zeros(width, np.int8),
        "key": np.zeros(width),
        "parts": paged(depth + width, PART_FIELDS, of=np.int32),
        "sums": paged(depth + width, SUM_FIELDS),
        "frames": paged(depth, FRAME_FIELDS, of=np.int32),
        "waits": paged(depth, WAIT_FIELDS),
        "trail": paged(TRAIL_PER_FRAME * depth + 2 * width, TRAIL_FIELDS),
    }


_SECTION_HEIGHTS: Final = ("skyline", "roof", "slack", "fill", "before", "after", "waste")
_SECTION_NUMBERS: Final = ("crossing", "live", "cover", "stop", "pick", "only")


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
