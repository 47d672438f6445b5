"""Functions of one operand: forward against ONNX, derivatives, in place, memory."""

from __future__ import annotations

import math

import numpy as np

from solver.graph.ops import FAMILIES
from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import assert_onnx

NAMES = FAMILIES["unary"]
POSITIVE = ("Log", "Sqrt", "Reciprocal")
WITHIN_ONE = ("Asin", "Acos", "Atanh")


def operand(type_: str, *shape: int, dtype: str = "float64") -> Array:
    """Where the function has a slope, and a gentle one."""
    values = np.random.default_rng((9, *shape)).standard_normal(shape)
    if type_ in WITHIN_ONE:
        values = 0.9 * np.tanh(values)
    elif type_ == "Acosh":
        values = np.abs(values) + 1.2
    elif type_ in POSITIVE:
        values = np.abs(values) + 0.2
    return np.asarray(values, dtype)


@grid("type_", NAMES)
def test_forward_is_onnx_and_derivatives_are_right(type_: str) -> None:
    for dtype in ("float32", "float64"):
        assert_onnx(OneOperation(type_, [operand(type_, 3, 4, 5, dtype=dtype)]), 2e-6)
    OneOperation(type_, [operand(type_, 3, 4)]).assert_derivatives()
    OneOperation(type_, [operand(type_, 10, 40, 500, dtype="float32")]).assert_lean()


@grid("type_", NAMES)
def test_many_blocks_are_as_one(type_: str) -> None:
    x, dy = operand(type_, 70001), operand("Exp", 70001)
    whole, tail = OneOperation(type_, [x]), OneOperation(type_, [x[-9:]])
    np.testing.assert_allclose(whole.forward()[-9:], tail.forward(), rtol=1e-14)
    np.testing.assert_allclose(whole.backward(dy, 0)[0][-9:], tail.backward(dy[-9:], 0)[0], rtol=1e-14)


def test_erf_is_exact_to_float64() -> None:
    x = np.linspace(-6.5, 6.5, 4001)
    expected = [math.erf(v) for v in x]
    np.testing.assert_allclose(OneOperation("Erf", [x]).forward(), expected, rtol=1e-15, atol=3e-16)


def test_the_slope_of_abs_at_zero_is_zero() -> None:
    found = OneOperation("Abs", [np.array([-2.0, 0.0, 2.0])]).backward(np.full(3, 5.0), 0)[0]
    assert found.tolist() == [-5, 0, 5]
