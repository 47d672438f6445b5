"""Which orders suit a problem: tried on a part of it, the best go first on all of it.

No order wins everywhere, and placing very many buffers takes up to a second an order; a sample tells within
milliseconds an order that wastes a fifth from one that wastes a hundredth::

    load       ___/''''\\__/''''''\\____        the buffers that live near the busiest section: a stretch of
                        [ sample ]             time several times as long as they live, with all that is
                                               crowded in it. Where most live at once, some of them

This is a race with one round of elimination (Maron & Moore, 1994), over parts instead of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from types import ModuleType
from typing import Final, TypeAlias

import numpy as np

from solver.layout.greedy.index import Walk, listed
from solver.layout.model.instance import Instance, Integers
from solver.layout.model.problem import MAX_BYTES, Deadline

__all__ = ["SAMPLE", "Orders", "ranked", "sample"]

#: Placement orders by name, made when asked for; each with whether it is for best fit.
Orders: TypeAlias = Mapping[str, tuple[Callable[[], Integers], bool]]

#: Buffers of a sample: fewer tell less than the order in which attempts are listed.
SAMPLE: Final = 1500

#: A stretch of time holds so many times as many buffers as live at its busiest section: with fewer, all
#: of them meet, and every order is as good as any.
STRETCH: Final = 4

#: Peaks are alike that differ by less than one part in so many.
ALIKE: Final = 500

#: Scatters positions over 32 bits: the golden ratio of them (Knuth, 1973), without loading a generator.
SCATTER: Final = 2_654_435_769


def sample(instance: Instance, buffers: int = SAMPLE) -> Instance:
    """About so many buffers from around the busiest section, with their whole lives. O(n log n).

    The same problem has the same sample.
    """
    load, births, deaths = instance.load(), np.sort(instance.start), np.sort(instance.end)
    busiest = int(load.argmax())

    def stretch(half: int) -> tuple[int, int]:
        return max(0, busiest - half), min(instance.sections, busiest + half + 1)

    def living(half: int) -> int:
        first, last = stretch(half)
        return int(births.searchsorted(last) - deaths.searchsorted(first, side="right"))

    wanted = min(len(instance), max(buffers, STRETCH * living(0)))
    low, high = 0, instance.sections
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if living(middle) >= wanted else (middle + 1, high)
    first, last = stretch(low)
    members = np.flatnonzero((instance.start < last) & (instance.end > first))
    if len(members) > buffers + buffers // 2:
        scattered = np.argsort(members * SCATTER % 2**32, kind="stable")
        members = np.sort(members[scattered[:buffers]])
    return instance.subset(members).compact()


def ranked(
    part: Instance, module: ModuleType, orders: Callable[[Instance], Orders], deadline: Deadline
) -> list[str]:
    """Names of attempts, those with the lowest peak for this sample first.

    Of peaks about as high, the one that leaves free space in the fewest pieces: it wastes little as the
    problem grows, and is placed soonest. Orders that are the same by another name go last: of lives of one
    length, birth and death say the same. Where the deadline has passed, all as they are listed.

    Lists do not tell the pieces. They are for samples in which alignments leave slivers, each a piece that
    says nothing: there the index takes four times as long.
    """
    lists = part.misaligning and listed(part)
    found, seen = dict[str, tuple[int, int]](), set[tuple[bytes, bool]]()
    for name, (order, best_fit) in orders(part).items():
        found[name] = MAX_BYTES, 0
        if deadline.expired:
            continue
        # Of each order a digest: together they would take more than the sample itself.
        positions = order()
        attempt = sha256(positions.tobytes()).digest(), best_fit
        if attempt in seen:
            continue
        seen.add(attempt)
        walk = Walk(part, module, lists=lists)
        if walk.place(positions, MAX_BYTES, best_fit=best_fit) == len(part):
            found[name] = int((walk.offsets + part.exact).max()), 0 if lists else walk.fragments
    step = max(1, min(peak for peak, _ in found.values()) // ALIKE)
    return sorted(found, key=lambda name: (found[name][0] // step, found[name][1]))
