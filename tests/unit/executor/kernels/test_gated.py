"""Gated and one-sided activations: forward against ONNX, derivatives, extremes, memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from solver.executor.kernels.helpers.erf import erf
from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import assert_onnx

CASES: list[tuple[str, dict[str, Any]]] = [
    ("LeakyRelu", {}),
    ("LeakyRelu", {"alpha": 0.25}),
    ("LeakyRelu", {"alpha": -0.5}),
    ("LeakyRelu", {"alpha": 0.0}),
    ("LeakyRelu", {"alpha": 2.0}),
    ("Elu", {}),
    ("Elu", {"alpha": 0.3}),
    ("Elu", {"alpha": -0.5}),
    ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.7, "beta": 0.3}),
    ("HardSigmoid", {"alpha": -0.7, "beta": 0.3}),
    ("HardSwish", {}),
    ("Swish", {}),
    ("Swish", {"alpha": 1.7}),
    ("Swish", {"alpha": -0.4}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
]
OPSETS = {"Gelu": 20, "Swish": 24}


def normal(*shape: int, dtype: str = "float64") -> Array:
    return np.asarray(np.random.default_rng((9, *shape)).standard_normal(shape) * 2, dtype)


@grid(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-7)])
@grid(("type_", "attributes"), CASES)
def test_forward_is_onnx(type_: str, attributes: dict[str, Any], dtype: str, tolerance: float) -> None:
    """ONNX keeps attributes in float32, so float64 agrees no better than that."""
    operation = OneOperation(type_, [normal(5, 6, 7, dtype=dtype)], **attributes)
    assert_onnx(operation, tolerance, tolerance, opset=OPSETS.get(type_, 18))


@grid(("type_", "attributes"), CASES)
def test_derivatives(type_: str, attributes: dict[str, Any]) -> None:
    OneOperation(type_, [normal(5, 9)], **attributes).assert_derivatives()
    OneOperation(type_, [normal(10, 40, 500, dtype="float32")], **attributes).assert_lean()


@pytest.mark.parametrize(
    ("type_", "attributes", "x", "slope"),
    [
        ("LeakyRelu", {"alpha": 0.5}, [-1.0, 0.0, 1.0], [0.5, 0.5, 1]),
        ("LeakyRelu", {"alpha": -0.5}, [-1.0, 0.0, 1.0], [-0.5, -0.5, 1]),
        ("Elu", {"alpha": 0.5}, [0.0, 1.0], [0.5, 1]),
        ("Elu", {"alpha": -0.5}, [0.0, 1.0], [-0.5, 1]),
        ("HardSigmoid", {"alpha": 0.5}, [-1.0, 0.0, 1.0], [0, 0.5, 0]),
        ("HardSwish", {}, [-4.0, -3.0, 0.0, 3.0, 4.0], [0, 0, 0.5, 1, 1]),
    ],
)
def test_the_derivative_at_a_kink(
    type_: str, attributes: dict[str, Any], x: list[float], slope: list[float]
) -> None:
    operation = OneOperation(type_, [np.array(x, np.float32)], **attributes)
    assert operation.backward(np.ones(len(x), np.float32), 0)[0].tolist() == slope


@grid(("type_", "attributes"), CASES)
def test_extremes_are_finite_and_silent(type_: str, attributes: dict[str, Any]) -> None:
    x = np.array([-1e4, -100, -20, 0, 20, 100, 1e4], np.float32)
    with np.errstate(all="raise", under="ignore"):
        operation = OneOperation(type_, [x], **attributes)
        assert np.isfinite(operation.forward()).all()
        assert np.isfinite(operation.backward(np.ones_like(x), 0)[0]).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 4e-7), ("float64", 4e-16)])
def test_the_error_function(dtype: str, tolerance: float) -> None:
    """Over all three ranges, their ends included, and beyond where it is 1."""
    values = [0.0, -0.0, 1e-300, 15 / 32, 0.46876, 4.0, 5.999, 6.0, 6.001, 27.0, 1e30, math.inf]
    x = np.concatenate([np.linspace(-7, 7, 20011), values, np.negative(values)]).astype(dtype)
    out, square, inner, work = (np.full_like(x, np.nan) for _ in range(4))
    erf(x, out, square, inner, work, np.zeros(x.shape, np.bool_))
    expected = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(out, expected, rtol=2 * tolerance, atol=tolerance)
    assert np.array_equal(np.signbit(out), np.signbit(x))


def test_the_error_function_of_no_number_is_none() -> None:
    x = np.array([np.nan])
    out, square, inner, work = (np.zeros(1) for _ in range(4))
    erf(x, out, square, inner, work, np.zeros(1, np.bool_))
    assert np.isnan(out).all()


@grid("slope", [(4,), (3, 1), (1,), (), (2, 3, 4), (1, 3, 4), (2, 1, 1)])
def test_prelu_is_onnx_and_its_derivatives_are_right(slope: tuple[int, ...]) -> None:
    operation = OneOperation("PRelu", [normal(2, 3, 4), np.abs(normal(*slope)) - 0.3])
    assert_onnx(operation, 1e-12)
    operation.assert_derivatives()


@pytest.mark.parametrize("slope", [(70, 1), (1, 1200), (1,), (70, 1200)])
def test_prelu_in_blocks_without_memory_of_tensor_size(slope: tuple[int, ...]) -> None:
    x, weight, dy = normal(70, 1200), normal(*slope), normal(1200, 70).T.copy()
    found = OneOperation("PRelu", [x, weight]).backward(dy, 0, 1)
    assert np.array_equal(found[0], np.where(x > 0, dy, dy * weight))
    term = dy * np.minimum(x, 0)
    axes = tuple(i for i, size in enumerate(slope[-2:]) if size == 1) if len(slope) > 1 else (0, 1)
    expected = term.sum(axis=axes, keepdims=True).reshape(slope)
    np.testing.assert_allclose(found[1], expected, rtol=1e-9, atol=1e-9)
    OneOperation("PRelu", [x.astype(np.float32), weight.astype(np.float32)]).assert_lean()
