"""Images that are pooled and resized: which element wins, adjointness, coordinates by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.executor.kernels.resizing import interpolation
from solver.graph.ops.resizing import ResizedAxis
from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal


def sized(x: Array, sizes: tuple[int, ...], **attributes: Any) -> OneOperation:
    return OneOperation("Resize", [x, None, None, np.array(sizes)], **attributes)


def scaled(x: Array, scales: tuple[float, ...], **attributes: Any) -> OneOperation:
    return OneOperation("Resize", [x, None, np.array(scales, np.float32)], **attributes)


def test_axes_in_any_order() -> None:
    x = normal(1, 2, 3, 4)
    one, other = sized(x, (6, 5), mode="linear", axes=(2, 3)), sized(x, (5, 6), mode="linear", axes=(-1, -2))
    np.testing.assert_array_equal(one.forward(), other.forward())


@grid(
    ("x", "sizes"),
    [
        ((700, 9, 7), (700, 18, 21)),  # several examples at a time
        ((2, 300, 200), (2, 150, 400)),  # rows of one example
        ((2, 3, 40_000), (2, 5, 40_000)),  # one row at a time
        ((3, 2, 2, 2), (6, 4, 1, 6)),  # four passes
    ],
)
@grid("mode", ["nearest", "linear"])
def test_blocks(x: tuple[int, ...], sizes: tuple[int, ...], mode: str) -> None:
    """Matrices axis by axis are the same; and <y, resize(x)> = <adjoint(y), x>."""
    operation = sized(normal(*x), sizes, mode=mode)
    expected = normal(*x)
    for axis, (size, out) in enumerate(zip(x, sizes, strict=True)):
        if size != out:
            table = interpolation(
                ResizedAxis(axis, size, out, out / size), operation.node.attributes, expected.dtype
            )
            matrix = np.zeros((out, size))
            for index, weights in zip(table.index, table.weights, strict=True):
                np.add.at(matrix, (np.arange(out), index), weights)
            expected = np.moveaxis(np.tensordot(matrix, expected, (1, axis)), 0, axis)
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-9, atol=1e-10)
    dy = normal(*sizes)
    product_of_both = np.sum(operation.backward(dy, 0)[0] * normal(*x))
    assert product_of_both == pytest.approx(np.sum(dy * expected), rel=1e-9)


def test_coordinates_by_hand() -> None:
    """Two elements become four: each lies a quarter beside one, three quarters from the other."""
    found = sized(np.array([0.0, 1.0]), (4,), mode="linear").forward()
    np.testing.assert_allclose(found, [0, 0.25, 0.75, 1])
    corners = sized(np.array([0.0, 3.0]), (4,), mode="linear", coordinate_transformation_mode="align_corners")
    np.testing.assert_allclose(corners.forward(), [0, 1, 2, 3])
    plain = sized(np.array([0.0, 1.0]), (4,), mode="linear", coordinate_transformation_mode="asymmetric")
    np.testing.assert_allclose(plain.forward(), [0, 0.5, 1, 1])
    assert sized(np.array([0.0, 1.0]), (3,)).forward().tolist() == [0, 0, 1]


def test_what_nothing_looks_at_gets_zeros() -> None:
    found = sized(normal(1, 6), (1, 2), nearest_mode="floor").backward(np.ones((1, 2)), 0)[0]
    assert found.tolist() == [[0, 1, 0, 0, 1, 0]]


def test_the_derivative_of_repeated_elements_is_their_sum() -> None:
    found = scaled(normal(1, 2), (1, 3)).backward(np.arange(6.0)[None], 0)[0]
    assert found.tolist() == [[3, 12]]


# ------------------------------------------------------------------------------------------------------ pools


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
    assert saved.type.shape == one.types[0].shape
    assert saved.type.dtype.value == ("uint8" if np.prod(kernel) <= 255 else "int32")
    dx = one.backward(dy, 0)[0]
    assert dx.sum() == dy.size
    assert np.sum(x * dx) == pytest.approx(one.forward().sum())
