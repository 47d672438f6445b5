"""Pooling: forward against ONNX, derivatives against central differences, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import onnx_reference

#: (X under NCHW, attributes)
SETTINGS: Mapping[str, tuple[tuple[int, ...], Mapping[str, Any]]] = {
    "halves": ((2, 3, 6, 4), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    "overlapping": ((2, 2, 6, 5), {"kernel_shape": (3, 2)}),
    "padded": ((2, 2, 5, 5), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "asymmetric": ((1, 2, 5, 6), {"kernel_shape": (3, 3), "strides": (2, 1), "pads": (0, 2, 1, 1)}),
    "rounded_up": ((1, 2, 6, 7), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    "rounded_up_padded": (
        (1, 2, 6, 6),
        {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1, "pads": (1, 1, 1, 1)},
    ),
    "gaps": ((1, 2, 8, 7), {"kernel_shape": (2, 1), "strides": (3, 2)}),
    "same_upper": ((2, 2, 5, 5), {"kernel_shape": (2, 2), "auto_pad": "SAME_UPPER"}),
    "same_lower": ((2, 2, 5, 5), {"kernel_shape": (2, 2), "strides": (2, 2), "auto_pad": "SAME_LOWER"}),
    "valid": ((2, 2, 5, 4), {"kernel_shape": (3, 2), "auto_pad": "VALID"}),
    "dilated": ((1, 2, 7, 7), {"kernel_shape": (2, 3), "dilations": (2, 2), "pads": (1, 1, 1, 1)}),
    "one_axis": ((2, 3, 9), {"kernel_shape": (3,), "strides": (2,)}),
    "three_axes": ((1, 2, 4, 3, 4), {"kernel_shape": (2, 2, 2), "strides": (2, 1, 2)}),
}
LAYOUTS = ["NCHW", "NHWC"]


def spread_out(shape: tuple[int, ...], dtype: str = "float64") -> Array:
    """All elements differ by far more than the step of a central difference."""
    values = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape)
    return np.asarray(values / 7 - 3, dtype)


def arranged(array: Array, layout: str) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout == "NHWC" else array


def operation(type_: str, name: str, layout: str, budget: int = 1 << 21, **more: Any) -> OneOperation:
    shape, attributes = SETTINGS[name]
    x = arranged(spread_out(shape), layout)
    return OneOperation(type_, [x], scratch_budget=budget, data_layout=layout, **attributes, **more)


@grid("budget", [1 << 21, 1])
@grid("layout", LAYOUTS)
@grid("name", SETTINGS)
def test_max_pool_is_onnx_max_pool_and_its_derivatives_are_right(name: str, layout: str, budget: int) -> None:
    shape, attributes = SETTINGS[name]
    if name == "same_lower":  # ONNX's evaluator rounds the output down; its text and its models round up
        attributes = {**attributes, "auto_pad": "NOTSET", "pads": (1, 1, 0, 0)}
    expected = onnx_reference("MaxPool", [spread_out(shape)], attributes)
    one = operation("MaxPool", name, layout, budget)
    np.testing.assert_array_equal(one.forward(), arranged(expected, layout))
    one.assert_derivatives()


@grid("include", [0, 1])
@grid("layout", LAYOUTS)
@grid("name", SETTINGS)
def test_average_pool_is_onnx_average_pool_and_its_derivatives_are_right(
    name: str, layout: str, include: int
) -> None:
    shape, attributes = SETTINGS[name]
    more = {**attributes, "count_include_pad": include}
    expected = onnx_reference("AveragePool", [spread_out(shape)], more, opset=19)
    for budget in (1 << 21, 1):
        one = operation("AveragePool", name, layout, budget, count_include_pad=include)
        np.testing.assert_allclose(one.forward(), arranged(expected, layout), rtol=1e-12)
    one.assert_derivatives()


@grid("layout", LAYOUTS)
@grid("shape", [(2, 3, 4, 5), (2, 3, 7), (1, 2, 2, 3, 2), (1, 1, 1, 1)])
def test_global_average_pool(shape: tuple[int, ...], layout: str) -> None:
    x = spread_out(shape)
    one = OneOperation("GlobalAveragePool", [arranged(x, layout)], data_layout=layout)
    expected = onnx_reference("GlobalAveragePool", [x], {})
    np.testing.assert_allclose(one.forward(), arranged(expected, layout), rtol=1e-12)
    one.assert_derivatives()


def test_of_equal_elements_the_first_takes_the_derivative() -> None:
    one = OneOperation("MaxPool", [np.zeros((1, 1, 4, 4))], kernel_shape=(2, 2), strides=(2, 2))
    (dx,) = one.backward(np.ones((1, 1, 2, 2)), 0).values()
    np.testing.assert_array_equal(np.argwhere(dx[0, 0]), [[0, 0], [0, 2], [2, 0], [2, 2]])


def test_padding_never_wins() -> None:
    x = np.full((1, 1, 2, 2), -5.0)
    one = OneOperation("MaxPool", [x], kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    np.testing.assert_array_equal(one.forward(), -5)
    assert one.backward(np.ones((1, 1, 2, 2)), 0)[0].sum() == 4


def test_infinities_can_win() -> None:
    x = np.full((1, 1, 2, 2), -np.inf)
    one = OneOperation("MaxPool", [x], kernel_shape=(2, 2))
    assert one.forward().item() == -np.inf
    assert one.backward(np.ones((1, 1, 1, 1)), 0)[0][0, 0, 0, 0] == 1


@pytest.mark.parametrize("kernel", [(15, 17), (16, 16), (20, 20)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_of_any_number_of_taps(kernel: tuple[int, int], layout: str) -> None:
    x = arranged(spread_out((1, 2, 22, 23)), layout)
    one = OneOperation("MaxPool", [x], kernel_shape=kernel, data_layout=layout)
    dy = np.ones(one.types[0].shape)
    (saved,) = one.kind.saved(one.node)
    assert saved.type.dtype.value == ("uint8" if np.prod(kernel) <= 255 else "int32")
    dx = one.backward(dy, 0)[0]
    assert dx.sum() == dy.size
    assert np.sum(x * dx) == pytest.approx(one.forward().sum())
