"""Interval conflict sets: which operands may not share memory because they live at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from solver.layout import Lifespan

__all__ = ["conflict_pairs", "conflict_sets"]

K = TypeVar("K", bound=Hashable)


def conflict_pairs(lifespans: Mapping[K, Lifespan]) -> Iterator[tuple[K, K]]:
    """Every pair with overlapping lifespans, once, by a sweep over starts.

    O(n log n + output): each interval meets exactly those still live when it starts.
    """
    live: list[tuple[int, int, K]] = []
    for order, (key, span) in enumerate(sorted(lifespans.items(), key=lambda item: item[1].start)):
        while live and live[0][0] <= span.start:
            heapq.heappop(live)
        for _, _, other in live:
            yield other, key
        heapq.heappush(live, (span.end, order, key))


def conflict_sets(lifespans: Mapping[K, Lifespan]) -> dict[K, frozenset[K]]:
    """The conflict set of each key: all others whose lifespan overlaps its own."""
    sets: dict[K, set[K]] = {key: set() for key in lifespans}
    for a, b in conflict_pairs(lifespans):
        sets[a].add(b)
        sets[b].add(a)
    return {key: frozenset(found) for key, found in sets.items()}
