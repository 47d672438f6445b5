"""Reductions: forward against ONNX, derivatives, ties, sums in blocks, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, allocated
from tests.support.onnx_reference import onnx_reference

PLAIN: dict[str, Callable[..., Any]] = {"ReduceMean": np.mean, "ReduceSum": np.sum, "ReduceMax": np.max}
NAMES = list(PLAIN)
AXES: list[tuple[int, ...]] = [(0,), (1,), (-1,), (0, 2), (1, 2), (0, 1, 2), (-3,)]


def normal(*shape: int, dtype: str = "float64") -> Array:
    return np.asarray(np.random.default_rng((9, *shape)).standard_normal(shape), dtype)


@grid("type_", NAMES)
@grid("keepdims", [0, 1])
@grid("axes", AXES)
def test_axes_as_input_are_onnx(type_: str, axes: tuple[int, ...], keepdims: int) -> None:
    values = [normal(3, 4, 5), np.array(axes)]
    found = OneOperation(type_, values, keepdims=keepdims).forward()
    expected = onnx_reference(type_, values, {"keepdims": keepdims})
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@grid("type_", NAMES)
@grid("axes", AXES)
def test_axes_as_attribute_are_onnx_of_older_opsets(type_: str, axes: tuple[int, ...]) -> None:
    values = [normal(3, 4, 5)]
    found = OneOperation(type_, values, axes=axes).forward()
    opset = 11 if type_ == "ReduceSum" else 13
    expected = onnx_reference(type_, values, {"axes": axes}, opset=opset)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@grid("type_", NAMES)
@grid("noop", [0, 1])
@grid("given", [{}, {"axes": ()}])
def test_no_axes_mean_all_or_none(type_: str, given: dict[str, Any], noop: int) -> None:
    x = normal(3, 4)
    found = OneOperation(type_, [x], noop_with_empty_axes=noop, **given).forward()
    expected = x if noop else [[PLAIN[type_](x)]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@grid("type_", NAMES)
@grid("keepdims", [0, 1])
@grid("axes", [*AXES, ()])
def test_derivatives(type_: str, axes: tuple[int, ...], keepdims: int) -> None:
    operation = OneOperation(type_, [normal(2, 3, 4)], axes=axes, keepdims=keepdims)
    operation.assert_derivatives()


@pytest.mark.parametrize("type_", NAMES)
def test_the_derivative_without_reduction_is_the_one_of_y(type_: str) -> None:
    OneOperation(type_, [normal(2, 3)], noop_with_empty_axes=1).assert_derivatives()


@grid("type_", NAMES)
@grid("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_sums_in_blocks(type_: str, axes: tuple[int, ...]) -> None:
    x = normal(11, 37, 509)
    found = OneOperation(type_, [x], axes=axes).forward()
    np.testing.assert_allclose(found, PLAIN[type_](x, axis=axes, keepdims=True), rtol=1e-9, atol=1e-10)


def test_a_mean_of_float32_over_many_rows_stays_accurate() -> None:
    x = np.full((2_000_000, 1), 0.1, np.float32)
    found = OneOperation("ReduceMean", [x], axes=(0,)).forward()
    np.testing.assert_allclose(found, 0.1, rtol=1e-5)


@grid("type_", NAMES)
@grid("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_nothing_of_tensor_size_is_allocated(type_: str, axes: tuple[int, ...]) -> None:
    operation = OneOperation(type_, [normal(20, 300, 100, dtype="float32")], axes=axes)
    assert allocated(operation.prepare_forward()[1]) < 64 * 1024
    dy = normal(*operation.types[0].shape, dtype="float32")
    assert allocated(operation.prepare_backward(dy, 0)[1]) < 64 * 1024


def test_ties_share_the_derivative() -> None:
    x = np.array([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0], [0.0, 1.0, 0.5]])
    dy = np.array([[4.0], [6.0], [5.0]])
    found = OneOperation("ReduceMax", [x], axes=(1,)).backward(dy, 0)[0]
    assert found.tolist() == [[2, 0, 2], [2, 2, 2], [0, 5, 0]]
    everywhere = OneOperation("ReduceMax", [x], keepdims=0).backward(np.asarray(8.0), 0)[0]
    assert everywhere.tolist() == [[4, 0, 4], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_ties_in_blocks(axes: tuple[int, ...]) -> None:
    """Few different values and many blocks: what reaches X adds up to dY in every row."""
    x = np.random.default_rng(2).integers(0, 3, (11, 37, 509)).astype(np.float64)
    operation = OneOperation("ReduceMax", [x], axes=axes)
    dy = normal(*operation.types[0].shape)
    found = operation.backward(dy, 0)[0]
    np.testing.assert_allclose(found.sum(axis=axes, keepdims=True), dy, rtol=1e-9, atol=1e-12)
    assert np.array_equal(found != 0, x == x.max(axis=axes, keepdims=True))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_the_maximum_of_integers_and_truth_values(dtype: str) -> None:
    """The harness makes integers constants; kernels see no difference."""
    x = np.random.default_rng(2).integers(0, 2, (3, 4)).astype(dtype)
    operation = OneOperation("ReduceMax", [x], axes=(1,))
    assert operation.forward().dtype == dtype
    assert np.array_equal(operation.forward(), x.max(axis=1, keepdims=True))
    assert operation.kind.differentiable(operation.node) == set()
