"""Gated and one-sided activations: kinks, extremes, the error function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from solver.executor.kernels.helpers.erf import erf
from tests.support.every import grid
from tests.support.one_operation import OneOperation

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


@pytest.mark.parametrize(
    ("type_", "attributes", "x", "slope"),
    [
        ("LeakyRelu", {"alpha": 0.5}, [-1.0, 0.0, 1.0], [0.5, 0.5, 1]),
        ("LeakyRelu", {"alpha": -0.5}, [-1.0, 0.0, 1.0], [-0.5, -0.5, 1]),
        ("Elu", {"alpha": 0.5}, [0.0, 1.0], [0.5, 1]),
        ("Elu", {"alpha": -0.5}, [0.0, 1.0], [-0.5, 1]),
        ("HardSigmoid", {"alpha": 0.5}, [-1.0, 0.0, 1.0], [0, 0.5, 0]),
        ("Abs", {}, [-2.0, 0.0, 2.0], [-1, 0, 1]),
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


def test_the_operator_is_exact_to_float64() -> None:
    x = np.linspace(-6.5, 6.5, 4001)
    expected = [math.erf(v) for v in x]
    np.testing.assert_allclose(OneOperation("Erf", [x]).forward(), expected, rtol=1e-15, atol=3e-16)
