"""Activations: bounds, kinks, extremes, the error function, and the helpers that fuse them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.executor.kernels.helpers.erf import erf
from solver.graph.ops.base import ACTIVATIONS
from tests.support.activations import PLAIN_ACTIVATIONS
from tests.support.every import grid
from tests.support.one_operation import OneOperation, allocated, normal


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


# ------------------------------------------------------------------------------------------------------ gates


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


# ---------------------------------------------------------------------------------------------------- helpers


def test_every_activation_has_a_reference() -> None:
    assert set(PLAIN_ACTIVATIONS) == set(ACTIVATIONS)


@grid("name", ACTIVATIONS)
@grid("dtype", ["float32", "float64"])
@grid("stride", range(1, 18))
@grid("count", [1, 2, 3, 8, 17, 40])
def test_strides_make_no_difference(name: str, dtype: str, stride: int, count: int) -> None:
    """NumPy picks another loop for each stride, and not all of them were right in place."""
    x = np.linspace(-7, 7, count).astype(dtype)
    y = np.full(count * stride, np.nan, dtype)[::stride]
    y[:] = x
    apply_activation(name, y)
    np.testing.assert_allclose(y, PLAIN_ACTIVATIONS[name](x), rtol=3e-6, atol=1e-7)
    out, dy = (np.full(count * stride, np.nan, dtype)[::stride] for _ in range(2))
    dy[:], expected = x, np.empty_like(x)
    activation_derivative(name, np.ascontiguousarray(y), x, expected)
    activation_derivative(name, y, dy, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", ["Relu", "Relu6"])
def test_derivative_is_zero_at_the_kinks(name: str) -> None:
    y = np.array([0.0, -0.0] + ([6.0] if name == "Relu6" else []))
    out = np.full_like(y, np.nan)
    activation_derivative(name, y, np.ones_like(y), out)
    assert not out.any()


def test_relu6_mask_survives_the_smallest_numbers() -> None:
    tiny = np.finfo(np.float32).smallest_subnormal
    y = np.array([tiny, np.nextafter(np.float32(6), np.float32(0))], np.float32)
    out = np.empty_like(y)
    activation_derivative("Relu6", y, np.ones_like(y), out)
    np.testing.assert_array_equal(out, 1)


def test_sigmoid_saturates_without_warnings() -> None:
    y = np.array([-1e30, -1000.0, 0.0, 1000.0, 1e30], np.float32)
    apply_activation("Sigmoid", y)
    np.testing.assert_array_equal(y, np.array([0, 0, 0.5, 1, 1], np.float32))


def test_none_derivative_may_alias() -> None:
    dy = np.arange(4.0)
    activation_derivative("None", np.zeros(4), dy, dy)
    np.testing.assert_array_equal(dy, np.arange(4.0))


@grid("name", ACTIVATIONS)
@grid("strided", [False, True])
def test_nothing_of_tensor_size_is_allocated(name: str, strided: bool) -> None:
    whole = np.ones((512, 1024), np.float32)
    dy = np.ones((512, 1024), np.float32)
    out = np.empty((512, 1024), np.float32)
    y, dy, out = (a[:, 8:1000] if strided else a for a in (whole, dy, out))

    def step() -> None:
        apply_activation(name, y)
        activation_derivative(name, y, dy, out)

    # NumPy reserves 32 KiB for each of three strided operands, whatever their size.
    assert allocated(step) < (128 if strided else 16) * 1024
