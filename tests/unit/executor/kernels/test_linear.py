"""Gemm and MatMul: forward against ONNX, derivatives against central differences, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.activations import PLAIN_ACTIVATIONS
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal
from tests.support.onnx_reference import assert_onnx

MATMUL_SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((2, 2, 3), (3, 4)),
    ((2, 2, 3), (2, 3, 4)),
    ((2, 1, 2, 3), (3, 3, 4)),
    ((2, 3), (2, 2, 3, 4)),
    ((3,), (2, 3, 4)),
    ((2, 2, 3), (3,)),
    ((5, 3), (1, 1, 3, 2)),
    ((1, 2, 3), (2, 3, 4)),
    ((1, 1), (1, 1)),
]
TRANSPOSED = [(0, 0), (0, 1), (1, 0), (1, 1)]
BIASES = [None, (), (1,), (5,), (1, 5), (4, 1), (4, 5), (1, 1)]


def gemm_values(trans_a: int, trans_b: int, bias: tuple[int, ...] | None) -> list[Array | None]:
    a = normal(3, 4) if trans_a else normal(4, 3)
    b = normal(5, 3) if trans_b else normal(3, 5)
    return [a, b, None if bias is None else normal(*bias)]


@grid("bias", BIASES)
@grid(("alpha", "beta"), [(1.0, 1.0), (0.5, 1.0), (1.0, -0.25), (0.25, 0.0)])
@grid(("trans_a", "trans_b"), TRANSPOSED)
def test_gemm_is_onnx_gemm(
    trans_a: int, trans_b: int, alpha: float, beta: float, bias: tuple[int, ...] | None
) -> None:
    values = gemm_values(trans_a, trans_b, bias)
    assert_onnx(OneOperation("Gemm", values, alpha=alpha, beta=beta, transA=trans_a, transB=trans_b), 1e-9)


@grid("activation", PLAIN_ACTIVATIONS)
@grid("dtype", ["float32", "float64"])
def test_gemm_applies_its_activation(activation: str, dtype: str) -> None:
    a, b, c = normal(4, 3, dtype=dtype), normal(3, 5, dtype=dtype), normal(5, dtype=dtype)
    found = OneOperation("Gemm", [a, b, c], activation=activation).forward()
    assert found.dtype == dtype
    np.testing.assert_allclose(found, PLAIN_ACTIVATIONS[activation](a @ b + c), rtol=1e-4)


@grid("activation", PLAIN_ACTIVATIONS)
@grid("bias", BIASES)
def test_gemm_derivatives(activation: str, bias: tuple[int, ...] | None) -> None:
    OneOperation("Gemm", gemm_values(0, 0, bias), activation=activation).assert_derivatives()


@pytest.mark.parametrize("activation", ["None", "Sigmoid"])
@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSED)
def test_gemm_derivatives_of_scaled_and_transposed(trans_a: int, trans_b: int, activation: str) -> None:
    attributes: dict[str, Any] = {
        "alpha": 0.7,
        "beta": 1.3,
        "transA": trans_a,
        "transB": trans_b,
        "activation": activation,
    }
    OneOperation("Gemm", gemm_values(trans_a, trans_b, (5,)), **attributes).assert_derivatives()


def test_gemm_with_beta_zero_has_a_zero_derivative_of_the_bias() -> None:
    operation = OneOperation("Gemm", gemm_values(0, 0, (5,)), beta=0.0)
    assert not operation.backward(np.ones((4, 5)), 2)[2].any()


@grid("wanted", [(0,), (2,), (0, 2)])
@grid("bias", [(5,), (17, 1), (17, 5), ()])
def test_staging_by_rows_gives_what_staging_at_once_gives(
    wanted: tuple[int, ...], bias: tuple[int, ...]
) -> None:
    """A budget of two rows of dZ; the chunk at the end has one."""
    values = [normal(17, 3), normal(3, 5), normal(*bias)]
    dy = normal(17, 5, seed=1)
    tight = OneOperation("Gemm", values, activation="Tanh", scratch_budget=2 * 5 * 8)
    assert tight.needs(*wanted).scratch[0].type.shape == (2, 5)
    found = tight.backward(dy, *wanted)
    expected = OneOperation("Gemm", values, activation="Tanh").backward(dy, *wanted)
    for position in wanted:
        np.testing.assert_allclose(found[position], expected[position], rtol=1e-12, atol=1e-14)


@grid(("left", "right"), MATMUL_SHAPES)
def test_matmul_is_onnx_matmul_and_its_derivatives_are_right(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    values = [normal(*left), normal(*right, seed=1)]
    assert_onnx(OneOperation("MatMul", values), 1e-12)
    for activation in ("None", "Relu6", "Tanh"):
        OneOperation("MatMul", values, activation=activation).assert_derivatives()


LARGE: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("Gemm", [(300, 400), (400, 500), (500,)], {"activation": "Relu"}),
    ("Gemm", [(300, 400), (500, 400), (300, 1)], {"transB": 1, "alpha": 0.5, "beta": 0.5}),
    ("Gemm", [(400, 300), (400, 500), (300, 500)], {"transA": 1, "activation": "Sigmoid"}),
    ("MatMul", [(30, 40, 50), (50, 60)], {"activation": "Tanh"}),
    ("MatMul", [(30, 40, 50), (30, 50, 60)], {"activation": "Relu6"}),
    ("MatMul", [(1, 200, 100), (8, 100, 300)], {}),
    ("MatMul", [(8, 200, 100), (100,)], {}),
]
