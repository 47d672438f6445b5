"""Activations: derivatives at bounds, extremes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.one_operation import OneOperation, normal


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
