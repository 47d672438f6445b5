"""A large problem made small, for search: where memory is full, and in bigger pieces.

Search costs about the square of the buffers, yet what decides are some hundreds: large ones, where little
memory is free. All others are taken out of its way, and put back into the layout that it finds::

    load        ____##_____####____        sections are contended (#) where little of the capacity is free
    always   |=======================|     lives throughout: at the bottom it is in no buffer's way
    large          |=====|                 searched as it is
    dust         |=====|                   small, but where it is contended: those that live through the same
    dust          |=====|                  contended sections share a box as long as them all, so that boxes
    box          |======|                  waste memory only where some is free
    easy     |===|          |====|         sees no contended section, and is small beside what is free: last

Joining buffers of like lifespans is the boxing of Buchsbaum et al. (SIAM J. Comput. 2004) and of idealloc
(arXiv 2504.04874); here boxes serve search, and dissolve once it is done: bottom up in the order of the
offsets found, first fit puts no buffer higher than search did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.exact.feasibility import SHORT_TABLE_BITS, FeasibilitySearch, Watch
from solver.layout.greedy.placement import GOOD_GAP, place
from solver.layout.model.heap import give_back
from solver.layout.model.instance import FREE, Indices, Instance, Integers, layout_of
from solver.layout.model.problem import Layout
from solver.layout.model.sorting import in_order

__all__ = [
    "FINE",
    "LONG_QUESTIONS",
    "MIDDLE",
    "ROUGH",
    "SEARCHED",
    "SHORT_QUESTIONS",
    "Coarse",
    "Grain",
    "Question",
    "coarsen",
    "search_coarsely",
]

_Flags: TypeAlias = npt.NDArray[np.bool_]

#: Ratio of the capacity to the largest buffer that is dust, and to the bytes that a box of dust holds.
CAPACITY_PER_DUST: Final = 1000
CAPACITY_PER_BOX: Final = 333

#: Times that boxes are made anew where they take more than the capacity; two are nearly always enough.
PASSES: Final = 8

#: Boxes that are searched at most: each descent would take seconds, and memory (see `FeasibilitySearch`).
SEARCHED: Final = 4000


@dataclass(frozen=True, slots=True)
class Grain:
    """How coarse a problem is made.

    A section is contended where less than 1 / `contended` of the capacity is free. A buffer is easy if `easy`
    times its size is free throughout its life, and no section of it is contended.
    """

    contended: int
    easy: int


ROUGH: Final = Grain(contended=200, easy=10)
MIDDLE: Final = Grain(contended=100, easy=10)
FINE: Final = Grain(contended=50, easy=30)


@dataclass(frozen=True, slots=True)
class Question:
    """Asks the exact search about the problem made coarse, for a capacity of (1 + gap) times the bound.

    `work` is counted as by `FeasibilitySearch`.
    """

    grain: Grain
    gap: float
    work: int


#: Different ones fail on different problems. A short question takes less time than an order.
SHORT_QUESTIONS: Final = (Question(MIDDLE, 0.0, 2_000_000), Question(ROUGH, GOOD_GAP, 2_000_000))
LONG_QUESTIONS: Final = (Question(FINE, 0.0, 5_000_000), Question(MIDDLE, 0.0, 10_000_000))


@dataclass(frozen=True, slots=True)
class Coarse:
    """`instance` has a buffer for each box; a large buffer is a box of its own.

    `packed` are the buffers in boxes, box by box and bottom up, and `begins` says which of them are at a
    bottom. `always` and `easy` are in no box. Five bytes a buffer beside the boxes, so that a search may have
    the rest.
    """

    instance: Instance
    always: Indices
    packed: Indices
    begins: _Flags
    easy: Indices

    @property
    def box(self) -> Integers:
        """In which box each of those packed lies."""
        return np.cumsum(self.begins) - 1

    def within(self, size: Integers) -> Integers:
        """How far each of those packed lies above the bottom of its box; `size` is of all buffers."""
        return _above(size[self.packed], self.begins)

    def searched(self) -> Coarse:
        """The same without boxes, which `order` does not ask for."""
        return replace(self, instance=self.instance.subset(np.arange(0)))

    def order(self, size: Integers, offsets: Integers) -> Integers:
        """The order in which first fit puts no box above these offsets, counted from the top of `always`.

        Proof, by induction along the order: of those packed, the buffers below one in the layout of
        boxes come before it and end no higher than there; those above come after. So its place there is free.
        """
        bottom = offsets[self.box] + self.within(size)
        order: Integers = np.concatenate(
            (self.always, self.packed[in_order(bottom)], self.easy), dtype=np.int64
        )
        return order


def coarsen(instance: Instance, capacity: int, grain: Grain) -> Coarse:
    """Boxes for this capacity, without those that are always there or easy. No pins. O(n log n) a pass.

    Where boxes take more than the capacity, sections count as contended too, and boxes are made anew: in a
    contended section they hold what lives there and nothing else.
    """
    throughout = instance.end - instance.start == instance.sections
    room = capacity - int(instance.size[throughout].sum())
    rest = np.flatnonzero(~throughout).astype(np.int32)
    part = instance.subset(np.flatnonzero(~throughout)) if throughout.any() else instance
    small = part.size * grain.easy <= room - part.peak_load_seen()
    contended = room - part.load() < max(1, room // grain.contended)
    for _ in range(PASSES):
        passed = np.zeros(len(contended) + 1, np.int32)
        np.cumsum(contended, out=passed[1:])
        first, last = passed[part.start], passed[part.end]
        easy, boxes = small & (first == last), part  # those before go first
        members, begins = _packed(part, np.flatnonzero(~easy).astype(np.int32), first, last, room)
        boxes = _boxed(part, members, begins)
        over = ~contended & (boxes.load() > room)
        contended |= over
        if not over.any():
            break
    left = rest[easy]
    return Coarse(
        boxes.compact(),
        np.flatnonzero(throughout).astype(np.int32),
        rest[members],
        begins,
        left[in_order(-instance.size[left])],
    )


def _packed(
    part: Instance, hard: Indices, first: Indices, last: Indices, room: int
) -> tuple[Indices, _Flags]:
    """The buffers of `hard` box by box, and which of them begin a box."""
    alone = part.size[hard] > room // CAPACITY_PER_DUST
    order = in_order(alone.astype(np.int8), first[hard], last[hard], part.start[hard])
    hard = hard[order]
    begins = alone[order] | _differs(first[hard]) | _differs(last[hard])
    begins |= _differs(_above(part.size[hard], begins) // max(1, room // CAPACITY_PER_BOX))
    return hard, begins


def _differs(values: Integers | Indices) -> _Flags:
    """Whether each differs from the one before; the first does."""
    differs: _Flags = np.diff(values, prepend=values[:1] - 1) != 0
    return differs


def _above(size: Integers, begins: _Flags) -> Integers:
    """The bytes that lie below each buffer in its box."""
    before = np.cumsum(size) - size
    above: Integers = before - before[begins][np.cumsum(begins) - 1]
    return above


def _boxed(part: Instance, members: Indices, begins: _Flags) -> Instance:
    """A buffer for each box: all bytes of its members, as long as any of them lives."""
    first = np.flatnonzero(begins)
    topmost = members[np.append(first[1:], len(members))[: len(first)] - 1]
    size = np.add.reduceat(part.size[members], first)
    return Instance(
        start=np.minimum.reduceat(part.start[members], first),
        end=np.maximum.reduceat(part.end[members], first),
        size=size,
        exact=size - (part.size - part.exact)[topmost],
        alignment=part.alignment[members[first]],
        offset=np.full(len(first), FREE),
        sections=part.sections,
    )


def search_coarsely(
    instance: Instance, capacity: int, limit: int, grain: Grain, work: int, watch: Watch
) -> Layout | None:
    """A layout that ends at or below `limit`, from a search for one under `capacity`; None if there is none.

    Where something easy finds no place under the capacity, it ends above. No pins, no `misaligning` sizes.
    Seconds: of a search of `work`, and of one pass of first fit.
    """
    coarse = coarsen(instance, capacity, grain)
    room = capacity - int(instance.size[coarse.always].sum())
    if not 0 < len(coarse.instance) <= SEARCHED or watch():
        return None
    search = FeasibilitySearch(coarse.instance, watch.options, SHORT_TABLE_BITS)
    coarse = coarse.searched()
    give_back()  # what the boxes were made with
    decision = search.decide(room, work, watch)
    if decision.offsets is None:
        return None
    del search
    order = coarse.order(instance.size, decision.offsets)
    offsets, placed = place(instance, order, limit, late=watch)
    return layout_of(instance, offsets) if placed == len(order) else None
