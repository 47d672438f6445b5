"""Normalisation: forward against ONNX, statistics, derivatives, rows in blocks, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal
from tests.support.onnx_reference import assert_onnx

LAYER, INSTANCE, GROUP = "LayerNormalization", "InstanceNormalization", "GroupNormalization"
RMS = "RMSNormalization"

CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (LAYER, (2, 3, 4), (4,), {}),
    (LAYER, (2, 3, 4), (3, 4), {"axis": 1}),
    (LAYER, (2, 3, 4), (2, 3, 4), {"axis": -3, "epsilon": 0.1}),
    (LAYER, (5,), (5,), {}),
    (INSTANCE, (2, 3, 4, 2), (3,), {}),
    (INSTANCE, (2, 3, 5), (3,), {"epsilon": 0.01}),
    (GROUP, (2, 4, 3, 2), (4,), {"num_groups": 2}),
    (GROUP, (2, 4, 3), (4,), {"num_groups": 1, "epsilon": 0.01}),
    (GROUP, (2, 6, 3), (6,), {"num_groups": 6}),
]


def values(shape: tuple[int, ...], parameters: tuple[int, ...], dtype: str = "float64") -> list[Array]:
    return [
        normal(*shape, dtype=dtype) * 2 + 1,
        normal(*parameters, dtype=dtype),
        normal(1, *parameters, dtype=dtype)[0],
    ]


@grid(("type_", "shape", "parameters", "attributes"), CASES)
def test_forward_is_onnx_and_derivatives_are_right(
    type_: str, shape: tuple[int, ...], parameters: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """ONNX keeps epsilon in float32 and computes statistics in it."""
    operation = OneOperation(type_, values(shape, parameters), **attributes)
    assert_onnx(operation, 1e-5, 1e-5, opset=21)
    operation.assert_derivatives()


def test_layer_normalization_without_shift() -> None:
    x, scale, _ = values((4, 6), (6,))
    operation = OneOperation(LAYER, [x, scale])
    shifted = OneOperation(LAYER, [x, scale, np.zeros(6)])
    np.testing.assert_array_equal(operation.forward(), shifted.forward())
    operation.assert_derivatives()


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_by_the_root_of_squares(axis: int, epsilon: float) -> None:
    """Forward is ONNX's, in float32 as ONNX keeps it; derivatives are those of finite differences."""
    x, scale, _ = values((2, 3, 4), (2, 3, 4)[axis:])
    operation = OneOperation(RMS, [x, scale], axis=axis, epsilon=epsilon)
    assert_onnx(operation, 1e-5, 1e-5, opset=23)
    operation.assert_derivatives()


@pytest.mark.parametrize("shape", [(300, 500), (3, 40_000)])
def test_rows_of_the_root_of_squares_in_blocks(shape: tuple[int, int]) -> None:
    (x, scale, _), dy = values(shape, shape[1:]), normal(*shape) + 0.1
    inverse = 1 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5)
    operation = OneOperation(RMS, [x, scale])
    np.testing.assert_allclose(operation.forward(), x * inverse * scale, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(operation.saved["inverse_deviation"], inverse)
    found, n, g = operation.backward(dy, 0, 1), x * inverse, dy * scale
    np.testing.assert_allclose(found[0], (g - n * (g * n).mean(axis=-1, keepdims=True)) * inverse, rtol=1e-8)
    np.testing.assert_allclose(found[1], (dy * n).sum(axis=0), rtol=1e-8, atol=1e-8)
    OneOperation(RMS, [x.astype(np.float32), scale.astype(np.float32)]).assert_lean()


@pytest.mark.parametrize(("type_", "attributes"), [(INSTANCE, {}), (GROUP, {"num_groups": 2})])
def test_channels_may_come_last(type_: str, attributes: dict[str, Any]) -> None:
    x, scale, shift = values((2, 4, 3, 5), (4,))
    last = [np.ascontiguousarray(np.moveaxis(x, 1, -1)), scale, shift]
    operation = OneOperation(type_, last, data_layout="NHWC", **attributes)
    first = OneOperation(type_, [x, scale, shift], **attributes)
    np.testing.assert_allclose(operation.forward(), np.moveaxis(first.forward(), 1, -1), rtol=1e-12)
    operation.assert_derivatives()


def test_saved_statistics() -> None:
    x, scale, shift = values((3, 4, 10), (4,))
    operation = OneOperation(INSTANCE, [x, scale, shift], epsilon=0.5)
    operation.forward()
    np.testing.assert_allclose(operation.saved["mean"], x.mean(axis=2))
    np.testing.assert_allclose(operation.saved["inverse_deviation"], 1 / np.sqrt(x.var(axis=2) + 0.5))


def test_a_large_mean_does_not_swallow_the_deviation() -> None:
    """Squares of deviations, not a difference of squares: 10,000 is 3 million deviations here."""
    x = (10_000 + np.arange(8) / 256).astype(np.float32)[None]
    found = OneOperation(LAYER, [x, np.ones(8, np.float32)], epsilon=0.0).forward()
    expected = (np.arange(8) - 3.5) / np.arange(8).std()
    np.testing.assert_allclose(found[0], expected, rtol=0.05)


BLOCKS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (LAYER, (300, 500), (500,), {}),
    (LAYER, (3, 40_000), (40_000,), {}),
    (INSTANCE, (3, 7, 90, 100), (7,), {}),
    (INSTANCE, (3, 90, 100, 7), (7,), {"data_layout": "NHWC"}),
    (INSTANCE, (2, 3, 200, 200), (3,), {}),
    (GROUP, (3, 8, 60, 60), (8,), {"num_groups": 4}),
    (GROUP, (3, 60, 60, 8), (8,), {"num_groups": 2, "data_layout": "NHWC"}),
]


def plain(type_: str, given: list[Array], dy: Array, attributes: dict[str, Any]) -> list[Array]:
    """Y and the derivatives of X, scale and shift, written down from the definition."""
    x, scale, shift = given
    last = attributes.get("data_layout") == "NHWC"
    if last:
        x, dy = np.moveaxis(x, -1, 1), np.moveaxis(dy, -1, 1)
    layer = type_ == LAYER
    groups = attributes.get("num_groups", x.shape[1])
    rows = x.shape if layer else (x.shape[0], groups, -1)
    wide = scale if layer else scale.reshape(-1, *[1] * (x.ndim - 2))
    mean = x.reshape(rows).mean(axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(x.reshape(rows).var(axis=-1, keepdims=True) + 1e-5)
    n = ((x.reshape(rows) - mean) * inverse).reshape(x.shape)
    g = (dy * wide).reshape(rows)
    bent = g - g.mean(axis=-1, keepdims=True)
    bent = bent - n.reshape(rows) * (g * n.reshape(rows)).mean(axis=-1, keepdims=True)
    axes = 0 if layer else (0, *range(2, x.ndim))
    y, dx = n * wide + shift.reshape(wide.shape), (bent * inverse).reshape(x.shape)
    found = [np.moveaxis(a, 1, -1) if last else a for a in (y, dx)]
    return [*found, (dy * n).sum(axis=axes), dy.sum(axis=axes)]


@pytest.mark.parametrize(("type_", "shape", "parameters", "attributes"), BLOCKS)
def test_rows_in_blocks_without_memory_of_tensor_size(
    type_: str, shape: tuple[int, ...], parameters: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    given, dy = values(shape, parameters), normal(*shape) + 0.1
    operation = OneOperation(type_, given, **attributes)
    y, *derivatives = plain(type_, given, dy, attributes)
    np.testing.assert_allclose(operation.forward(), y, rtol=1e-9, atol=1e-9)
    found = operation.backward(dy, 0, 1, 2)
    for position, expected in enumerate(derivatives):
        np.testing.assert_allclose(found[position], expected, rtol=1e-8, atol=1e-8)
    OneOperation(type_, values(shape, parameters, "float32"), **attributes).assert_lean()
