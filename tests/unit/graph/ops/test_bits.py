"""Bits: types, broadcasting, and no derivative."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import FAMILIES, lookup
from solver.graph.types import DType, TensorType
from tests.support.one_node import node_of

WHOLE = TensorType((2, 3), DType.INT32)


@pytest.mark.parametrize("type_", FAMILIES["bits"])
def test_the_type_is_kept_and_there_is_no_derivative(type_: str) -> None:
    others = [TensorType((3,), DType.INT32)] * (lookup(type_).arity[0] - 1)
    attributes: dict[str, Any] = {"direction": "LEFT"} if type_ == "BitShift" else {}
    node = node_of(type_, [WHOLE, *others], **attributes)
    assert node.outputs == (WHOLE,)
    assert lookup(type_).differentiable(node) == frozenset()
    for dtype in (DType.FLOAT32, DType.BOOL):
        with pytest.raises(ShapeMismatchError, match="whole numbers of one type"):
            node_of(type_, [TensorType((2, 3), dtype), *others], **attributes)


def test_both_operands_have_one_type_and_a_shift_has_a_direction() -> None:
    with pytest.raises(ShapeMismatchError, match="whole numbers of one type"):
        node_of("BitwiseAnd", [WHOLE, TensorType((3,), DType.INT64)])
    with pytest.raises(AttributeRuleError, match="'direction'"):
        node_of("BitShift", [WHOLE, WHOLE])
