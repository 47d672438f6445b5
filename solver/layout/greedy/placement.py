"""Greedy layouts: place the buffers one by one in some order, each into a free block.

Large first with first fit is the classic (Pisarchyk & Lee, 2020, arXiv 2001.03288); no single order wins
everywhere, so a portfolio of them is tried until one meets the max-load bound. `place` is the one placement
of the package; it takes buffers with holes as well, piece by piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from solver.layout.bounds import max_load, settle
from solver.layout.greedy.index import place_compiled, placed_in_numpy
from solver.layout.greedy.skyline import RULES, lowest_plateau
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout, LayoutProblem, Outcome
from solver.layout.model.sorting import in_order
from solver.layout.structures import in_classes

__all__ = [
    "MANY",
    "Greedy",
    "GreedyResult",
    "greedy_portfolio",
    "orders",
    "place",
    "place_first",
    "place_in_numpy",
]

#: Sections times buffers up to which the skyline heuristic is tried: beyond, it takes longer than all orders.
SKYLINE_WORK: Final = 4_000_000

#: Orders by name with a fit, the most successful first. From `MANY` buffers on, where a pass takes longer,
#: the first line is another; all other orders with both fits follow.
FIRST_ATTEMPTS: Final = (
    "size, first fit", "contention-size, first fit", "area, first fit",
    "contention-size, best fit", "contention-area, best fit",
)  # fmt: skip
FIRST_ATTEMPTS_OF_MANY: Final = (
    "magnitude-lifetime, first fit", "size-slack, first fit", "birth, best fit", "death, best fit",
    "magnitude-birth, best fit", "size, first fit", "listed, first fit", "birth, first fit",
    "slack-size, first fit", "listed-last, first fit", "degree-size, first fit", "lifetime-birth, best fit",
)  # fmt: skip

#: Buffers from which a pass takes so long that other orders are tried only while a deadline leaves time.
MANY: Final = 1000

#: Gap at which no further order is tried with `MANY` buffers: the exact search wins the last bytes sooner.
GOOD_GAP: Final = 1 / 2000

#: Seconds that a first layout takes whatever the deadline says, and seconds a buffer to place what a deadline
#: leaves of it in classes of sizes.
FIRST_SECONDS: Final = 0.04
CLASSES_SECONDS: Final = 1e-6

#: Placements in NumPy between looks at the deadline, a millisecond or two.
LOOK: Final = 64

#: Weight of the largest slack in sizes of the largest buffer.
SIZE_LEADS: Final = 0.3
SLACK_LEADS: Final = 4.0


def place(
    instance: Instance,
    order: Integers,
    limit: int = MAX_BYTES,
    *,
    best_fit: bool = False,
    late: Callable[[], bool] = lambda: False,
    once: bool = False,
) -> tuple[Integers, int]:
    """Offsets (`FREE` where not placed), and how far into the order placing got within `limit` bytes.

    Each buffer goes to the lowest free place, or (`best_fit`) to the one that leaves the least room. Pinned
    buffers are placed before all others. It ends early once `late`, which is asked every few milliseconds.
    Compiled code is loaded where that pays, for which a single pass (`once`) has to be of more buffers.
    A placement costs some NumPy calls over all that is placed; compiled, where there are many buffers, about
    O(log n), and O(buffers that are met) with holes.
    """
    compiled = place_compiled(instance, order, limit, best_fit=best_fit, late=late, once=once)
    if compiled is not None:
        return compiled
    began = time.perf_counter()
    placed = place_in_numpy(instance, order, limit, best_fit=best_fit, late=late)
    placed_in_numpy(time.perf_counter() - began)
    return placed


def place_in_numpy(
    instance: Instance,
    order: Integers,
    limit: int = MAX_BYTES,
    *,
    best_fit: bool = False,
    late: Callable[[], bool] = lambda: False,
) -> tuple[Integers, int]:
    """The answer of `place`, with NumPy alone."""
    rows, offsets = instance.rows, instance.offset.copy()
    first = np.searchsorted(rows[:, 4], np.arange(len(instance) + 1))
    exact, alignment, pinned = instance.exact.tolist(), instance.alignment.tolist(), instance.offset != FREE
    shelf, used = np.empty((4, len(rows)), np.int64), 0

    def put(i: int) -> int:
        mine = rows[first[i] : first[i + 1]]
        shelf[:2, used : used + len(mine)] = mine[:, :2].T
        shelf[2:, used : used + len(mine)] = mine[:, 2:4].T + offsets[i]
        return used + len(mine)

    for i in np.flatnonzero(pinned).tolist():
        used = put(i)
    for count, i in enumerate(order.tolist()):
        if pinned[i]:
            continue
        if count % LOOK == 0 and late():
            return offsets, count
        mine = rows[first[i] : first[i + 1], :4]
        offset = _free_place(shelf[:, :used], mine, alignment[i], best_fit=best_fit)
        if offset + exact[i] > limit:
            return offsets, count
        offsets[i] = offset
        used = put(i)
    return offsets, len(order)


def _free_place(shelf: Integers, mine: Integers, alignment: int, *, best_fit: bool) -> int:
    """The lowest aligned offset at which no piece of `mine` meets one on the shelf, or the tightest.

    Pieces [low, high) and, there, [bottom, top) that share a step meet at offsets above bottom - high and
    below top - low. Of all these stretches, sorted by where they begin, each that begins at or beyond the
    ends of all before it leaves a free place between.
    """
    begins, ends = [], []
    for start, end, low, high in mine.tolist():
        met = (shelf[0] < end) & (shelf[1] > start)
        begins.append(shelf[2, met] - high)
        ends.append(shelf[3, met] - low)
    begin, end_ = np.concatenate(begins), np.concatenate(ends)
    order = begin.argsort(kind="stable")
    reach = np.maximum.accumulate(np.append(0, (end_[order] + (alignment - 1)) & -alignment))
    room = np.append(begin[order], MAX_BYTES) - reach
    chosen = np.where(room >= 0, room, MAX_BYTES).argmin() if best_fit else (room >= 0).argmax()
    return int(reach[chosen])


def place_first(instance: Instance, deadline: Deadline) -> Integers:
    """Offsets of first fit by size. What a deadline leaves out goes above all, in classes of sizes.

    The first milliseconds are always taken. With holes it takes buffers whole. O(n log n).
    """
    whole = instance.whole()
    until, reserve = time.perf_counter() + FIRST_SECONDS, CLASSES_SECONDS * len(instance)

    def late() -> bool:
        return deadline.remaining <= reserve and time.perf_counter() > until

    order = in_order(-instance.size, instance.start - instance.end)
    offsets, placed = place(whole, order, late=late, once=True)
    return offsets if placed == len(order) else in_classes(replace(whole, offset=offsets))


def orders(instance: Instance) -> dict[str, Callable[[], Integers]]:
    """Placement orders by name, made when asked for. Ties fall back on the problem's order.

    Size first wins most often. Some soften it: a long life makes a buffer harder to place than its size says,
    and slack below the largest load throughout its life makes it easier. By birth and by death, memory is
    handed on as in a queue. Who cuts memory into buffers often lists the lower ones first.
    """
    start, end, size = instance.start, instance.end, instance.size

    def width() -> Integers:
        return end - start

    def area() -> npt.NDArray[np.float64]:
        return size.astype(np.float64) * width()

    def magnitude(of: Integers) -> Integers:
        return np.frexp(of.astype(np.float64))[1]

    return {
        "size": lambda: in_order(-size, -width()),
        "size-root-lifetime": lambda: _sorted(-size * np.sqrt(width()), -size),
        "size-slack": lambda: _sorted(_slack(instance, SIZE_LEADS) - size, -size),
        "slack-size": lambda: _sorted(_slack(instance, SLACK_LEADS) - size, -size),
        "magnitude-lifetime": lambda: _sorted(-(magnitude(size) // 2), -width()),
        "area": lambda: _sorted(-area(), -size),
        "lifetime": lambda: _sorted(-width(), -size),
        "contention-size": lambda: _sorted(-instance.peak_load_seen(), -size),
        "contention-area": lambda: _sorted(-instance.peak_load_seen(), -area()),
        "degree-size": lambda: _sorted(-instance.degree() * size.astype(np.float64), -width()),
        "listed": lambda: np.arange(len(size)),
        "listed-last": lambda: np.arange(len(size))[::-1],
        "start-size": lambda: _sorted(start, -size),
        "birth": lambda: _sorted(start, end),
        "death": lambda: _sorted(-end, -start),
        "end": lambda: _sorted(end, start),
        "magnitude-birth": lambda: _sorted(-magnitude(size), start, end),
        "lifetime-birth": lambda: _sorted(-magnitude(width()), start, end),
    }


def _sorted(*keys: npt.NDArray[Any]) -> Integers:
    """By the first key, then the next."""
    return in_order(*keys)


def _slack(instance: Instance, weight: float) -> npt.NDArray[np.float64]:
    """Bytes free below the largest load at the busiest section of each life, the most as `weight` buffers."""
    contention = instance.peak_load_seen()
    slack = (contention.max(initial=0) - contention).astype(np.float64)
    scaled: npt.NDArray[np.float64] = slack * (
        weight * float(instance.size.max(initial=0)) / max(slack.max(initial=0.0), 1.0)
    )
    return scaled


@dataclass(frozen=True, slots=True)
class GreedyResult:
    """The best layout, whether an attempt lowered the one that was known, and whether the deadline cut in."""

    layout: Layout
    better: bool
    cut: bool


def greedy_portfolio(
    instance: Instance,
    enough: int,
    deadline: Deadline,
    known: Layout | None = None,
    attempts: int | None = None,
) -> GreedyResult:
    """The best of all orders and fits, or of the first `attempts`; stops at `enough` bytes.

    A layout that is `known` stands until a lower one is found; without one the first order is finished
    whatever the deadline says.
    """
    layout, better = known, False
    for k, attempt in enumerate(_attempts(instance)):
        if k == attempts or (layout is not None and (layout.peak <= enough or deadline.expired)):
            break
        limit = MAX_BYTES if layout is None else layout.peak - 1
        offsets = attempt(limit, Deadline() if layout is None else deadline)
        if offsets is not None:
            layout, better = layout_of(instance, offsets), True
    if layout is None:
        raise ValueError("no attempt was made")
    return GreedyResult(layout, better, cut=layout.peak > enough and deadline.expired)


def _attempts(instance: Instance) -> Iterator[Callable[[int, Deadline], Integers | None]]:
    """The most successful first: each gives offsets within a limit, or None."""
    by_name, plain = orders(instance), instance.pieces is None

    def attempt(name: str) -> Callable[[int, Deadline], Integers | None]:
        order, _, fit = name.partition(", ")

        def placed(limit: int, deadline: Deadline) -> Integers | None:
            positions = by_name[order]()
            offsets, count = place(
                instance, positions, limit, best_fit=fit == "best fit", late=lambda: deadline.expired
            )
            return offsets if count == len(positions) else None

        return placed

    def plateau(rule: str) -> Callable[[int, Deadline], Integers | None]:
        return lambda limit, deadline: lowest_plateau(instance, rule, limit, deadline)

    first = FIRST_ATTEMPTS if len(instance) < MANY else FIRST_ATTEMPTS_OF_MANY
    yield from map(attempt, first)
    sums = plain and not (instance.pinned or instance.misaligning)
    if sums and len(instance) * instance.sections <= SKYLINE_WORK:
        yield from map(plateau, RULES)
    for fit in ("first fit", "best fit"):
        yield from (attempt(name) for order in by_name if (name := f"{order}, {fit}") not in first)


class Greedy:
    """The portfolio of orders as a solver by itself."""

    name = "greedy"

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance = max_load(problem), Instance.of(problem)
        result = greedy_portfolio(instance, bound.bytes, deadline, incumbent)
        return settle(problem, result.layout, bound, self.name, began, deterministic=not result.cut)
