"""Binary arithmetic: broadcasting forward against ONNX, its derivatives summed back, memory."""

from __future__ import annotations

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.activations import PLAIN_ACTIVATIONS
from tests.support.every import grid
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import assert_onnx

OPERATORS = ["Add", "Sub", "Mul", "Div"]
SHAPES = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((), ()),
    ((1,), (1, 1)),
    ((2, 1, 3), (4, 1)),
    ((2, 3, 1, 2), (1, 4, 1)),
    ((1, 2, 3), (5, 1, 1)),
]


def values(left: tuple[int, ...], right: tuple[int, ...], dtype: str = "float64") -> list[Array]:
    """Away from zero, so that quotients and kinks are well-behaved."""
    rng = np.random.default_rng(3)
    return [
        np.asarray(rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 2, shape), dtype)
        for shape in (left, right)
    ]


@grid(("left", "right"), SHAPES)
@grid("type_", [*OPERATORS, "Pow"])
def test_forward_is_onnx_and_derivatives_are_right(
    type_: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    operands = (powers if type_ == "Pow" else values)(left, right)
    assert_onnx(OneOperation(type_, operands), 1e-12)
    OneOperation(type_, operands).assert_derivatives()
    for activation in ("Relu", "Tanh") if type_ != "Pow" else ():
        OneOperation(type_, operands, activation=activation).assert_derivatives()


@grid("activation", PLAIN_ACTIVATIONS)
@grid("type_", OPERATORS)
def test_the_activation_is_applied(type_: str, activation: str) -> None:
    plain = OneOperation(type_, values((4, 5), (5,))).forward()
    operation = OneOperation(type_, values((4, 5), (5,)), activation=activation)
    np.testing.assert_allclose(operation.forward(), PLAIN_ACTIVATIONS[activation](plain), rtol=1e-12)
    operation.assert_derivatives()


LARGE = [
    ((4, 50, 60, 32), (32,)),
    ((4, 32, 50, 60), (32, 1, 1)),
    ((4, 32, 50, 60), (4, 32, 50, 60)),
    ((4, 32, 50, 1), (4, 32, 1, 60)),
    ((4, 32, 50, 60), ()),
    ((50000, 1), (1, 3)),
    ((70001,), (2, 70001)),
]


@grid(("left", "right"), LARGE)
@grid("type_", OPERATORS)
def test_blocks_add_up(type_: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Shapes of many blocks: every derivative is the sum that NumPy takes of the whole tensor."""
    a, b = values(left, right)
    operation = OneOperation(type_, [a, b])
    dy = np.random.default_rng(4).standard_normal(operation.types[0].shape)
    found = operation.backward(dy, 0, 1)
    terms = {"Add": (dy, dy), "Sub": (dy, -dy), "Mul": (dy * b, dy * a), "Div": (dy / b, -dy * a / (b * b))}[
        type_
    ]
    for position, term in enumerate(terms):
        expected = summed(term, operation.node.input(position).shape)
        np.testing.assert_allclose(found[position], expected, rtol=1e-9, atol=1e-9)


def summed(term: Array, shape: tuple[int, ...]) -> Array:
    padded = (1,) * (term.ndim - len(shape)) + shape
    axes = tuple(i for i, size in enumerate(padded) if size == 1)
    return np.asarray(term.sum(axis=axes, keepdims=True)).reshape(shape)


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


def powers(left: tuple[int, ...], right: tuple[int, ...], dtype: str = "float64") -> list[Array]:
    base, exponent = values(left, right, dtype)
    return [np.abs(base), exponent]


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
