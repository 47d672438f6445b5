"""Activations: element-wise functions and softmax. Their backward pass reads Y, never X.

Every kernel treats an element (softmax: a row) in one go, so X and Y, or dY and dX, may share memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops._shared import BLOCK_ELEMENTS, axis_in_range, bad_attribute, block, same_floating
from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest, scratch
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "softmax_block"]


class _Elementwise(OperationType):
    """Y has the type of X; the backward step needs Y and one block."""

    arity: ClassVar[tuple[int, int]] = (1, 1)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        return (node.input(0),)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        type_ = node.input(0)
        return BackwardNeeds(outputs=frozenset({0}), scratch=(block("factor", type_.elements, type_.dtype),))


class _Relu(_Elementwise):
    name = "Relu"


class _Sigmoid(_Elementwise):
    name = "Sigmoid"


class _Tanh(_Elementwise):
    name = "Tanh"


class _Clip(_Elementwise):
    """Bounds are the attributes `min` and `max` (opset 6) or the scalar inputs 1 and 2 (opset 11).

    Bounds given as inputs are read, never differentiated. X is strictly inside the bounds exactly
    where Y is, hence dX = dY where min < Y < max and 0 elsewhere.
    """

    name = "Clip"
    arity = (1, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {"min": Attribute("float"), "max": Attribute("float")}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, range(3))
        for position, key in ((1, "min"), (2, "max")):
            if not node.has_input(position):
                continue
            if node.input(position).elements != 1:
                raise node.mismatch(f"expected a scalar for the bound {key!r}")
            if node.attributes[key] is not None:
                raise bad_attribute(node, key, f"is also given as input {position}; give it once")
        return (node.input(0),)

    def differentiable(self, node: Node) -> frozenset[int]:
        return frozenset({0})

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        type_ = node.input(0)
        bounds = frozenset(i for i in (1, 2) if node.has_input(i))
        masks = tuple(block(name, type_.elements, type_.dtype) for name in ("above", "below"))
        return BackwardNeeds(inputs=bounds, outputs=frozenset({0}), scratch=masks)


def softmax_block(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(outer, classes, inner) of the block that softmax treats at a time.

    The input is seen as [outer, classes, inner]. A block always spans all classes, so a row with
    more than `BLOCK_ELEMENTS` classes is a block of its own.
    """
    outer, classes, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    columns = min(inner, max(1, BLOCK_ELEMENTS // classes))
    return min(outer, max(1, BLOCK_ELEMENTS // (classes * columns))), classes, columns


class _Softmax(OperationType):
    """Softmax along one axis, as since opset 13."""

    name = "Softmax"
    arity = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axis": Attribute("int", default=-1)}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        axis_in_range(node, "axis", node.attributes["axis"], len(node.input(0).shape))
        return (node.input(0),)

    def _block(self, node: Node) -> tuple[int, int, int]:
        shape = node.input(0).shape
        return softmax_block(shape, node.attributes["axis"] % len(shape))

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        outer, _, inner = self._block(node)
        return (scratch("statistic", (outer * inner,), node.input(0).dtype),)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        outer, classes, inner = self._block(node)
        dtype = node.input(0).dtype
        product = scratch("product", (outer * classes * inner,), dtype)
        return BackwardNeeds(
            outputs=frozenset({0}), scratch=(product, scratch("statistic", (outer * inner,), dtype))
        )


OPERATORS: tuple[OperationType, ...] = (_Relu(), _Clip(), _Sigmoid(), _Tanh(), _Softmax())
