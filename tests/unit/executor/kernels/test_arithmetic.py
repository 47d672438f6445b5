"""Arithmetic and reductions: accuracy of sums and quotients, powers, ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal


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


# ------------------------------------------------------------------------------------------------- reductions


PLAIN: dict[str, Callable[..., Any]] = {"ReduceMean": np.mean, "ReduceSum": np.sum, "ReduceMax": np.max}
NAMES = list(PLAIN)


@grid("type_", NAMES)
@grid("noop", [0, 1])
@grid("attributes", [{}, {"axes": ()}])
def test_no_axes_mean_all_or_none(type_: str, attributes: dict[str, Any], noop: int) -> None:
    x = normal(3, 4)
    operation = OneOperation(type_, [x], noop_with_empty_axes=noop, **attributes)
    np.testing.assert_allclose(operation.forward(), x if noop else [[PLAIN[type_](x)]], rtol=1e-12)
    operation.assert_derivatives()


def test_a_mean_of_float32_over_many_rows_stays_accurate() -> None:
    x = np.full((2_000_000, 1), 0.1, np.float32)
    found = OneOperation("ReduceMean", [x], axes=(0,)).forward()
    np.testing.assert_allclose(found, 0.1, rtol=1e-5)


def test_ties_share_the_derivative() -> None:
    x = np.array([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0], [0.0, 1.0, 0.5]])
    dy = np.array([[4.0], [6.0], [5.0]])
    found = OneOperation("ReduceMax", [x], axes=(1,)).backward(dy, 0)[0]
    assert found.tolist() == [[2, 0, 2], [2, 2, 2], [0, 5, 0]]
    everywhere = OneOperation("ReduceMax", [x], keepdims=0).backward(np.asarray(8.0), 0)[0]
    assert everywhere.tolist() == [[4, 0, 4], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_ties_in_blocks(axes: tuple[int, ...]) -> None:
    """Few different values and many blocks: what reaches X adds up to dY in every row."""
    x = np.random.default_rng(2).integers(0, 3, (11, 37, 509)).astype(np.float64)
    operation = OneOperation("ReduceMax", [x], axes=axes)
    dy = normal(*operation.types[0].shape)
    found = operation.backward(dy, 0)[0]
    np.testing.assert_allclose(found.sum(axis=axes, keepdims=True), dy, rtol=1e-9, atol=1e-12)
    assert np.array_equal(found != 0, x == x.max(axis=axes, keepdims=True))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_the_maximum_of_integers_and_truth_values(dtype: str) -> None:
    """The harness makes integers constants; kernels see no difference."""
    x = np.random.default_rng(2).integers(0, 2, (3, 4)).astype(dtype)
    operation = OneOperation("ReduceMax", [x], axes=(1,))
    assert operation.forward().dtype == dtype
    assert np.array_equal(operation.forward(), x.max(axis=1, keepdims=True))
    assert operation.kind.differentiable(operation.node) == set()
