"""Comparisons and what joins them: truth values, with broadcasting and without derivatives.

Their results are conditions for Where, and masks once they are cast.
"""

from __future__ import annotations

from typing import ClassVar

from solver.graph.ops.base import Node, NoDerivative, OperationType, named
from solver.graph.ops.helpers.shared import broadcast_shape, same_floating
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS"]


class _Truth(NoDerivative):
    arity: ClassVar[tuple[int, int]] = (2, 2)


class _Comparison(_Truth):
    """A comparison of two operands of one element type."""

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        left, right = node.input(0), node.input(1)
        if left.dtype is not right.dtype:
            raise node.mismatch("expected two operands of one element type")
        return (TensorType(broadcast_shape(node, left, right), DType.BOOL),)


class _Logical(_Comparison):
    """An operator on truth values."""

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if any(type_ is not None and type_.dtype is not DType.BOOL for type_ in node.inputs):
            raise node.mismatch("expected truth values (bool)")
        return super().infer(node)


class _Not(_Truth):
    name = "Not"
    arity = (1, 1)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if node.input(0).dtype is not DType.BOOL:
            raise node.mismatch("expected truth values (bool)")
        return (node.input(0),)


class _IsNaN(_Truth):
    name = "IsNaN"
    arity = (1, 1)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        return (TensorType(node.input(0).shape, DType.BOOL),)


OPERATORS: tuple[OperationType, ...] = (
    *named(_Comparison, "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    *(*named(_Logical, "And", "Or"), _Not(), _IsNaN()),
)
