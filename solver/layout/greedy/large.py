"""Very many buffers: a few promising orders, two at a time on threads, until the layout is good enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from threading import Event
from types import ModuleType
from typing import Final

from solver.layout.greedy.index import Walk
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout

__all__ = ["GOOD_ENOUGH", "LARGE", "race", "walk"]

#: Buffers from which one pass takes so long that two threads pay, and that not all orders are tried.
LARGE: Final = 5000

#: One part in so many of the bound: a smaller optimality gap is not worth another
#: pass over very many buffers.
GOOD_ENOUGH: Final = 2000

_THREADS: Final = 2

#: Buffers for each section from which two orders go at a time: the memory of a walk grows with the sections.
ROOMY: Final = 3

#: Seconds between looks at the deadline.
TICK: Final = 0.01


def race(
    instance: Instance,
    module: ModuleType,
    orders: Mapping[str, Callable[[], Integers]],
    bound: int,
    deadline: Deadline,
    known: Layout | None = None,
) -> tuple[Layout, str, bool]:
    """The best layout, the order that gave it, and whether the deadline cut in.

    Orders go in pairs, side by side where memory allows, and the lower peak wins, the earlier order on a tie,
    so threads decide nothing. Without a layout that is `known`, the first order is finished whatever the
    deadline says; later ones are given up within some milliseconds.
    """
    best, found, cut = known or Layout((), MAX_BYTES), "", False
    names, threads = iter(orders), _THREADS if len(instance) >= ROOMY * instance.sections else 1
    with ThreadPoolExecutor(threads) as pool:
        for pair in iter(lambda: tuple(islice(names, _THREADS)), ()):
            enough = best.peak - bound <= bound // GOOD_ENOUGH
            if (found and enough) or ((found or known) and deadline.expired):
                cut = cut or not enough
                break
            runs = [_Run(instance, module, orders[name], best.peak - 1) for name in pair]
            futures = [pool.submit(run) for run in runs]
            cut = _supervise(runs, futures, deadline, spare_first=not (found or known)) or cut
            for name, offsets in zip(pair, (future.result() for future in futures), strict=True):
                if offsets is not None and int((offsets + instance.exact).max()) < best.peak:
                    best, found = layout_of(instance, offsets), name
    return best, found, cut


def walk(
    instance: Instance, module: ModuleType, order: Integers, limit: int, deadline: Deadline
) -> tuple[Layout | None, bool]:
    """First fit in one order; None where it ends beyond `limit`, or the deadline cut in, which is said."""
    walk = Walk(instance, module)
    placed = walk.place(order, limit, late=lambda: deadline.expired)
    if placed == len(instance):
        return layout_of(instance, walk.offsets), False
    return None, deadline.expired


def _supervise(
    runs: list[_Run], futures: list[Future[Integers | None]], deadline: Deadline, *, spare_first: bool
) -> bool:
    """Wait; when the deadline passes, cancel what still runs and say so."""
    while (late := wait(futures, min(TICK, deadline.remaining)).not_done) and not deadline.expired:
        pass
    for run, future in islice(zip(runs, futures, strict=True), int(spare_first), None):
        if future in late:
            run.cancelled.set()
    return bool(late)


class _Run:
    """Offsets of one order under a limit; None where it does not fit, or was cancelled."""

    def __init__(
        self, instance: Instance, module: ModuleType, order: Callable[[], Integers], limit: int
    ) -> None:
        self._instance, self._module, self._order, self._limit = instance, module, order, limit
        self.cancelled = Event()

    def __call__(self) -> Integers | None:
        walk = Walk(self._instance, self._module)
        placed = walk.place(self._order(), self._limit, late=self.cancelled.is_set)
        return walk.offsets if placed == len(self._instance) else None
