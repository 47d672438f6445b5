"""ReduceMean: forward against ONNX, derivatives, sums in blocks, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.one_operation import OneOperation, allocated
from tests.support.onnx_reference import onnx_reference

AXES: list[tuple[int, ...]] = [(0,), (1,), (-1,), (0, 2), (1, 2), (0, 1, 2), (-3,)]


def normal(*shape: int, dtype: str = "float64") -> Array:
    return np.asarray(np.random.default_rng((9, *shape)).standard_normal(shape), dtype)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", AXES)
def test_axes_as_input_are_onnx(axes: tuple[int, ...], keepdims: int) -> None:
    values = [normal(3, 4, 5), np.array(axes)]
    found = OneOperation("ReduceMean", values, keepdims=keepdims).forward()
    expected = onnx_reference("ReduceMean", values, {"keepdims": keepdims})
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("axes", AXES)
def test_axes_as_attribute_are_onnx_opset_13(axes: tuple[int, ...]) -> None:
    values = [normal(3, 4, 5)]
    found = OneOperation("ReduceMean", values, axes=axes).forward()
    np.testing.assert_allclose(
        found, onnx_reference("ReduceMean", values, {"axes": axes}, opset=13), rtol=1e-12
    )


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("given", [{}, {"axes": ()}])
def test_no_axes_mean_all_or_none(given: dict[str, Any], noop: int) -> None:
    x = normal(3, 4)
    found = OneOperation("ReduceMean", [x], noop_with_empty_axes=noop, **given).forward()
    np.testing.assert_allclose(found, x if noop else [[x.mean()]], rtol=1e-12)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [*AXES, ()])
def test_derivatives(axes: tuple[int, ...], keepdims: int) -> None:
    operation = OneOperation("ReduceMean", [normal(2, 3, 4)], axes=axes, keepdims=keepdims)
    operation.assert_derivatives()


def test_the_derivative_without_reduction_is_the_one_of_y() -> None:
    OneOperation("ReduceMean", [normal(2, 3)], noop_with_empty_axes=1).assert_derivatives()


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_sums_in_blocks(axes: tuple[int, ...]) -> None:
    x = normal(11, 37, 509)
    found = OneOperation("ReduceMean", [x], axes=axes).forward()
    np.testing.assert_allclose(found, x.mean(axis=axes, keepdims=True), rtol=1e-9, atol=1e-12)


def test_a_mean_of_float32_over_many_rows_stays_accurate() -> None:
    x = np.full((2_000_000, 1), 0.1, np.float32)
    found = OneOperation("ReduceMean", [x], axes=(0,)).forward()
    np.testing.assert_allclose(found, 0.1, rtol=1e-5)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_nothing_of_tensor_size_is_allocated(axes: tuple[int, ...]) -> None:
    operation = OneOperation("ReduceMean", [normal(20, 300, 100, dtype="float32")], axes=axes)
    assert allocated(operation.prepare_forward()[1]) < 64 * 1024
    dy = normal(*operation.types[0].shape, dtype="float32")
    assert allocated(operation.prepare_backward(dy, 0)[1]) < 64 * 1024
