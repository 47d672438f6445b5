"""Comparisons: truth values, refusals, no derivatives."""

from __future__ import annotations

import pytest

from solver.errors import InternalError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.types import DType, TensorType
from tests.support.one_node import needs_of, node_of

COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


def bools(*shape: int) -> TensorType:
    return TensorType(shape, DType.BOOL)


@pytest.mark.parametrize("type_", COMPARISONS)
def test_comparisons(type_: str) -> None:
    node = node_of(type_, [(2, 1), (3,)])
    assert node.outputs == (bools(2, 3),)
    assert lookup(type_).differentiable(node) == set()
    with pytest.raises(ShapeMismatchError, match="one element type"):
        node_of(type_, [(2, 3), TensorType((2, 3), DType.INT32)])
    with pytest.raises(ShapeMismatchError, match="broadcast"):
        node_of(type_, [(2, 3), (2,)])


@pytest.mark.parametrize("type_", ["And", "Or"])
def test_what_joins_truth_values(type_: str) -> None:
    assert node_of(type_, [bools(2, 1), bools(3)]).outputs == (bools(2, 3),)
    with pytest.raises(ShapeMismatchError, match="truth values"):
        node_of(type_, [bools(2, 3), (2, 3)])


def test_not() -> None:
    assert node_of("Not", [bools(2, 3)]).outputs == (bools(2, 3),)
    with pytest.raises(ShapeMismatchError, match="truth values"):
        node_of("Not", [(2, 3)])


def test_asking_for_a_derivative_is_a_bug() -> None:
    with pytest.raises(InternalError, match="'Less' has no derivative"):
        needs_of("Less", [(2, 3), (2, 3)], (0,))
