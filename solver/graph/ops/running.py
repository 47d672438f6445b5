"""Running sums along an axis. The derivative is the running sum of dY from the other end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType
from solver.graph.ops.helpers.shared import constant_input, distinct_axes
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "summed_axis"]


def summed_axis(node: Node) -> int:
    """The axis, constant input 1. Raises ShapeMismatchError."""
    axis = constant_input(node, 1, "the axis")
    if len(axis) != 1:
        raise node.mismatch(f"expected one axis, not {list(axis)}")
    return distinct_axes(node, axis, len(node.input(0).shape))[0]


class _CumSum(OperationType):
    """Y[i] is the sum of X up to i, without X[i] if `exclusive`, from the end if `reverse`. Of numbers."""

    name = "CumSum"
    arity: ClassVar[tuple[int, int]] = (2, 2)
    constant_inputs: ClassVar[frozenset[int]] = frozenset({1})
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "exclusive": Attribute("int", default=0, choices=(0, 1)),
        "reverse": Attribute("int", default=0, choices=(0, 1)),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if node.input(0).dtype is DType.BOOL:
            raise node.mismatch("expected numbers")
        summed_axis(node)
        return (node.input(0),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds()


OPERATORS: tuple[OperationType, ...] = (_CumSum(),)
