"""Homes and offsets at the same time, one item after the other: the first memory in which a gap is left.

    memory tcm     | a a a a | c c |            items in an order, each to the first memory with room,
    memory psram   | b b b b b b b |  d d       at the lowest offset that is free for all of its levels

Runtimes with several memory pools do it like that; here it stands behind the search, for homes whose layout
does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from solver.accounting.homes import HomeProblem
from solver.layout import Layout, Lifespan

__all__ = ["Banked", "in_banks"]

#: Homes by item, and a layout of the items of each memory, in their order.
Banked = tuple[tuple[int, ...], tuple[Layout, ...]]


def in_banks(
    problem: HomeProblem,
    alignments: Sequence[int],
    order: Sequence[int],
    ways: Sequence[Sequence[int]],
) -> Banked | None:
    """Place the items in `order`, each in the first of its `ways` with room; None where one finds no room.

    Quadratic in the items.
    """
    placed: list[list[tuple[int, int, tuple[Lifespan, ...]]]] = [[] for _ in problem.capacities]
    homes, offsets = [-1] * len(problem.items), [0] * len(problem.items)
    for i in order:
        item = problem.items[i]
        for k in ways[i]:
            offset = _lowest(placed[k], item.size, item.spans, alignments[i])
            if offset + item.size <= problem.capacities[k]:
                break
        else:
            return None
        homes[i], offsets[i] = k, offset
        placed[k].append((offset, offset + item.size, item.spans))
    layouts = []
    for k in range(len(problem.capacities)):
        inside = [i for i, home in enumerate(homes) if home == k]
        peak = max((offsets[i] + problem.items[i].size for i in inside), default=0)
        layouts.append(Layout(tuple(offsets[i] for i in inside), peak))
    return tuple(homes), tuple(layouts)


def _lowest(
    placed: Sequence[tuple[int, int, tuple[Lifespan, ...]]],
    size: int,
    spans: tuple[Lifespan, ...],
    alignment: int,
) -> int:
    """The lowest offset at which `size` bytes meet nothing that is placed, on all levels of `spans`."""
    first, last = spans[0].start, spans[-1].end
    meeting = sorted(
        (low, high)
        for low, high, others in placed
        if others[0].start < last
        and first < others[-1].end
        and any(a.overlaps(b) for a in spans for b in others)
    )
    offset = 0
    for low, high in meeting:
        if low >= offset + size:
            break
        offset = max(offset, -(-high // alignment) * alignment)
    return offset
