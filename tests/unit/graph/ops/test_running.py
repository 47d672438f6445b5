"""Running sums: the axis and the types."""

from __future__ import annotations

import numpy as np
import pytest

from solver.errors import ShapeMismatchError
from tests.support.one_operation import OneOperation


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_the_type_is_kept(dtype: str) -> None:
    (found,) = OneOperation("CumSum", [np.ones((2, 3), dtype), np.asarray(-1)]).types
    assert (found.shape, found.dtype.value) == ((2, 3), dtype)


@pytest.mark.parametrize("axis", [[2], [-3], [0, 1]])
def test_axes_that_are_not_there(axis: list[int]) -> None:
    with pytest.raises(ShapeMismatchError, match="ax"):
        OneOperation("CumSum", [np.ones((2, 3)), np.array(axis)])


def test_truth_values_are_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="expected numbers"):
        OneOperation("CumSum", [np.ones(3, np.bool_), np.asarray(0)])
