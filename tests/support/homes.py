"""Tiny problems of homes, and their least time by trying all homes and all layouts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from solver.accounting import HomeItem, HomeProblem
from solver.layout import Buffer, Hole, Layout, LayoutProblem, Lifespan, Outcome
from solver.layout.api import solve
from solver.schedules.homes.refine import LayOut

__all__ = ["laid_out", "least_nanoseconds", "tiny_problem"]

_LEVELS = 6


def tiny_problem(chance: random.Random, *, tight: bool = False) -> HomeProblem:
    """Up to seven items of up to 8 bytes in two or three memories; some may not lie in each of them."""
    memories, items = chance.choice((2, 2, 3)), []
    for _ in range(chance.randrange(1, 6 if memories == 3 else 8)):
        start = chance.randrange(_LEVELS)
        spans = [Lifespan(start, chance.randrange(start + 1, _LEVELS + 1))]
        if spans[0].end - start > 2 and chance.random() < 0.1:
            spans = [Lifespan(start, start + 1), Lifespan(start + 2, spans[0].end)]
        size, accesses = chance.randrange(1, 9), chance.randrange(1, 5)
        times = [accesses * size * (1 + 3 * k * k) + chance.randrange(3) for k in range(memories)]
        kept = chance.randrange(memories)
        banned = chance.random() < 0.1
        items.append(
            HomeItem(
                size,
                tuple(spans),
                tuple(t if not banned or k == kept else None for k, t in enumerate(times)),
            )
        )
    load = max(
        sum(item.size for item in items if any(s.start <= level < s.end for s in item.spans))
        for level in range(_LEVELS)
    )
    if tight:
        first = chance.randrange(load + 1)
        return HomeProblem(
            tuple(items),
            (max(first, 1), *(max(1, load - first + chance.randrange(3)) for _ in range(memories - 1))),
        )
    return HomeProblem(tuple(items), tuple(chance.randrange(4, 16) * (k + 1) for k in range(memories)))


def laid_out(problem: HomeProblem) -> LayOut:
    """Layouts as the planner asks for them."""

    def lay_out(k: int, inside: tuple[int, ...], start: Layout | None) -> Outcome:
        buffers = tuple(_buffer(i, problem.items[i]) for i in inside)
        return solve(LayoutProblem(buffers, problem.capacities[k]), incumbent=start)

    return lay_out


def _buffer(i: int, item: HomeItem) -> Buffer:
    holes = tuple(Hole(Lifespan(a.end, b.start)) for a, b in zip(item.spans, item.spans[1:], strict=False))
    return Buffer(str(i), item.size, Lifespan(item.spans[0].start, item.spans[-1].end), holes=holes)


def least_nanoseconds(problem: HomeProblem, *, layouts: bool) -> int | None:
    """The least time of all homes that keep the capacities; with `layouts`, of those that have one."""
    best: int | None = None
    items = problem.items
    for homes in product(range(len(problem.capacities)), repeat=len(items)):
        if any(item.nanoseconds[k] is None for item, k in zip(items, homes, strict=True)):
            continue
        time = problem.nanoseconds(homes)
        if best is not None and time >= best:
            continue
        inside = [
            [items[i] for i, home in enumerate(homes) if home == k] for k in range(len(problem.capacities))
        ]
        fits = _has_layout if layouts else _has_room
        if all(map(fits, inside, problem.capacities)):
            best = time
    return best


def _has_room(items: Sequence[HomeItem], capacity: int) -> bool:
    return all(
        sum(item.size for item in items if any(s.start <= level < s.end for s in item.spans)) <= capacity
        for level in range(_LEVELS + 4)
    )


def _has_layout(items: Sequence[HomeItem], capacity: int) -> bool:
    """Some order of the items, each as low as possible above those before it that it meets, fits.

    The items of a layout, lowest first, can sink like that, so nothing is missed.
    """
    if not _has_room(items, capacity):
        return False
    return _sinks([], list(items), capacity)


def _sinks(placed: list[tuple[int, HomeItem]], left: list[HomeItem], capacity: int) -> bool:
    if not left:
        return True
    for i, item in enumerate(left):
        bottom = max((top for top, other in placed if _meet(item, other)), default=0)
        if bottom + item.size <= capacity and _sinks(
            [*placed, (bottom + item.size, item)], [*left[:i], *left[i + 1 :]], capacity
        ):
            return True
    return False


def _meet(a: HomeItem, b: HomeItem) -> bool:
    return any(s.overlaps(t) for s in a.spans for t in b.spans)
