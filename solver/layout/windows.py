"""Repair of large layouts: free what lives around a buffer that sticks out, and place it anew.

    offset      target - - - - - - - -[ x ]- - - - -      x ends above the target
                 |  p          |  | a  |  b |  |          window: some sections on either side of x
                 |_____________|__|____|____|__|          free: x, and whoever lives wholly inside (a, b)
                      window  <-------------->            pinned: all others that touch it (p), cut to it

Only what is freed moves, and nothing outside the window sees it, so the whole stays a layout. Pinned buffers
that span the window are merged where they touch, which leaves small problems even where many are live.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.layout.greedy import first_fit, orders, place, place_until
from solver.layout.instance import FREE, Instance, Integers, layout_of
from solver.layout.problem import Deadline, Layout

__all__ = ["Repair", "SolveWindow", "improve_windows", "repack"]

#: Offsets of a window that keep its pins and end at or below the limit, or None.
SolveWindow = Callable[[Instance, int], Integers | None]

#: Sections freed on either side, tried one after the other.
REACHES: Final = (0, 3, 10, 30, 100)

#: More free buffers than this are no window any more.
WINDOW_BUFFERS: Final = 1500

#: Targets between the bound (0) and the peak (1), the boldest first.
AIMS: Final = (0.0, 0.1, 0.3, 0.6)

#: Attempts of `repack` for one window, and its seed.
ATTEMPTS: Final = 24
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Repair:
    """The best layout, and whether the deadline cut in."""

    layout: Layout
    cut: bool


def improve_windows(
    instance: Instance, layout: Layout, bound: int, solve_window: SolveWindow, deadline: Deadline
) -> Repair:
    """Lower the peak window by window until the bound, or until no window gives way."""
    for aim in AIMS:
        target = bound + int((layout.peak - bound) * aim)
        while layout.peak > max(bound, target):
            offsets = _below(instance, layout, target, solve_window, deadline)
            if deadline.expired:
                return Repair(layout, cut=True)
            if offsets is None:
                break
            layout = layout_of(instance, offsets)
    return Repair(layout, cut=False)


def _below(
    instance: Instance, layout: Layout, target: int, solve_window: SolveWindow, deadline: Deadline
) -> Integers | None:
    """Offsets that all end at or below the target; None as soon as one buffer cannot be brought below."""
    offsets = np.array(layout.offsets, dtype=np.int64)
    while (over := np.flatnonzero(offsets + instance.exact > target)).size:
        worst = over[np.argmin(instance.end[over] - instance.start[over])]
        if deadline.expired or not _bring_below(instance, offsets, int(worst), target, solve_window):
            return None
    return offsets


def _bring_below(
    instance: Instance, offsets: Integers, worst: int, target: int, solve_window: SolveWindow
) -> bool:
    """Widen the window around the buffer until it gives way; changes `offsets` if one does."""
    if instance.offset[worst] != FREE:
        return False
    for reach in REACHES:
        first = max(0, int(instance.start[worst]) - reach)
        last = min(instance.sections, int(instance.end[worst]) + reach)
        inside = (instance.start >= first) & (instance.end <= last) & (instance.offset == FREE)
        free = np.flatnonzero(inside)
        if len(free) > WINDOW_BUFFERS:
            return False
        window = _window(instance, offsets, inside, first, last)
        found = solve_window(window, target)
        if found is not None:
            offsets[free] = found[: len(free)]
            return True
    return False


def _window(instance: Instance, offsets: Integers, inside: np.ndarray, first: int, last: int) -> Instance:
    """The free buffers, then the pinned ones, over sections [first, last)."""
    free = instance.subset(np.flatnonzero(inside))
    touching = (instance.start < last) & (instance.end > first) & ~inside
    through = touching & (instance.start <= first) & (instance.end >= last)
    part = np.flatnonzero(touching & ~through)
    bottom, top = _merged(offsets[through], offsets[through] + instance.size[through])
    start = np.concatenate((free.start, instance.start[part], np.full(len(bottom), first)))
    end = np.concatenate((free.end, instance.end[part], np.full(len(bottom), last)))
    size = np.concatenate((free.size, instance.size[part], top - bottom))
    alignment = np.concatenate((free.alignment, np.full(len(part) + len(bottom), instance.alignment.min())))
    return Instance(
        start=np.maximum(start, first) - first,
        end=np.minimum(end, last) - first,
        size=size,
        exact=np.concatenate((free.exact, instance.exact[part], top - bottom)),
        alignment=alignment,
        offset=np.concatenate((np.full(len(free), FREE), offsets[part], bottom)),
        sections=last - first,
    )


def _merged(bottom: Integers, top: Integers) -> tuple[Integers, Integers]:
    """The union of disjoint intervals, those that touch joined, lowest first."""
    order = np.argsort(bottom)
    bottom, top = bottom[order], top[order]
    begins = np.ones(len(bottom), dtype=bool)
    begins[1:] = bottom[1:] != top[:-1]
    ends = np.append(begins[1:], True)[: len(bottom)]
    return bottom[begins], top[ends]


def repack(window: Instance, limit: int) -> Integers | None:
    """Some orders, then whoever did not fit moves forward; the same window gives the same answer."""
    if window.load().max(initial=0) > limit:
        return None
    by_name = orders(window)
    for name in ("size", "size-root-lifetime", "magnitude-lifetime", "area", "lifetime"):
        found = place(window, by_name[name](), first_fit, limit)
        if found is not None:
            return found
    return _squeeze(window, by_name["size"](), limit)


def _squeeze(window: Instance, order: Integers, limit: int) -> Integers | None:
    draw, left = random.Random(SEED), [i for i in order.tolist() if window.offset[i] == FREE]
    for _ in range(ATTEMPTS):
        offsets, placed = place_until(window, np.array(left), first_fit, limit)
        if placed == len(left):
            return offsets
        failed = left.pop(placed)
        left.insert(draw.randrange(placed // 2 + 1), failed)
    return None
