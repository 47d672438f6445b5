"""Places of the largest: against a stable sort, and memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.every import grid
from tests.support.one_operation import OneOperation

X = np.round(np.random.default_rng(5).standard_normal((4, 6, 5)), 1)


@grid("dtype", ["float32", "float64", "int32", "int64"])
@grid("largest", [0, 1])
@grid("axis", [0, 1, 2, -1])
def test_the_whole_axis_is_a_stable_sort(axis: int, largest: int, dtype: str) -> None:
    """Equal elements, of which there are many, stand in the order that they had."""
    x = (X * 10).astype(dtype)
    found = OneOperation("ArgTopK", [x], k=x.shape[axis], axis=axis, largest=largest).forward()
    np.testing.assert_array_equal(found, np.argsort(-x if largest else x, axis, kind="stable"))


def test_some_of_them() -> None:
    x = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], np.float32)
    assert OneOperation("ArgTopK", [x], k=2).forward().tolist() == [[0, 2], [1, 2]]
    assert OneOperation("ArgTopK", [x], k=1, axis=0, largest=0).forward().tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinities_and_both_zeros(dtype: str) -> None:
    """An infinity that is taken is not taken twice; a zero is no less for its sign."""
    x = np.array([-np.inf, 0.0, -0.0, np.inf, -np.inf, -1e-40, 1e-40], dtype)
    assert OneOperation("ArgTopK", [x], k=7).forward().tolist() == [3, 6, 1, 2, 5, 0, 4]
    assert OneOperation("ArgTopK", [x], k=7, largest=0).forward().tolist() == [0, 4, 5, 1, 2, 6, 3]


def test_large_tensors_are_treated_in_pieces() -> None:
    x = np.random.default_rng(0).standard_normal((70, 1000)).astype(np.float32)
    found = OneOperation("ArgTopK", [x], k=4).forward()
    np.testing.assert_array_equal(found, np.argsort(-x, 1, kind="stable")[:, :4])
