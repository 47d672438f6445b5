"""Very many buffers: a few promising orders, two at a time on threads, until the layout is good enough."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Final

from solver.layout.greedy.index import Walk
from solver.layout.greedy.sample import Orders
from solver.layout.model.heap import give_back
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout

__all__ = ["GOOD_ENOUGH", "LARGE", "race", "walk"]

#: Buffers from which one pass takes so long that two threads pay, and that not all orders are tried.
LARGE: Final = 1000

#: One part in so many of the bound: a smaller optimality gap is not worth another
#: pass over very many buffers.
GOOD_ENOUGH: Final = 2000

_THREADS: Final = 2

#: Buffers for each section from which two orders go at a time: the memory of a walk grows with the sections.
ROOMY: Final = 3


def race(
    instance: Instance,
    module: ModuleType,
    orders: Orders,
    bound: int,
    deadline: Deadline,
    known: Layout | None = None,
    parts: int = GOOD_ENOUGH,
) -> tuple[Layout, str, bool]:
    """The best layout, the order that gave it, and whether the deadline cut in.

    Orders go in pairs, side by side where memory allows, and the lower peak wins, the earlier order on a tie,
    so threads decide nothing. It ends with a lower layout that is above the bound by no more than one part in
    `parts`, or that meets it where that is 0. Without a layout that is `known`, the first order is finished
    whatever the deadline says; later ones are given up within some milliseconds.
    """
    best, peak, found, cut = None, known.peak if known else MAX_BYTES, "", False
    names, together = iter(orders), len(instance) >= ROOMY * instance.sections
    for pair in iter(lambda: tuple(islice(names, _THREADS)), ()):
        enough = peak - bound <= (bound // parts if parts else 0)
        if (found and enough) or ((found or known) and deadline.expired):
            cut = cut or not enough
            break
        runs = [_Run(instance, module, *orders[name], peak - 1, deadline) for name in pair]
        if not (found or known):
            runs[0].deadline = Deadline()
        if together:
            with ThreadPoolExecutor(_THREADS) as pool:
                placed = list(pool.map(_Run.__call__, runs))
        else:
            placed = [run() for run in runs]
        cut = cut or any(run.cut for run in runs)
        for name, offsets in zip(pair, placed, strict=True):
            if offsets is not None and (top := int((offsets + instance.exact).max())) < peak:
                best, peak, found = offsets, top, name
    # As a layout they take five times the memory, so there is one in the end.
    layout = known or Layout((), MAX_BYTES)
    return layout if best is None else layout_of(instance, best), found, cut


def walk(
    instance: Instance, module: ModuleType, order: Integers, limit: int, deadline: Deadline
) -> tuple[Layout | None, bool]:
    """First fit in one order; None where it ends beyond `limit`, or the deadline cut in, which is said."""
    run = _Run(instance, module, lambda: order, False, limit, deadline)
    offsets = run()
    return None if offsets is None else layout_of(instance, offsets), run.cut


@dataclass(slots=True)
class _Run:
    """Offsets of one order under a limit; None where it does not fit, or the deadline cut in."""

    instance: Instance
    module: ModuleType
    order: Callable[[], Integers]
    best_fit: bool
    limit: int
    deadline: Deadline
    cut: bool = False

    def __call__(self) -> Integers | None:
        order, walk = self.order(), Walk(self.instance, self.module)
        give_back()
        placed = walk.place(order, self.limit, best_fit=self.best_fit, late=self._late)
        return walk.offsets if placed == len(self.instance) else None

    def _late(self) -> bool:
        self.cut = self.deadline.expired
        return self.cut
