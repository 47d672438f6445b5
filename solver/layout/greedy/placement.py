"""Greedy layouts: place the buffers one by one in some order, each into a free block.

Large first with first fit is the classic (Pisarchyk & Lee, 2020, arXiv 2001.03288); no single
order wins everywhere, so a portfolio of them is tried until one meets the max-load bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from solver.layout.bounds.max_load import max_load
from solver.layout.bounds.settle import settle
from solver.layout.greedy.in_time import in_order_of_time
from solver.layout.greedy.index import COMPILED_FROM, LOADED_FROM, Walk, kernel
from solver.layout.greedy.large import GOOD_ENOUGH, LARGE, race
from solver.layout.greedy.sample import Orders, ranked, sample
from solver.layout.greedy.skyline import RULES, lowest_plateau
from solver.layout.model.contention import peak_load_seen
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.options import InPieces
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout, LayoutProblem, Outcome
from solver.layout.model.sorting import in_order
from solver.layout.structures.classes import in_classes
from solver.layout.structures.colouring import depth

__all__ = [
    "BY_SIZE",
    "CLASSES_FROM",
    "DEEP_ATTEMPTS",
    "DEEP_IN_HASTE",
    "DEPTH",
    "IN_TURNS",
    "LARGE_ORDERS",
    "PINNED_ATTEMPTS",
    "SHALLOW_IN_HASTE",
    "SOONEST",
    "SWEPT",
    "SWIFT_ATTEMPTS",
    "TIME_ATTEMPTS",
    "USUAL_ATTEMPTS",
    "Fit",
    "Greedy",
    "GreedyResult",
    "attempt",
    "best_fit",
    "first_fit",
    "greedy_portfolio",
    "orders",
    "place",
    "place_in_numpy",
    "place_many",
    "place_once",
    "place_suited",
    "place_until",
    "soon_in_time",
    "suited",
]

#: Chooses among free blocks: (room in bytes of each, lowest first; size needed) -> index of the block.
#: The last block is the unlimited one above everything.
Fit = Callable[[Integers, int], int]

#: The skyline costs sections times buffers; beyond this it no longer pays for itself.
SKYLINE_WORK: Final = 4_000_000

#: Tried first, because they win most often on training steps; all others follow.
FIRST_FIT_ORDERS: Final = ("size", "contention-size", "area")

#: Tried first where there are many buffers, in this order; of very many, behind those that suit a sample.
#: Size leads in training steps; birth and death where none lives within another, magnitude and degree where
#: lives are long and sizes are powers. Who cuts memory into buffers often lists what lies lower first: that
#: order fills what it was cut from.
LARGE_ORDERS: Final = (
    "magnitude-lifetime",
    "size-slack",
    "birth",
    "death",
    "listed",
    "listed-last",
    "magnitude-birth",
    "slack-size",
    "degree-size",
    "size-root-lifetime",
    "lifetime-birth",
    "size-and-slack",
    "end",
    "size",
    "size-fourth-root-lifetime",
)

#: Those of them that are tried where a layout is good enough already: the others seldom win the last bytes.
LARGE_ORDERS_NEAR: Final = (
    "magnitude-lifetime",
    "size-slack",
    "slack-size",
    "size-root-lifetime",
    "size-and-slack",
    "size",
    "size-fourth-root-lifetime",
)

#: Best fit has won with these where first fit did not; of very many buffers with the others.
BEST_FIT_ORDERS: Final = ("contention-size", "contention-area")
LARGE_BEST_FIT: Final = (
    "birth",
    "magnitude-birth",
    "lifetime-birth",
    "start-size",
    "lifetime",
    "size-slack",
    "death",
    "listed-last",
    "end-size",
    "start-lifetime",
    "birth-small",
    "birth-last",
    "size",
    "contention",
    "contention-area",
    "magnitudes-birth",
    "magnitude-pairs-birth",
    "slack-size",
    "end",
    "size-birth",
)

#: Attempts with very many buffers without a sample, or behind those that suit one.
USUAL_ATTEMPTS: Final = (
    *(f"{name}, first_fit" for name in LARGE_ORDERS),
    *(f"{name}, best_fit" for name in LARGE_BEST_FIT[:2]),
)

#: What wins most often where much lives at once, though a sample, in which less does, seldom says so.
DEEP_ATTEMPTS: Final = (
    "magnitude-pairs-birth, best_fit",
    "birth, best_fit",
    "magnitude-birth, best_fit",
    "death, best_fit",
    "end-size, best_fit",
    "birth-small, best_fit",
    "magnitude-birth, first_fit",
    "start-lifetime, best_fit",
)

#: Orders of time: a pass takes a thirtieth to a half of what others take. Which of equal births or deaths
#: goes first decides as much as any other choice, and no sample tells.
TIME_ORDERS: Final = (
    "birth",
    "death",
    "start-lifetime",
    "end-size",
    "start-size",
    "birth-small",
    "end-lifetime",
    "end-small",
    "birth-listed",
    "death-listed",
)
TIME_BEST_FIT: Final = tuple(f"{name}, best_fit" for name in TIME_ORDERS)
TIME_ATTEMPTS: Final = (*TIME_BEST_FIT, *(f"{name}, first_fit" for name in TIME_ORDERS))
IN_TURNS: Final = tuple(f"{name}, {fit}" for name in TIME_ORDERS for fit in ("first_fit", "best_fit"))

#: The one that `in_order_of_time` makes.
SWEPT: Final = "start-size, first_fit"

#: The one that takes least time where very much lives at once: best fit looks at all that is free.
SOONEST: Final = "birth-listed, first_fit"

#: Where much is pinned, pins mostly are of a former layout, and the order that made it makes the rest again.
PINNED_ATTEMPTS: Final = (
    "listed, first_fit",
    "birth, best_fit",
    "size, first_fit",
    "slack-size, first_fit",
    "area, first_fit",
    "lifetime-birth, first_fit",
    "contention-area, best_fit",
    "birth, first_fit",
    "area, best_fit",
)

#: What wins now and then, and takes a fraction of the time of others where alignments leave no slivers.
SWIFT_ATTEMPTS: Final = (
    "end, first_fit",
    "size-birth, first_fit",
    "last-listed, first_fit",
    "lifetime-birth, first_fit",
)

#: The attempt that takes little time even where very many buffers live long; and the seconds that are kept
#: for it, times the square of their number, if that is not most of the time: 60,000 to 200,000 took 1.8 to
#: 2.4e-10.
BY_SIZE: Final = "size, first_fit"
BY_SIZE_SECONDS: Final = 2.4e-10

#: In haste, what takes least first, of each kind one. Where much lives at once, best fit looks at all that is
#: free, so most of it goes last; where little does, a sweep takes a tenth of the order by size.
DEEP_IN_HASTE: Final = tuple(
    dict.fromkeys(
        (
            "end, first_fit",
            "end-lifetime, first_fit",
            "size-birth, first_fit",
            "death, first_fit",
            "lifetime-birth, first_fit",
            "birth, first_fit",
            "death, best_fit",
            "birth, best_fit",
            "last-listed, first_fit",
            *(f"{name}, first_fit" for name in TIME_ORDERS),
            *TIME_BEST_FIT,
        )
    )
)
SHALLOW_IN_HASTE: Final = ("death, best_fit", BY_SIZE, "end-lifetime, first_fit", "end-size, best_fit")

#: Doublings of the size that "magnitudes-birth" takes for one, and "magnitude-pairs-birth".
MAGNITUDES: Final = 4
PAIR: Final = 2

#: Buffers of the smaller sample, which tells the better half of all attempts for a fifth of the time.
ROUGH_SAMPLE: Final = 500

#: By size suits a sample where it wastes less than one part in so many.
LITTLE: Final = 1000

#: Buffers that live at once, up to which placing in the order of time looks at each of them.
DEPTH: Final = 2000

#: What placing in the order of time takes, times buffers and those that live at once; and what it may take
#: for a first layout, with its share of the time.
SWEEP_SECONDS: Final = 2e-10
FIRST_SWEEP_SECONDS: Final = 1.0
FIRST_SWEEP_SHARE: Final = 0.75

#: Buffers from which the first layout is made without an order by size: that takes seconds.
CLASSES_FROM: Final = 200_000

#: Seconds a buffer that a layout in classes takes, more or less; and seconds that a first layout may take,
#: whatever the deadline says, before the rest is placed so.
CLASSES_SECONDS: Final = 1e-6
FIRST_SECONDS: Final = 0.04

#: What the largest slack weighs, in sizes of the largest buffer: where size leads, neither, or slack.
SIZE_LEADS: Final = 0.3
NEITHER_LEADS: Final = 2.0
SLACK_LEADS: Final = 4.0


def first_fit(room: Integers, size: int) -> int:
    """The lowest block that is large enough."""
    return int((room >= size).argmax())


def best_fit(room: Integers, size: int) -> int:
    """The block that leaves the least over; the lowest of these."""
    return int(np.where(room >= size, room, MAX_BYTES).argmin())


class _Shelf:
    """Buffers placed so far, by offset, between the ground and a lid above all (both live at all times).

    Rows: first section, one past the last, bottom, top.
    """

    def __init__(self, capacity: int) -> None:
        self._rows = np.zeros((4, capacity + 2), dtype=np.int64)
        self._rows[:, 0] = (-1, MAX_BYTES, -1, 0)
        self._rows[:, 1] = (-1, MAX_BYTES, MAX_BYTES, MAX_BYTES)
        self._count = 2

    def insert(self, start: int, end: int, bottom: int, top: int) -> None:
        rows, count = self._rows, self._count
        at = int(rows[2, :count].searchsorted(bottom))
        rows[:, at + 1 : count + 1] = rows[:, at:count]
        rows[:, at] = (start, end, bottom, top)
        self._count = count + 1

    def free_blocks(self, start: int, end: int) -> tuple[Integers, Integers]:
        """Bottom and top of every block that is free throughout sections [start, end), lowest first."""
        starts, ends, bottoms, tops = self._rows[:, : self._count]
        live = (starts < end) & (ends > start)
        return np.maximum.accumulate(tops[live])[:-1], bottoms[live][1:]


def place(instance: Instance, order: Integers, fit: Fit, limit: int = MAX_BYTES) -> Integers | None:
    """Offsets from placing in this order, or None as soon as one would end beyond `limit`."""
    offsets, placed = place_until(instance, order, fit, limit)
    return offsets if placed == len(order) else None


def place_once(
    instance: Instance, order: Integers, deadline: Deadline, *, tightest: bool = False
) -> Integers:
    """The offsets of first fit by `place`, or of best fit where it is to be the `tightest` block.

    Compiled code is loaded only where this one pass is worth it. It looks at the deadline: what is left by
    then goes above all that was placed, in classes of sizes. The first milliseconds are always taken.
    """
    compiled = kernel() if kernel.loaded or len(instance) >= LOADED_FROM else None
    if compiled is None or len(instance) < COMPILED_FROM:
        return place_in_numpy(instance, order, best_fit if tightest else first_fit, MAX_BYTES)[0]
    until, reserve = time.perf_counter() + FIRST_SECONDS, CLASSES_SECONDS * len(instance)
    walk = Walk(instance, compiled)
    placed = walk.place(
        order,
        MAX_BYTES,
        best_fit=tightest,
        late=lambda: deadline.remaining <= reserve and time.perf_counter() > until,
    )
    return walk.offsets if placed == len(order) else in_classes(replace(instance, offset=walk.offsets))


def place_many(instance: Instance, deadline: Deadline) -> Integers:
    """Offsets in a few sorts: in the order of time where that is short, in classes of sizes elsewhere.

    Up to a second for a million. Where the deadline ends the one, it is the other.
    """
    found = in_order_of_time(instance, deadline) if soon_in_time(instance, deadline) else None
    return in_classes(instance) if found is None else found


def soon_in_time(instance: Instance, deadline: Deadline) -> bool:
    """Whether a sweep in the order of time is short enough for a first layout, and for the deadline.

    Of fewer than very many buffers the order by size comes first, where there is time for it.
    """
    if len(instance) < CLASSES_FROM and 2 * BY_SIZE_SECONDS * len(instance) ** 2 < deadline.remaining:
        return False
    seconds = SWEEP_SECONDS * len(instance) * depth(instance)
    return seconds <= min(FIRST_SWEEP_SECONDS, FIRST_SWEEP_SHARE * deadline.remaining)


def place_until(
    instance: Instance, order: Integers, fit: Fit, limit: int = MAX_BYTES
) -> tuple[Integers, int]:
    """Offsets (`FREE` where not placed), and how far into the order it got within `limit`.

    Pinned buffers are placed before all others, wherever they stand in the order. O(n) per
    placement as a handful of NumPy calls; about O(log n) compiled, where there are many buffers.
    """
    compiled = kernel() if len(instance) >= COMPILED_FROM and fit in (first_fit, best_fit) else None
    if compiled is not None:
        walk = Walk(instance, compiled)
        placed = walk.place(order, limit, best_fit=fit is best_fit)
        return walk.offsets, placed
    return place_in_numpy(instance, order, fit, limit)


def place_in_numpy(instance: Instance, order: Integers, fit: Fit, limit: int) -> tuple[Integers, int]:
    """What `place_until` gives, with NumPy alone: the fallback, and what compiled code is compared with."""
    offsets = instance.offset.copy()
    shelf = _Shelf(len(instance))
    start, end, size = instance.start.tolist(), instance.end.tolist(), instance.size.tolist()
    exact, alignment = instance.exact.tolist(), instance.alignment.tolist()
    granule = min(alignment, default=1)
    pinned = instance.offset != FREE
    for i in np.flatnonzero(pinned).tolist():
        shelf.insert(start[i], end[i], int(offsets[i]), int(offsets[i]) + size[i])
    for count, i in enumerate(order.tolist()):
        if pinned[i]:
            continue
        bottoms, tops = shelf.free_blocks(start[i], end[i])
        if alignment[i] > granule:
            bottoms = (bottoms + (alignment[i] - 1)) & -alignment[i]
        offset = int(bottoms[fit(tops - bottoms, size[i])])
        if offset + exact[i] > limit:
            return offsets, count
        offsets[i] = offset
        shelf.insert(start[i], end[i], offset, offset + size[i])
    return offsets, len(order)


def orders(instance: Instance) -> dict[str, Callable[[], Integers]]:
    """Placement orders by name, made when asked for. Ties fall back on the problem's order.

    Size first wins most often. The next six soften it: a long life makes a buffer harder to place than
    its size says, and slack below the largest load throughout its life makes it easier. Those by birth or
    death place like sizes, or like lives, in the order of time: memory is handed on as in a queue.
    """
    start, end, size = instance.start, instance.end, instance.size

    def width() -> Integers:
        return end - start

    def area() -> npt.NDArray[np.float64]:
        return size.astype(np.float64) * width()

    def magnitude(of: Integers) -> Integers:
        return np.frexp(of.astype(np.float64))[1]

    return {
        "size": lambda: _sorted(-size, -width()),
        "size-root-lifetime": lambda: _sorted(-size * np.sqrt(width()), -size),
        "size-slack": lambda: _sorted(_slack(instance, SIZE_LEADS) - size, -size),
        "size-and-slack": lambda: _sorted(_slack(instance, NEITHER_LEADS) - size, -size),
        "slack-size": lambda: _sorted(_slack(instance, SLACK_LEADS) - size, -size),
        "size-fourth-root-lifetime": lambda: _sorted(-size * np.sqrt(np.sqrt(width())), -size),
        "magnitude-lifetime": lambda: _sorted(-(magnitude(size) // 2), -width()),
        "area": lambda: _sorted(-area(), -size),
        "lifetime": lambda: _sorted(-width(), -size),
        "contention-size": lambda: _sorted(-peak_load_seen(instance), -size),
        "contention-area": lambda: _sorted(-peak_load_seen(instance), -area()),
        "degree": lambda: _sorted(-instance.degree(), -size),
        "degree-size": lambda: _sorted(-instance.degree() * size.astype(np.float64), -width()),
        "listed": lambda: np.arange(len(size)),
        "listed-last": lambda: np.arange(len(size))[::-1],
        "start-size": lambda: _sorted(start, -size),
        "start-lifetime": lambda: _sorted(start, -width()),
        "end-size": lambda: _sorted(-end, -size),
        "birth": lambda: _sorted(start, end),
        "death": lambda: _sorted(-end, -start),
        "end": lambda: _sorted(end, start),
        "magnitude-birth": lambda: _sorted(-magnitude(size), start, end),
        "magnitudes-birth": lambda: _sorted(-(magnitude(size) // MAGNITUDES), start, end),
        "lifetime-birth": lambda: _sorted(-magnitude(width()), start, end),
    }


def _orders_of_many(instance: Instance) -> Orders:
    """All that may be tried where there are very many buffers; each name says the fit as well.

    Seven orders more than `orders`: they cost a sample of others nothing.
    """
    start, end, size = instance.start, instance.end, instance.size
    by_name = orders(instance)
    first = {name: by_name.pop(name) for name in LARGE_ORDERS}
    more = {
        "magnitude-pairs-birth": lambda: _sorted(-(np.frexp(size.astype(np.float64))[1] // PAIR), start, end),
        "birth-small": lambda: _sorted(start, size),
        "end-small": lambda: _sorted(-end, size),
        "end-lifetime": lambda: _sorted(-end, start),
        "birth-listed": lambda: _sorted(start),
        "death-listed": lambda: _sorted(-end),
        "size-birth": lambda: _sorted(-size, start),
        "longest-birth": lambda: _sorted(start - end, start),
        "birth-last": lambda: _sorted(-start, -end),
        "last-listed": lambda: _sorted(-start),
        "contention": lambda: _sorted(-peak_load_seen(instance)),
    }
    by_name = first | by_name | more
    attempts = {f"{name}, first_fit": (order, False) for name, order in by_name.items()}
    best = dict.fromkeys((*LARGE_BEST_FIT, *by_name))
    return attempts | {f"{name}, best_fit": (by_name[name], True) for name in best}


def _orders_of_sample(instance: Instance) -> Orders:
    """Those of them that a sample ranks: the other best fits seldom win, and orders of time need no rank."""
    best = {f"{name}, best_fit" for name in LARGE_BEST_FIT}
    every = _orders_of_many(instance).items()
    return {
        name: chosen
        for name, chosen in every
        if (not chosen[1] or name in best) and name not in TIME_ATTEMPTS
    }


def _sorted(*keys: npt.NDArray[Any]) -> Integers:
    """By the first key, then the second."""
    return in_order(*keys)


def _slack(instance: Instance, weight: float) -> npt.NDArray[np.float64]:
    """Bytes free below the largest load at the busiest section of each life.

    Scaled: the most there is counts as `weight` of the largest buffers.
    """
    contention = peak_load_seen(instance)
    slack = (contention.max(initial=0) - contention).astype(np.float64)
    scaled: npt.NDArray[np.float64] = slack * (
        weight * float(instance.size.max(initial=0)) / max(slack.max(initial=0.0), 1.0)
    )
    return scaled


@dataclass(frozen=True, slots=True)
class GreedyResult:
    """The best layout, the order that gave it, and whether the deadline cut the portfolio short."""

    layout: Layout
    order: str
    cut: bool


def suited(instance: Instance, deadline: Deadline) -> list[str]:
    """Names of all attempts, what suits a sample first; none of few buffers, or if by size wastes nothing.

    Two rounds: a small sample, and of the better half a larger one. Some 60 to 120 ms of a processor; the
    deadline cuts it short. Placing all in the order that it names comes on top: of 20,000 buffers up to a
    third of a second.
    """
    module = kernel() if len(instance) >= LARGE else None
    if module is None:
        return []
    part = sample(instance)
    by_size, bound = Walk(part, module), int(part.load().max())
    if by_size.place(orders(part)["size"](), bound + bound // LITTLE) == len(part):
        return []
    rough = ranked(sample(part, ROUGH_SAMPLE), module, _orders_of_sample, deadline)
    better = rough[: len(rough) // 2]

    def chosen(of: Instance) -> Orders:
        every = _orders_of_many(of)
        return {name: every[name] for name in better}

    names = ranked(part, module, chosen, deadline) + rough[len(better) :]
    return list(dict.fromkeys((*names, *_orders_of_many(part))))


def place_suited(instance: Instance, name: str, deadline: Deadline) -> tuple[Integers, str]:
    """The offsets of an attempt with many buffers, by its name, and what gave them.

    Where it does not end in time for the order by size, it is that one instead, as `place_once`: half an
    order is worth less.
    """
    kept = min(BY_SIZE_SECONDS * len(instance) ** 2, deadline.remaining / 2)
    module, part = kernel(), deadline.sooner(kept)
    assert module is not None  # which is what the sample was placed with
    order, tightest = attempt(instance, name)
    walk = Walk(instance, module)
    if walk.place(order, MAX_BYTES, best_fit=tightest, late=lambda: part.expired) == len(order):
        return walk.offsets, name
    del walk  # its memory counts no more
    return place_once(instance, attempt(instance, BY_SIZE)[0], deadline), BY_SIZE


def attempt(instance: Instance, name: str) -> tuple[Integers, bool]:
    """The order of an attempt with many buffers, by its name, and whether it takes the best fit."""
    order, tightest = _orders_of_many(instance)[name]
    return order(), tightest


def greedy_portfolio(
    instance: Instance,
    bound: int,
    deadline: Deadline,
    attempts: int | None = None,
    known: Layout | None = None,
    names: Sequence[str] = (),
    parts: int = GOOD_ENOUGH,
) -> GreedyResult:
    """The best of all orders and fits, or of the first `attempts`; stops at the bound.

    A layout that is `known` stands until a lower one is found; without one, the first order is finished
    whatever the deadline says.

    Beyond `LARGE` buffers, or with `names`, attempts go two at a time, until the layout is above the bound by
    no more than one part in `parts` (0: until it meets the bound): those of `names`, or without any
    `USUAL_ATTEMPTS`, and `LARGE_ORDERS_NEAR` alone where what is known is good enough already.
    """
    module = kernel() if names or len(instance) >= LARGE else None
    if module is not None:
        if not names and known is not None and known.peak - bound <= bound // GOOD_ENOUGH:
            names = [f"{name}, first_fit" for name in LARGE_ORDERS_NEAR]
        chosen = _orders_of_many(instance)
        some = {name: chosen[name] for name in names or USUAL_ATTEMPTS}
        return GreedyResult(*race(instance, module, some, bound, deadline, known, parts))
    return _one_by_one(instance, bound, deadline, attempts, known)


def _one_by_one(
    instance: Instance, bound: int, deadline: Deadline, attempts: int | None, known: Layout | None
) -> GreedyResult:
    best = None if known is None else GreedyResult(known, "", cut=False)
    for name, attempt in islice(_attempts(instance, deadline), attempts):
        if best is not None and deadline.expired:
            return GreedyResult(best.layout, best.order, cut=True)
        limit = MAX_BYTES if best is None else best.layout.peak - 1
        offsets = attempt(limit)
        if offsets is not None:
            best = GreedyResult(layout_of(instance, offsets), name, cut=False)
            if best.layout.peak <= bound:
                return best
    if best is None:
        raise ValueError("no attempt was made")
    return replace(best, cut=deadline.expired)


def _attempts(
    instance: Instance, deadline: Deadline
) -> Iterator[tuple[str, Callable[[int], Integers | None]]]:
    """Attempts by name, cheap and promising first: each gives offsets within a limit, or None."""
    by_name = orders(instance)
    first = FIRST_FIT_ORDERS if len(instance) < LARGE else LARGE_ORDERS

    def placed(name: str, fit: Fit) -> tuple[str, Callable[[int], Integers | None]]:
        return f"{name}, {fit.__name__}", lambda limit: place(instance, by_name[name](), fit, limit)

    for fit, names in ((first_fit, first), (best_fit, BEST_FIT_ORDERS)):
        yield from (placed(name, fit) for name in names)
    if not (instance.pinned or instance.misaligning or len(instance) * instance.sections > SKYLINE_WORK):
        for rule in RULES:
            yield f"{rule}, skyline", partial(lowest_plateau, instance, rule, deadline=deadline)
    for fit, names in ((first_fit, first), (best_fit, BEST_FIT_ORDERS)):
        yield from (placed(name, fit) for name in by_name if name not in names)


class Greedy:
    """The portfolio as a solver by itself."""

    name = "greedy"
    in_pieces = InPieces(greedy=True)

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound = max_load(problem)
        result = greedy_portfolio(Instance.of(problem), bound.bytes, deadline)
        layout = min((x for x in (incumbent, result.layout) if x is not None), key=lambda x: x.peak)
        return settle(problem, layout, bound, self.name, began, deterministic=not result.cut)
