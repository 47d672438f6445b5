"""Activations: forward against ONNX, derivatives from Y alone, in place, extremes, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal
from tests.support.onnx_reference import assert_onnx

CLIPS: list[dict[str, Any]] = [
    {},
    {"min": -0.5},
    {"max": 0.25},
    {"min": -0.5, "max": 0.25},
    {"min": 0.0, "max": 6.0},
]


CASES: list[tuple[str, dict[str, Any]]] = [
    *((type_, {}) for type_ in ("Relu", "Sigmoid", "Tanh")),
    *(("Clip", attributes) for attributes in CLIPS),
    *((type_, {"axis": axis}) for type_ in ("Softmax", "LogSoftmax") for axis in (-1, 0, 1)),
]


@grid(("type_", "attributes"), CASES)
def test_forward_is_onnx_and_derivatives_are_right(type_: str, attributes: dict[str, Any]) -> None:
    """Clip has its bounds as attributes up to opset 6 only."""
    opset = 6 if type_ == "Clip" else 18
    assert_onnx(OneOperation(type_, [normal(3, 4, 5, dtype="float32")], **attributes), 1e-6, opset=opset)
    OneOperation(type_, [normal(3, 4, 2)], **attributes).assert_derivatives()


@grid(("low", "high"), [(None, None), (-0.5, None), (None, 0.25), (-0.5, 0.25), (0.5, -0.5)])
def test_clip_by_inputs_is_onnx(low: float | None, high: float | None) -> None:
    bounds = [None if bound is None else np.asarray(bound) for bound in (low, high)]
    operation = OneOperation("Clip", [normal(3, 4), *bounds])
    assert_onnx(operation)
    operation.assert_derivatives()


def test_the_derivative_at_a_bound_is_zero() -> None:
    x = np.array([-1.0, 0.0, 0.1, 6.0, 7.0], np.float32)
    dy = np.ones(5, np.float32)
    assert OneOperation("Relu", [x]).backward(dy, 0)[0].tolist() == [0, 0, 1, 1, 1]
    assert OneOperation("Clip", [x], min=0.0, max=6.0).backward(dy, 0)[0].tolist() == [0, 0, 1, 0, 0]


def test_the_derivative_at_an_inclusive_bound_is_one() -> None:
    x = np.array([-1.0, 0.0, 0.1, 6.0, 7.0], np.float32)
    operation = OneOperation("Clip", [x], min=0.0, max=6.0, inclusive=1)
    assert operation.backward(np.ones(5, np.float32), 0)[0].tolist() == [0, 1, 1, 1, 0]
    OneOperation("Clip", [normal(3, 4)], min=-0.5, max=0.5, inclusive=1).assert_derivatives()


def test_a_bound_that_float32_rounds_still_cuts() -> None:
    """0.1 is not a float32: Y holds the rounded bound, and the derivative must compare with that."""
    x = np.array([0.0, 0.2], np.float32)
    assert OneOperation("Clip", [x], min=0.1).backward(np.ones(2, np.float32), 0)[0].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigmoid_of_extremes_is_finite_and_silent(dtype: str) -> None:
    x = np.array([-1e4, -100, -20, 0, 20, 100, 1e4], dtype)
    with np.errstate(all="raise", under="ignore"):
        found = OneOperation("Sigmoid", [x]).forward()
    np.testing.assert_allclose(found, np.exp(-np.logaddexp(0, -x.astype("float64"))), rtol=1e-5, atol=1e-40)


def test_softmax_of_extremes_is_a_distribution() -> None:
    x = np.array([[1e30, 1e30, 0], [-1e30, 0, -1e30]], np.float32)
    found = OneOperation("Softmax", [x]).forward()
    np.testing.assert_array_equal(found, [[0.5, 0.5, 0], [0, 1, 0]])


def test_log_softmax_of_extremes_is_finite() -> None:
    """The logarithm of a softmax that rounds to 0 would be infinite."""
    found = OneOperation("LogSoftmax", [np.array([[1e4, 0], [20, 0]])]).forward()
    np.testing.assert_allclose(found, [[0, -1e4], [-np.log1p(np.exp(-20.0)), -20]], rtol=1e-6)


SHAPES_OF_MANY_BLOCKS = [
    ((7, 30011), 1),
    ((70001, 2), 1),
    ((3, 5, 20011), 1),
    ((5, 40000), 0),
    ((2, 40000), 1),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES_OF_MANY_BLOCKS)
def test_softmax_in_blocks(shape: tuple[int, ...], axis: int) -> None:
    x, dy = normal(*shape), normal(*shape[::-1]).T
    operation = OneOperation("Softmax", [x], axis=axis)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    y = e / e.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(operation.forward(), y, rtol=1e-10)
    if dy.shape == shape:
        expected = y * (dy - (y * dy).sum(axis=axis, keepdims=True))
        np.testing.assert_allclose(operation.backward(dy, 0)[0], expected, rtol=1e-8, atol=1e-12)
    logarithm = OneOperation("LogSoftmax", [x], axis=axis).forward()
    np.testing.assert_allclose(logarithm, np.log(y), rtol=1e-8)
