"""Which buffer is tried first: orders that win on different kinds of problems, and noise upon them."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.layout.instance import Instance, Integers

__all__ = ["ORDERS", "priorities"]

#: How many orders there are before noise.
ORDERS: Final = 7

#: Noisy copies of all orders; restarts go through them in turn.
COPIES: Final = 6

#: Standard deviation of the noise, in places, for each buffer.
NOISE: Final = 0.03


def priorities(instance: Instance, kind: Integers, seed: int) -> Integers:
    """Ranks (lowest first), one row for each order and copy; equal for buffers of one kind.

    The first copy of seed 0 is without noise.
    """
    plain = [_ranks(key, tie) for key, tie in _keys(instance)]
    rng = np.random.default_rng([seed, 0x0F0F])
    rows = []
    for copy in range(COPIES):
        for ranks in plain:
            noisy = ranks
            if seed or copy:
                noisy = _ranks(ranks + rng.normal(0, NOISE * len(ranks), len(ranks)), ranks)
            rows.append(_shared(noisy, kind))
    return np.stack(rows)


def _keys(instance: Instance) -> list[tuple[np.ndarray, np.ndarray]]:
    """The most successful first; `crowd` is the mean load that a buffer lives through."""
    width, size = instance.end - instance.start, instance.size
    area = size.astype(np.float64) * width
    load = instance.load()
    total = np.concatenate(([0.0], np.cumsum(load, dtype=np.float64)))
    mean = (total[instance.end] - total[instance.start]) / width
    return [
        (-size, -width),
        (-width, -area),
        (-size * np.sqrt(width), -width),
        (-mean, -area),
        (-width * np.sqrt(size), -width),
        (-instance.end, -size),
        (instance.start, -size),
    ]


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
