"""Concat, Split and Slice: forward against NumPy and ONNX, derivatives, absent derivatives, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.one_operation import OneOperation, normal
from tests.support.onnx_reference import assert_onnx


@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2])
def test_concat(axis: int) -> None:
    shapes = [[2, 3, 4] for _ in range(3)]
    for i, shape in enumerate(shapes):
        shape[axis] = i + 1
    values = [normal(*shape) for shape in shapes]
    operation = OneOperation("Concat", values, axis=axis)
    np.testing.assert_array_equal(operation.forward(), np.concatenate(values, axis))
    operation.assert_derivatives()


def test_concat_of_one_and_of_integers() -> None:
    np.testing.assert_array_equal(OneOperation("Concat", [normal(3)], axis=0).forward(), normal(3))
    integers = [np.array([1, 2]), np.array([3])]
    assert OneOperation("Concat", integers, axis=0).forward().tolist() == [1, 2, 3]


SPLITS: list[tuple[list[Array], dict[str, Any], list[int]]] = [
    ([], {"axis": 1}, [2, 2, 2]),
    ([np.array([1, 4, 1])], {"axis": 1}, [1, 4, 1]),
    ([np.array([5, 1])], {"axis": -2}, [5, 1]),
    ([], {"axis": 1, "num_outputs": 3}, [2, 2, 2]),
    ([], {"axis": 1, "split": (1, 5)}, [1, 5]),
]


@pytest.mark.parametrize(("more", "attributes", "sizes"), SPLITS)
def test_split(more: list[Array], attributes: dict[str, Any], sizes: list[int]) -> None:
    x = normal(2, 6, 3)
    operation = OneOperation("Split", [x, *more], outputs=len(sizes), **attributes)
    expected = np.split(x, np.cumsum(sizes)[:-1], axis=attributes["axis"])
    for found, piece in zip(operation.forward_all(), expected, strict=True):
        np.testing.assert_array_equal(found, piece)
    operation.assert_derivatives()


def test_split_into_pieces_of_which_the_last_is_smaller() -> None:
    operation = OneOperation("Split", [normal(2, 7)], outputs=3, axis=1, num_outputs=3)
    assert [y.shape for y in operation.forward_all()] == [(2, 3), (2, 3), (2, 1)]
    operation.assert_derivatives()


def test_an_output_that_nothing_differentiates_leaves_zeros() -> None:
    operation = OneOperation("Split", [normal(2, 6)], outputs=3, axis=1)
    dy = normal(2, 2)
    found = operation.backward([None, dy, None], 0)[0]
    np.testing.assert_array_equal(found, np.pad(dy, ((0, 0), (2, 2))))


BIG = 2**63 - 1
SLICES: list[list[list[int]]] = [
    [[1, 0, 2], [3, 2, 4]],
    [[0], [5], [1], [2]],
    [[-1], [-100], [0], [-1]],
    [[BIG, 1], [-BIG - 1, BIG], [2, 0], [-2, 1]],
    [[3], [0], [-1], [-1]],
]


@pytest.mark.parametrize("parts", SLICES)
def test_slice_is_onnx(parts: list[list[int]]) -> None:
    operation = OneOperation("Slice", [normal(4, 5, 6), *(np.array(part) for part in parts)])
    assert_onnx(operation)
    operation.assert_derivatives()
