"""Transposed convolution: forward against ONNX, derivatives, memory orders, adjointness, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal
from tests.support.onnx_reference import onnx_reference

TYPE = "ConvTranspose"
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 2, 4), (2, 3, 3), {}),
    ((2, 2, 4), (2, 3, 3), {"strides": (2,), "pads": (1, 1), "output_padding": (1,)}),
    ((2, 2, 3, 4), (2, 3, 2, 3), {}),
    ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": (2, 3), "pads": (1, 0, 2, 1)}),
    ((1, 2, 3, 3), (2, 1, 2, 2), {"dilations": (2, 1)}),
    ((2, 4, 3, 2), (4, 2, 2, 2), {"group": 2, "strides": (2, 2)}),
    ((1, 3, 3, 3), (3, 1, 3, 3), {"group": 3}),
    ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": (3, 2), "output_shape": (10, 8)}),
    ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": (2, 2), "auto_pad": "SAME_UPPER"}),
    ((1, 1, 3, 3), (1, 1, 2, 2), {"strides": (3, 3)}),
    ((1, 1, 2, 2, 2), (1, 2, 2, 2, 2), {}),
]


def values(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> list[Array]:
    return [normal(*x), normal(*w), normal(w[1] * attributes.get("group", 1))]


@grid(("x", "w", "attributes"), CASES)
def test_forward_is_onnx(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    """Group by group: the reference takes one filter for each group at most."""
    given = values(x, w, attributes)
    operation = OneOperation(TYPE, given, **attributes)
    found = operation.forward()
    groups = attributes.get("group", 1)
    parts = zip(*(np.split(a, groups, axis) for a, axis in zip(given, (1, 0, 0), strict=True)), strict=True)
    single = {key: value for key, value in attributes.items() if key != "group"}
    expected = np.concatenate([onnx_reference(TYPE, part, single) for part in parts], axis=1)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    operation.assert_derivatives()


@grid(("x", "w", "attributes"), CASES)
def test_channels_may_come_last(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    given = values(x, w, attributes)
    last = [*(np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in given[:2]), given[2]]
    first = OneOperation(TYPE, given, **attributes)
    operation = OneOperation(TYPE, last, data_layout="NHWC", **attributes)
    np.testing.assert_allclose(
        operation.forward(), np.moveaxis(first.forward(), 1, -1), rtol=1e-10, atol=1e-12
    )
    dy = normal(*first.types[0].shape)
    found = operation.backward(np.moveaxis(dy, 1, -1), 0, 1, 2)
    expected = first.backward(dy, 0, 1, 2)
    for position in range(2):
        moved = np.moveaxis(expected[position], 1, -1)
        np.testing.assert_allclose(found[position], moved, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("attributes", [{}, {"strides": (2, 2)}, {"group": 2, "dilations": (1, 2)}])
def test_it_is_the_transpose_of_the_convolution(attributes: dict[str, Any]) -> None:
    """<conv(y), x> = <y, transposed(x)> for the same weights."""
    x, w = normal(2, 4, 5, 4), normal(4, 3, 3, 2)
    spread = OneOperation(TYPE, [x, w], **attributes).forward()
    y = normal(*spread.shape)
    convolved = OneOperation("Conv", [y, w], **attributes).forward()
    assert np.sum(convolved * x) == pytest.approx(np.sum(y * spread), rel=1e-10)


@grid(("x", "w", "attributes"), CASES)
@grid("budget", [1, 300, 1500])
def test_chunks(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], budget: int) -> None:
    """Small budgets cut examples into rows: nothing else changes."""
    given = values(x, w, attributes)
    whole = OneOperation(TYPE, given, **attributes)
    parts = OneOperation(TYPE, given, scratch_budget=budget, **attributes)
    np.testing.assert_allclose(parts.forward(), whole.forward(), rtol=1e-10, atol=1e-12)
    dy = normal(*whole.types[0].shape)
    expected, found = whole.backward(dy, 0, 1, 2), parts.backward(dy, 0, 1, 2)
    for position in range(3):
        np.testing.assert_allclose(found[position], expected[position], rtol=1e-10, atol=1e-12)


def test_a_transposed_convolution_without_bias() -> None:
    OneOperation(TYPE, [normal(2, 2, 3), normal(2, 2, 3)]).assert_derivatives()
