"""Running sums: forward against NumPy, derivatives, memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.every import grid
from tests.support.one_operation import OneOperation

X = np.random.default_rng(2).standard_normal((3, 4, 5))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_forward(axis: int) -> None:
    found = OneOperation("CumSum", [X, np.asarray(axis)]).forward()
    np.testing.assert_allclose(found, np.cumsum(X, axis), rtol=1e-12)


@pytest.mark.parametrize(
    ("exclusive", "reverse", "expected"), [(1, 0, [0, 1, 3]), (0, 1, [6, 5, 3]), (1, 1, [5, 3, 0])]
)
def test_without_itself_and_from_the_end(exclusive: int, reverse: int, expected: list[int]) -> None:
    x = np.array([1.0, 2.0, 3.0])
    operation = OneOperation("CumSum", [x, np.asarray(0)], exclusive=exclusive, reverse=reverse)
    assert operation.forward().tolist() == expected


@grid("exclusive", [0, 1])
@grid("reverse", [0, 1])
@grid("axis", [0, 1, 2])
def test_derivatives(axis: int, reverse: int, exclusive: int) -> None:
    values = [X[:2, :3, :2], np.asarray(axis)]
    OneOperation("CumSum", values, reverse=reverse, exclusive=exclusive).assert_derivatives()
