"""Long problems of little depth, repaired where they are too high: windows of time, asked one by one.

::

    capacity  - - - - - -__- - - - - -      a buffer (#) ends above the capacity that is aimed at: the buffers
               ___   |  |##|  |   ____      that live wholly within a window around it are placed anew, under
              |   |  |__|##|_ |  |    |     the capacity, by the compiled search; those that reach into the
              |___|__|_______||__|____|     window stay where they are, as pins. The rest never notices.
                     t0       t1

A window holds some hundreds of buffers, however many there are in all, so time and memory grow with what is
too high, not with the problem. It helps where few buffers live at a time; where half of all live through one
crowded moment, a window around one of them holds nothing that could move. Large neighbourhood search (Shaw,
1998) with a neighbourhood in time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from solver.layout.exact.feasibility import SEARCHABLE, SHORT_TABLE_BITS, FeasibilitySearch, Watch
from solver.layout.greedy.in_windows import PASSES, first_fit_windows
from solver.layout.model.heap import give_back
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.problem import Layout
from solver.layout.model.sorting import in_order

__all__ = ["Ask", "Repaired", "Window", "repair"]

#: (members, window, offsets that they have, capacity, work) -> offsets to take in their place (None: no
#: better), and the work spent. The window has the members, with pins where they must stay, over sections from
#: 0.
Ask: TypeAlias = Callable[[Integers, "Window", Integers, int, int], tuple[Integers | None, int]]

#: Buffers of a window: at first, and as often tried again with twice as many.
FIRST: Final = 48
WIDER: Final = 4

#: Members from which what a window has freed goes back to the system: as much again comes with the next.
TIDY_FROM: Final = 96

#: Work of the first question about a window, and its growth from round to round.
WORK: Final = 200_000
WORK_GROWTH: Final = 2

#: More work comes next where the incumbent is so close to a capacity that was not reached: one part in so
#: many of the bound, or a byte.
CLOSE: Final = 20_000


@dataclass(frozen=True, slots=True)
class Window:
    """Sections ``[first, last)`` of a problem, and the buffers that reach into them, cut off at both ends."""

    instance: Instance
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """The best layout, and the work that was spent."""

    layout: Layout
    work: int


def repair(
    instance: Instance,
    layout: Layout,
    bound: int,
    work: int,
    watch: Watch,
    listener: Callable[[Layout], None] = lambda _: None,
    ask: Ask | None = None,
) -> Repaired:
    """At most about `work`, in units of the compiled search; proves nothing.

    The capacity aimed at is halfway between the incumbent and the highest that was not reached, the bound
    (bytes) first; each round that ends without a lower peak has twice the work for a window. Pins stay,
    alignments are kept. Without an `ask`, each capacity is tried by first fit (`greedy.in_windows`) first.
    O(sections log n) and some hundred buffers a window.
    """

    def search(
        _members: Integers, window: Window, _known: Integers, capacity: int, effort: int
    ) -> tuple[Integers | None, int]:
        if len(window.instance) > SEARCHABLE:
            return None, 0
        small = FeasibilitySearch(window.instance.compact(), watch.options, SHORT_TABLE_BITS)
        decision = small.decide(capacity, effort, watch)
        return decision.offsets, decision.work

    windows, spent = _Windows(instance, layout, watch, ask or search), 0
    quick = first_fit_windows(instance, windows.offsets) if ask is None else None
    effort, low, aim = WORK, bound - 1, bound
    while spent < work and windows.peak > bound and not watch():
        if quick is not None:
            quick.lower(aim, PASSES, watch)
        spent += windows.lower(aim, min(effort, work - spent), work - spent)
        if windows.peak < layout.peak:
            layout = windows.layout()
            listener(layout)
        if layout.peak > aim:
            low = aim
        if layout.peak - low <= max(1, bound // CLOSE):
            effort *= WORK_GROWTH
            low = bound - 1
        aim = max(bound, low + (layout.peak - low) // 2)
    return Repaired(layout, spent)


class _Windows:
    """One layout, repaired in place: `offsets`."""

    def __init__(self, instance: Instance, layout: Layout, watch: Watch, ask: Ask) -> None:
        self._instance, self._watch, self._search = instance, watch, ask
        self.offsets = np.array(layout.offsets, dtype=np.int64)
        self._by_start = in_order(instance.start)
        self._start = instance.start[self._by_start]
        # Before this position nothing lives on into a section.
        self._reach = np.maximum.accumulate(instance.end[self._by_start])

    @property
    def peak(self) -> int:
        return int((self.offsets + self._instance.exact).max())

    def layout(self) -> Layout:
        return layout_of(self._instance, self.offsets)

    def lower(self, capacity: int, effort: int, most: int) -> int:
        """Tries to bring everything under this capacity (bytes), a window after the other; the work spent."""
        instance, spent = self._instance, 0
        high = np.flatnonzero(self.offsets + instance.exact > capacity)
        for i in high[np.argsort(instance.start[high], kind="stable")].tolist():
            buffers = FIRST
            while self.offsets[i] + instance.exact[i] > capacity:
                if spent >= most or buffers > FIRST << WIDER or self._watch():
                    return spent
                spent += self._ask(i, buffers, capacity, effort)
                buffers *= 2
        return spent

    def _ask(self, i: int, buffers: int, capacity: int, effort: int) -> int:
        """Places the window around buffer `i` anew if that brings all of it under the capacity."""
        members, first, last = self._around(i, buffers)
        instance = self._instance
        inside = (instance.start[members] >= first) & (instance.end[members] <= last)
        free = inside & (instance.offset[members] == FREE)
        kept = members[~free]
        if bool((self.offsets[kept] + instance.exact[kept] > capacity).any()):
            return len(members)
        window = Instance(
            start=np.maximum(instance.start[members], first) - first,
            end=np.minimum(instance.end[members], last) - first,
            size=instance.size[members],
            exact=instance.exact[members],
            alignment=instance.alignment[members],
            offset=np.where(free, FREE, self.offsets[members]),
            sections=last - first,
        )
        known = self.offsets[members]
        offsets, work = self._search(members, Window(window, first, last), known, capacity, effort)
        if offsets is not None:
            self.offsets[members] = offsets
        if len(members) >= TIDY_FROM:
            give_back()
        return work + len(members)

    def _around(self, i: int, buffers: int) -> tuple[Integers, int, int]:
        """Some `buffers` that live in the sections around one, and these sections, [first, last)."""
        first, last = int(self._instance.start[i]), int(self._instance.end[i])
        at = int(self._start.searchsorted(first))
        low, high = max(0, at - buffers // 2), min(len(self._start) - 1, at + buffers // 2)
        first, last = min(first, int(self._start[low])), max(last, int(self._start[high]) + 1)
        begin, stop = self._reach.searchsorted(first, side="right"), self._start.searchsorted(last)
        members = self._by_start[begin:stop]
        return members[self._instance.end[members] > first], first, last
