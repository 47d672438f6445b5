"""Random numbers: shape, type, range of the attributes, and scratch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.errors import AttributeRuleError, InternalError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.dropout import BLOCK
from tests.support.one_operation import OneOperation


def drawn(shape: list[int], **attributes: Any) -> OneOperation:
    return OneOperation("RandomUniform", [np.array(shape)], **attributes)


@pytest.mark.parametrize(("number", "dtype"), [(1, "float32"), (11, "float64")])
def test_shape_and_type(number: int, dtype: str) -> None:
    (found,) = drawn([2, 3], dtype=number).types
    assert (found.shape, found.dtype.value) == ((2, 3), dtype)


def test_shapes_and_ranges_that_make_no_sense() -> None:
    with pytest.raises(ShapeMismatchError, match="dimensions from 0"):
        drawn([2, -1])
    with pytest.raises(AttributeRuleError, match="greater than high"):
        drawn([2], low=1.0, high=0.0)
    with pytest.raises(AttributeRuleError, match="dtype"):
        drawn([2], dtype=7)


def test_scratch_is_a_block_and_there_is_no_derivative() -> None:
    node = drawn([2000, 2000]).node
    assert all(r.type.elements <= BLOCK for r in lookup("RandomUniform").forward_scratch(node))
    with pytest.raises(InternalError, match="has no derivative"):
        lookup("RandomUniform").backward(node, frozenset({0}))
