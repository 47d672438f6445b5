"""Memory of the compiled skyline search: plain arrays, allocated once, of stated size.

Everything is in whole units (the common divisor of all sizes). What is changed on the way down is
written to a trail and taken back on the way up, so a node costs a few numbers, not a copy:

    frames, niches, waits   one per choice on the current path
    parts, reaches, sums    one per stretch of sections still to solve
    trail                   one per placement, or waste next to waste

Numbers of buffers and sections take two bytes each, of parts and frames four; heights, hashes and
explanations take eight. So each kind has rows of its own. What all buffers have alike is there once: `own`.

What a look at a plateau has found is kept under its first section while it is `fresh`: until the skyline
there or beside it moves, or a failure makes one of its sections heavier. A node looks at what has changed
only. The look itself counts in the memory of what is kept under all sections of its plateau. Proof that
nothing is lost: a section that is not the first of a plateau is not fresh, or was the first of an earlier
part; to be the first again the skyline has to move on one side of it alone, which ends freshness, or a part
has to begin there, which does, too.

A path places each buffer at most once, so these grow with the depth, which is n plus the number of
sections wasted. When they are full the search answers "out of memory" and the caller may give it more.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.model.heap import paged
from solver.layout.model.instance import FREE, Indices, Instance, Integers
from solver.native import inlined

__all__ = [
    "LEARNT",
    "PATH",
    "SAME",
    "SEARCHABLE",
    "SearchState",
    "Short",
    "allocate",
    "made",
    "own",
    "unchanged",
]

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
