"""Steps: types, and no derivative."""

from __future__ import annotations

import pytest

from solver.errors import InternalError, ShapeMismatchError
from solver.graph.ops import FAMILIES, lookup
from solver.graph.types import DType, TensorType
from tests.support.one_node import needs_of, node_of


@pytest.mark.parametrize("type_", FAMILIES["rounding"])
def test_the_type_is_kept_and_there_is_no_derivative(type_: str) -> None:
    node = node_of(type_, [(2, 3)])
    assert node.outputs == (TensorType((2, 3), DType.FLOAT32),)
    assert lookup(type_).differentiable(node) == frozenset()
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of(type_, [TensorType((2, 3), DType.INT32)])
    with pytest.raises(InternalError, match=f"{type_!r} has no derivative"):
        needs_of(type_, [(2, 3)], (0,))
