"""Which buffer is tried first: orders that win on different kinds of problems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from solver.layout.model.instance import Instance, Integers

__all__ = ["ORDERS", "priorities", "ranked"]

#: How many orders there are.
ORDERS: Final = 7


def priorities(instance: Instance, kind: Integers) -> Iterator[Integers]:
    """Ranks (lowest first), one row for each order; equal for buffers of one kind."""
    for key, tie in _keys(instance):
        yield ranked(key, tie, kind)


def ranked(key: np.ndarray, tie: np.ndarray, kind: Integers) -> Integers:
    """Ranks by key, then tie; all of a kind have that of their first."""
    return _shared(_ranks(key, tie), kind)


def _keys(instance: Instance) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The most successful first, one at a time; `mean` is the mean load that a buffer lives through."""
    width, size = instance.end - instance.start, instance.size
    area = size.astype(np.float64) * width
    load = instance.load()
    total = np.concatenate(([0.0], np.cumsum(load, dtype=np.float64)))
    mean = (total[instance.end] - total[instance.start]) / width
    yield -size, -width
    yield -width, -area
    yield -size * np.sqrt(width), -width
    yield -mean, -area
    yield -width * np.sqrt(size), -width
    yield -instance.end, -size
    yield instance.start, -size


def _ranks(key: np.ndarray, tie: np.ndarray) -> Integers:
    order = np.lexsort((tie, key))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _shared(ranks: Integers, kind: Integers) -> Integers:
    """The best rank of each kind, for all of its buffers."""
    best = np.full(int(kind.max(initial=-1)) + 1, len(ranks), dtype=np.int64)
    np.minimum.at(best, kind, ranks)
    return best[kind]
