"""Pooling: which element wins, and where it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.one_operation import OneOperation

LAYOUTS = ["NCHW", "NHWC"]


def spread_out(shape: tuple[int, ...], dtype: str = "float64") -> Array:
    """Elements of which no two are equal."""
    values = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape)
    return np.asarray(values / 7 - 3, dtype)


def arranged(array: Array, layout: str) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout == "NHWC" else array


def test_of_equal_elements_the_first_takes_the_derivative() -> None:
    one = OneOperation("MaxPool", [np.zeros((1, 1, 4, 4))], kernel_shape=(2, 2), strides=(2, 2))
    (dx,) = one.backward(np.ones((1, 1, 2, 2)), 0).values()
    np.testing.assert_array_equal(np.argwhere(dx[0, 0]), [[0, 0], [0, 2], [2, 0], [2, 2]])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pads_of_the_same_size_come_first(layout: str) -> None:
    """ONNX's evaluator rounds the output down here; its text and its models round up."""
    halves: dict[str, Any] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    x = arranged(spread_out((2, 2, 5, 5)), layout)
    lower = OneOperation("MaxPool", [x], data_layout=layout, auto_pad="SAME_LOWER", **halves)
    padded = OneOperation("MaxPool", [x], data_layout=layout, pads=(1, 1, 0, 0), **halves)
    np.testing.assert_array_equal(lower.forward(), padded.forward())


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
