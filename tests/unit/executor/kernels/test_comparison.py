"""Comparisons: forward against NumPy, no backward kernel, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation

PLAIN: dict[str, Callable[..., Any]] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}


def operands(type_: str, dtype: str, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(3)
    kind = "bool" if type_ in ("And", "Or") else dtype
    return [np.asarray(rng.integers(0, 3, shape) % (2 if kind == "bool" else 3), kind) for shape in shapes]


@grid("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@grid("type_", PLAIN)
def test_forward(type_: str, dtype: str) -> None:
    given = operands(type_, dtype, (4, 1, 5), (3, 1))
    found = OneOperation(type_, given).forward()
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, PLAIN[type_](*given))


def test_not() -> None:
    assert OneOperation("Not", [np.array([True, False])]).forward().tolist() == [False, True]
