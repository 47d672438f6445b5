"""Products along an axis, on whole numbers: every order of the factors gives the same."""

from __future__ import annotations

import math

import numpy as np

from solver.importers.recorder import product_of_slices
from tests.support.every import grid

Array = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@grid("axis", [0, 1])
@grid("size", [1, 2, 3, 7, 8, 30, 31])
def test_every_slice_counts_once(axis: int, size: int) -> None:
    called: list[str] = []

    def cut(x: Array, axis: int, begin: int, end: int) -> Array:
        called.append("cut")
        return x.take(range(begin, end), axis)

    def multiply(a: Array, b: Array) -> Array:
        called.append("multiply")
        assert a.shape == b.shape
        return a * b

    shape = [2, 2]
    shape[axis] = size
    x = np.random.default_rng(size).choice([1, 2, -1], shape).astype(np.int64)
    found = product_of_slices(x, axis, size, cut, multiply)
    assert np.array_equal(found, x.prod(axis=axis, keepdims=True))
    assert len(called) <= 5 * math.log2(size)
