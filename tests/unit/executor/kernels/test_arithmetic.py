"""Binary arithmetic: accuracy of sums and quotients, powers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.one_operation import OneOperation


def test_sums_of_float32_over_many_rows_stay_accurate() -> None:
    """One running sum in float32 would lose the small terms; sums by blocks keep them."""
    rows = 1_000_000
    operation = OneOperation("Add", [np.zeros((rows, 1), np.float32), np.zeros((1,), np.float32)])
    found = operation.backward(np.full((rows, 1), 0.1, np.float32), 1)[1]
    assert abs(float(found[0]) - rows * 0.1) < 0.05


def test_division_by_tiny_numbers_keeps_its_derivative() -> None:
    """b^2 underflows in float32 where a / b / b does not."""
    a, b = np.full(1, 1e-20, np.float32), np.full(1, 1e-25, np.float32)
    found = OneOperation("Div", [a, b]).backward(np.full(1, 1e-20, np.float32), 1)[1]
    np.testing.assert_allclose(found, -1e10, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_whole_powers_of_any_base(dtype: str) -> None:
    base = np.array([[-2.0, -0.5, 0.0], [0.5, 1.0, 3.0]])
    operation = OneOperation("Pow", [base, np.array([3, 2, 1], dtype)])
    np.testing.assert_allclose(operation.forward(), base ** np.array([3.0, 2.0, 1.0]))
    operation.assert_derivatives()
    assert OneOperation("Pow", [base.astype(np.float32), np.array(2, dtype)]).forward().dtype == np.float32


def test_powers_of_and_to_zero_have_slope_zero_and_not_nan() -> None:
    base, exponent = np.array([0.0, 0.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0, 0.0])
    found = OneOperation("Pow", [base, exponent]).backward(np.ones(4), 0, 1)
    assert found[0].tolist() == [0, 1, 0, 0]
    assert found[1].tolist() == [0, 0, 0, np.log(2.0)]
