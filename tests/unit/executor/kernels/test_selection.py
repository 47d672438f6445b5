"""Elements that are chosen: gathered, scattered, by tile, by size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


# ------------------------------------------------------------------------------------------------------ tiles


@given(st.data())
def test_tiles_in_a_chain_make_the_gather(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 12))
    indices = np.array(data.draw(st.lists(st.integers(-rows, rows - 1), min_size=1, max_size=9)), np.int32)
    ends = sorted({*data.draw(st.lists(st.integers(1, rows), max_size=3)), rows})
    table = normal(rows, 3, dtype="float32")
    values: list[Array] = []
    start = 0
    for end in ends:
        operation = OneOperation(
            "TileGather",
            [table[start:end], indices, *values],
            scratch_budget=data.draw(st.sampled_from([1, 24, 1 << 21])),
            first_row=start,
            rows=rows,
        )
        values = [operation.forward()]
        start = end
    assert values[0].tobytes() == table[indices].tobytes()


@pytest.mark.parametrize("index", [-10, 9])
def test_index_outside_the_table(index: int) -> None:
    operation = OneOperation("TileGather", [normal(4, 3), np.array([0, index])], first_row=2, rows=9)
    with pytest.raises(GraphError, match=f"is {index}"):
        operation.forward()


def test_joined_logarithms_and_their_derivatives() -> None:
    parts = [normal(5, 7, seed=k) * 40 for k in range(4)]
    operation, dy = OneOperation("LogAddExp", parts), normal(5, 7, seed=9)
    y = operation.forward()
    np.testing.assert_allclose(y, np.logaddexp.reduce(parts), rtol=1e-14)
    for position, dx in operation.backward(dy).items():
        np.testing.assert_allclose(dx, dy * np.exp(parts[position] - y), rtol=1e-13)


# -------------------------------------------------------------------------------------- places of the largest


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
