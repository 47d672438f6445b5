"""Fused-activation helpers: values, derivatives read from the output, and no allocation."""

from __future__ import annotations

import numpy as np
import pytest

from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.graph.ops.base import ACTIVATIONS
from tests.support.activations import PLAIN_ACTIVATIONS
from tests.support.every import grid
from tests.support.one_operation import allocated


def test_every_activation_has_a_reference() -> None:
    assert set(PLAIN_ACTIVATIONS) == set(ACTIVATIONS)


@grid("name", ACTIVATIONS)
@grid("dtype", ["float32", "float64"])
def test_forward_in_place(name: str, dtype: str) -> None:
    x = (np.random.default_rng(0).standard_normal(1000) * 5).astype(dtype)
    y = x.copy()
    apply_activation(name, y)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, PLAIN_ACTIVATIONS[name](x), rtol=2e-6, atol=1e-7)


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


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivative_is_the_central_difference(name: str) -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(-8, 8, 500)
    x = x[(np.abs(x) > 1e-3) & (np.abs(x - 6) > 1e-3)]  # away from the kinks
    dy = generator.standard_normal(x.size)
    step = 1e-5
    expected = dy * (PLAIN_ACTIVATIONS[name](x + step) - PLAIN_ACTIVATIONS[name](x - step)) / (2 * step)
    out = np.full_like(x, np.nan)
    activation_derivative(name, PLAIN_ACTIVATIONS[name](x), dy, out)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-9)


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
