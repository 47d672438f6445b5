"""Where, Gather and ScatterAdd: forward, derivatives, indices out of range, repeatability, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.errors import GraphError, ShapeMismatchError
from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal, placed
from tests.support.onnx_reference import onnx_reference


def test_where_keeps_what_is_not_chosen_out_of_the_derivative() -> None:
    """Infinity and NaN behind the condition do not reach the other operand, as 0 times them would."""
    values = [np.array([True, False]), np.zeros(2), np.zeros(2)]
    found = OneOperation("Where", values).backward(np.array([np.inf, np.nan]), 1, 2)
    np.testing.assert_array_equal(found[1], [np.inf, 0])
    np.testing.assert_array_equal(found[2], [0, np.nan])


@pytest.mark.parametrize("shape", [(50, 8), (3, 50, 2), (50,)])
def test_gather_of_many_blocks(shape: tuple[int, ...]) -> None:
    axis = shape.index(50)
    index = np.random.default_rng(4).integers(0, 50, 70_001)
    operation = OneOperation("Gather", [normal(*shape), index], axis=axis)
    np.testing.assert_array_equal(operation.forward(), np.take(normal(*shape), index, axis))
    dy = np.random.default_rng(5).integers(-3, 4, operation.types[0].shape).astype(np.float64)
    expected = np.zeros(shape)
    np.add.at(np.moveaxis(expected, axis, 0), index, np.moveaxis(dy, axis, 0))
    np.testing.assert_array_equal(operation.backward(dy, 0)[0], expected)


#: How often an index repeats: hardly ever, now and then, in long runs, always.
REPEATS = [10_000, 500, 7, 1]


@grid("width", [1, 3, 256, 257])
@grid("size", REPEATS)
@grid("picked", [31, 32, 2500])
def test_rows_added_in_groups(width: int, size: int, picked: int) -> None:
    """Against one addition after the other, exactly: the sums of small integers have no rounding."""
    index = np.random.default_rng(4).integers(-size, size, picked)
    operation = OneOperation("Gather", [normal(size, width), index])
    dy = np.random.default_rng(5).integers(-3, 4, (picked, width)).astype(np.float64)
    expected = np.zeros((size, width))
    np.add.at(expected, index, dy)
    np.testing.assert_array_equal(operation.backward(dy, 0)[0], expected)


def test_runs_of_every_length() -> None:
    """Index k repeats k times, in any order."""
    index = np.random.default_rng(6).permutation(np.repeat(np.arange(60), np.arange(60)))
    dy = np.random.default_rng(7).integers(-3, 4, (index.size, 5)).astype(np.float64)
    expected = np.zeros((60, 5))
    np.add.at(expected, index, dy)
    found = OneOperation("Gather", [normal(60, 5), index]).backward(dy, 0)[0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("wrong", [5, -6, 2**40])
def test_an_index_outside_is_named(wrong: int) -> None:
    """Where it is computed: a constant one is refused before anything runs."""
    operation = OneOperation("Gather", [normal(5, 2), np.array([0, 4, 1])])
    operation.values[1] = placed(np.array([0, wrong, 1]))
    with pytest.raises(GraphError, match=rf"'op' is {wrong}\. Indices must lie in \[-5, 4\]"):
        operation.forward()


# ------------------------------------------------------------------------------------ rows that are added


@pytest.mark.parametrize(
    ("shape", "picked", "axis"),
    [((9, 5), (4,), 0), ((3, 6, 4), (2, 3), 1), ((7, 3), (90,), 0), ((4,), (), 0)],
)
def test_rows_are_added_where_indices_say(shape: tuple[int, ...], picked: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(1)
    index = rng.integers(-shape[axis], shape[axis], picked)
    x, updates = normal(*shape), normal(*shape[:axis], *picked, *shape[axis + 1 :])
    operation = OneOperation("ScatterAdd", [x, index, updates], axis=axis)
    expected = x.copy()
    places: Any = (*[slice(None)] * axis, index)
    np.add.at(expected, places, updates)
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-12)
    operation.assert_derivatives()


def test_updates_have_the_shape_of_what_would_be_gathered() -> None:
    with pytest.raises(ShapeMismatchError, match=r"expected updates of shape \[4, 2\]"):
        OneOperation("ScatterAdd", [normal(9, 2), np.array([0, 1, 2, 3]), normal(4, 3)])
    with pytest.raises(GraphError, match=r"Index 9 of operation 'op' \(ScatterAdd\)"):
        OneOperation("ScatterAdd", [normal(9, 2), np.array([9]), normal(1, 2)])


@grid("reduction", ["none", "add", "mul", "min", "max"])
@grid("dtype", ["float32", "int64", "uint8"])
def test_updates_of_rows_are_those_of_onnx(reduction: str, dtype: str) -> None:
    rng = np.random.default_rng(7)
    data: Array = rng.integers(1, 5, (9, 4)).astype(dtype)
    updates: Array = rng.integers(1, 5, (70, 4)).astype(dtype)
    index = rng.integers(-9, 9, 70)
    values: list[Array] = [data, index.reshape(-1, 1), updates]
    (expected,) = onnx_reference("ScatterND", values, {"reduction": reduction})
    found = OneOperation("ScatterUpdate", [data, index, updates], reduction=reduction).forward()
    np.testing.assert_array_equal(found, expected)
