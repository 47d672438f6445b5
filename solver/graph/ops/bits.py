"""Bits of whole numbers, one by one: with broadcasting and without derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import Attribute, Node, NoDerivative
from solver.graph.ops.helpers.shared import broadcast_shape
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS"]


class _OfBits(NoDerivative):
    """An operator on two operands of one integer type."""

    arity: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        types = [type_ for type_ in node.inputs if type_ is not None]
        dtype = types[0].dtype
        if dtype.is_floating or dtype is DType.BOOL or any(type_.dtype is not dtype for type_ in types):
            raise node.mismatch("expected whole numbers of one type")
        return (TensorType(broadcast_shape(node, types[0], types[-1]), dtype),)


class _BitwiseAnd(_OfBits):
    name = "BitwiseAnd"


class _BitwiseOr(_OfBits):
    name = "BitwiseOr"


class _BitwiseXor(_OfBits):
    name = "BitwiseXor"


class _BitwiseNot(_OfBits):
    name = "BitwiseNot"
    arity = (1, 1)


class _BitShift(_OfBits):
    """X, shifted by as many bits as Y says; a shift by all bits of the type or more gives 0 (or -1)."""

    name = "BitShift"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "direction": Attribute("string", required=True, choices=("LEFT", "RIGHT"))
    }


OPERATORS = (_BitwiseAnd(), _BitwiseOr(), _BitwiseXor(), _BitwiseNot(), _BitShift())
