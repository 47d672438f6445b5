"""Sparse tensors of TensorFlow Lite files as dense ones.

The format is that of TACO (Kjolstad et al., OOPSLA 2017): a tensor is walked dimension by dimension. A level
is dense, so that all its positions are there, or compressed: two lists say for each position of the level
above which positions are there. Blocks add dimensions of their own behind those of the tensor.

    traversal order (0, 1)      row 0: dense, 2 positions
    row 1 is at segments[1]     columns: segments (0, 2, 3), indices (0, 3, 1) -> (0, 0), (0, 3), (1, 1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.graph.types import Array

__all__ = ["SparseDimension", "Sparsity"]

#: Elements of a dense tensor for each one that is stored, at most; a file that asks for more is damaged.
MAX_DENSE_RATIO: Final = 4096


@dataclass(frozen=True, slots=True)
class SparseDimension:
    """One level: `size` positions that are all there, or those that `segments` and `indices` say."""

    size: int
    segments: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sparsity:
    """The arrangement of the stored elements of a sparse tensor.

    `order` names the dimension of each level: those of the tensor by number, then those of the blocks, of
    which number k divides the tensor's dimension `blocks[k]`.
    """

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[SparseDimension, ...]

    def dense(self, stored: Array, shape: tuple[int, ...]) -> Array:
        """The dense tensor of `shape`. Linear in its elements.

        Raises ValueError and IndexError where order, blocks and levels contradict each other, the shape or
        the number of stored elements.
        """
        rank = len(shape)
        if sorted(self.order) != list(range(rank + len(self.blocks))) or len(self.levels) != len(self.order):
            raise ValueError("the levels of a sparse tensor do not fit its shape")
        if math.prod(shape) > MAX_DENSE_RATIO * max(len(stored), 1):
            raise ValueError("a sparse tensor has too few elements for its shape")
        coordinates: dict[int, Array] = {}
        places = np.zeros(1, np.int64)  # of what is stored of the level that was walked last
        for dimension, level in zip(self.order, self.levels, strict=True):
            parents, own, places = _children(places, level, math.prod(shape))
            coordinates = {key: value[parents] for key, value in coordinates.items()} | {dimension: own}
        index = [coordinates[axis] for axis in range(rank)]
        for number, axis in enumerate(self.blocks):
            size = self.levels[self.order.index(rank + number)].size
            index[axis] = index[axis] * size + coordinates[rank + number]
        if any(np.any((own < 0) | (own >= size)) for own, size in zip(index, shape, strict=True)):
            raise IndexError("a sparse tensor has elements outside of its shape")
        dense = np.zeros(shape, stored.dtype)
        dense[tuple(index)] = stored[places]
        return dense


def _children(places: Array, level: SparseDimension, limit: int) -> tuple[Array, Array, Array]:
    """For each position below `places`: the number of its parent, its coordinate, and its own place."""
    if level.segments:
        segments = np.array(level.segments, np.int64)
        first, counts = segments[places], segments[places + 1] - segments[places]
    else:
        first, counts = places * level.size, np.full(len(places), level.size)
    if np.any(counts < 0) or np.any(first < 0) or counts.sum() > limit:
        raise ValueError("a sparse tensor has more elements than its shape")
    parents = np.repeat(np.arange(len(places)), counts)
    within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    own = first[parents] + within
    return parents, np.array(level.indices, np.int64)[own] if level.segments else within, own
