"""Problems of a special structure, each with the theorem that says what can be reached.

| structure | all buffers | what is promised |
|---|---|---|
| `uniform` | take the same bytes | the bound: colouring of an interval graph |
| `chain` | live two at a time, at most | the bound: one on the floor, the other under the ceiling |
| `laminar` | are nested or apart in time | the bound: a stack |

`in_classes` places any problem in a few sorts, to have a layout. Nothing here is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.layout.model.instance import FREE, Instance, Integers, round_up
from solver.layout.model.sorting import in_order

__all__ = [
    "STRUCTURES",
    "Structure",
    "chain",
    "coloured",
    "depth",
    "in_classes",
    "laminar",
    "structured",
    "uniform",
]


def depth(instance: Instance) -> int:
    """The most buffers that are live at a time: the clique number of the interval graph. O(n + sections)."""
    born = np.bincount(instance.start, minlength=instance.sections + 1)
    died = np.bincount(instance.end, minlength=instance.sections + 1)
    return int((born - died).cumsum().max(initial=0))


def coloured(instance: Instance, colours: int) -> Integers:
    """A colour, from 0, for each buffer; those that meet differ. O(n log n).

    `colours` is their number, at least `depth`.
    """
    births = in_order(instance.start).tolist()
    deaths = in_order(instance.end).tolist()
    colour = [0] * len(births)
    for k, i in enumerate(births):
        colour[i] = k if k < colours else colour[deaths[k - colours]]
    return np.array(colour, dtype=np.int64)


def uniform(instance: Instance) -> Integers | None:
    """Offsets where all sizes are equal and nothing is pinned; None for any other problem.

    Placing intervals of one size is colouring an interval graph, which needs as many colours as intervals
    meet in one point (Gilmore & Hoffman, 1964, by way of Dilworth's theorem)::

        place 1   |==0==|   |===2===| |==5==|        births in the order of start, deaths in the order of end:
        place 0  |====1====| |==3==|   |=4=|         with w places, birth k takes the place of death k - w

    At birth k, k + 1 buffers have been born and at most w live, so at least k + 1 - w have died: death k - w,
    counted from 0, has passed. No two births take the place of the same death, so no two that meet share a
    place. Meets the bound where all ask for the same bytes at one alignment; a larger one widens places.
    """
    if not len(instance) or instance.pinned or int(instance.size.min()) != int(instance.size.max()):
        return None
    place = round_up(int(instance.size[0]), int(instance.alignment.max()))
    return coloured(instance, depth(instance)) * place


def chain(instance: Instance) -> Integers | None:
    """Offsets where at most two are live at a time, without pins; None for any other problem.

    ::

        bytes  |   ____b____   _d_                two colours are enough where at most two meet; buffers of
               |  |         | |   |               one colour stand on the floor, each of the other just above
               |  |_________|_|___|  __c__        all that it meets
               | |__a__| |__c__|
               +---------------------------- sections

    A buffer of the other colour meets only buffers that stand on the floor, one at a time. So it ends at the
    larger load of a step that it lives through: no layout is lower. Each stretch that no lifespan crosses may
    be turned over by itself, which matters where padding counts at the top alone. Meets the bound where sizes
    keep alignment; elsewhere padding comes on top. O(n log n).
    """
    if not len(instance) or instance.pinned or depth(instance) > 2:
        return None
    upper = coloured(instance, 2) == 1
    plain, turned = _hanging(instance, upper), _hanging(instance, ~upper)
    stretch = _stretches(instance)
    tops = [_tops(stretch, offsets + instance.exact) for offsets in (plain, turned)]
    return np.where((tops[0] <= tops[1])[stretch], plain, turned)


def _hanging(instance: Instance, upper: np.ndarray) -> Integers:
    """Offsets with these buffers above the others, each above the largest that it meets."""
    offsets = np.zeros(len(instance), dtype=np.int64)
    floor, above = np.flatnonzero(~upper), np.flatnonzero(upper)
    if not len(floor) or not len(above):
        return offsets
    floor = floor[in_order(instance.start[floor])]
    # Those of the floor are apart, so each of the others meets a range of them.
    first = instance.end[floor].searchsorted(instance.start[above], side="right")
    last = instance.start[floor].searchsorted(instance.end[above], side="left")
    meets = first < last
    ranges = np.stack((first[meets], last[meets]), axis=1).ravel()
    size = np.append(instance.size[floor], 0)
    raised = above[meets]
    below = np.maximum.reduceat(size, ranges)[::2] if len(ranges) else 0
    alignment = instance.alignment[raised]
    offsets[raised] = (below + alignment - 1) & -alignment
    return offsets


def _stretches(instance: Instance) -> Integers:
    """Which stretch of sections that no lifespan crosses each buffer lies in, from 0."""
    order = in_order(instance.start)
    reach = np.maximum.accumulate(instance.end[order])
    begins = np.append(False, instance.start[order][1:] >= reach[:-1])
    stretch = np.empty(len(instance), dtype=np.int64)
    stretch[order] = np.cumsum(begins)
    return stretch


def _tops(stretch: Integers, top: Integers) -> Integers:
    """The highest end in each stretch."""
    highest = np.zeros(int(stretch.max()) + 1, dtype=np.int64)
    np.maximum.at(highest, stretch, top)
    return highest


def laminar(instance: Instance) -> Integers | None:
    """Offsets where any two lifespans are nested or apart, without pins; None for any other problem.

    ::

        bytes  |      |_c_|  |d|              in the order of start, of equal ones the longest first, each
               |   |____b____|  |__e__|       is put on top of the one that it lies in: all that live at its
               | |________a______________|    birth lie below it, and nothing else does
               +------------------------------ sections

    So each ends at the load of its birth, and the highest at the largest load. Meets the bound where sizes
    keep alignment. O(n log n), and mostly O(n) to see that two lifespans cross.
    """
    if not len(instance) or instance.pinned:
        return None
    order = in_order(instance.start, -instance.end)
    start, end = instance.start[order], instance.end[order]
    # Two in a row cross in nearly all other problems.
    if bool(((start[1:] < end[:-1]) & (end[:-1] < end[1:])).any()):
        return None
    offsets = np.empty(len(order), dtype=np.int64)
    open_: list[tuple[int, int]] = []
    rows = zip(start.tolist(), end.tolist(), instance.size[order].tolist(), strict=True)
    placed = []
    for (begin, stop, size), alignment in zip(rows, instance.alignment[order].tolist(), strict=True):
        while open_ and open_[-1][0] <= begin:
            open_.pop()
        if open_ and open_[-1][0] < stop:
            return None
        bottom = (open_[-1][1] if open_ else 0) + alignment - 1 & -alignment
        open_.append((stop, bottom + size))
        placed.append(bottom)
    offsets[order] = placed
    return offsets


@dataclass(frozen=True, slots=True)
class Structure:
    """A name, and offsets for an instance of that structure; None for any other."""

    name: str
    place: Callable[[Instance], Integers | None]


#: The quickest to recognise first.
STRUCTURES: Final = (Structure("uniform", uniform), Structure("chain", chain), Structure("laminar", laminar))


def structured(instance: Instance) -> Iterator[tuple[str, Integers]]:
    """Name and offsets of each structure that the instance has, above what lives in all sections.

    Buffers that live all the time may lie at the bottom of any layout where nothing is pinned and sums of
    sizes keep alignments: taking one out and moving all below it up changes no peak. So the others alone
    decide the structure, as weights do not.
    """
    base = (instance.start == 0) & (instance.end == instance.sections)
    if not base.any() or base.all() or instance.pinned or instance.misaligning:
        yield from _of_all(instance)
        return
    others = np.flatnonzero(~base)
    offsets = np.cumsum(np.where(base, instance.size, 0)) - instance.size
    for name, above in _of_all(instance.subset(others).compact()):
        offsets[others] = above + int(instance.size[base].sum())
        yield name, offsets.copy()


def _of_all(instance: Instance) -> Iterator[tuple[str, Integers]]:
    for structure in STRUCTURES:
        offsets = structure.place(instance)
        if offsets is not None:
            yield structure.name, offsets


def in_classes(instance: Instance) -> Integers:
    """Offsets of any problem, in O(n log n): two classes of sizes for each doubling, a region for each class.

    Within one, places are as large as its largest buffer and are handed on as colours are. The bytes of two
    classes are never shared, and what is pinned lies below them all, so the layout is high.
    """
    mantissa, exponent = np.frexp(instance.size.astype(np.float64))
    label, pinned = 2 * exponent + (mantissa > np.sqrt(0.5)), instance.offset != FREE
    offsets, floor = instance.offset.copy(), int((instance.offset + instance.size)[pinned].max(initial=0))
    for kind in np.unique(label[~pinned])[::-1].tolist():
        members = np.flatnonzero((label == kind) & ~pinned)
        part = instance.subset(members)
        alignment = int(part.alignment.max())
        place, places = round_up(int(part.size.max()), alignment), depth(part)
        floor = round_up(floor, alignment)
        offsets[members] = floor + coloured(part, places) * place
        floor += places * place
    return offsets
