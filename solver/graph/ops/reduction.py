"""Reductions along axes. The backward pass spreads dY; only that of a maximum reads X and Y.

Several elements may be the maximum. Each of k equal ones then gets a k-th of the derivative, so that what
reaches X adds up to dY, whatever the ties (TensorFlow and PyTorch's `amax` do the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import (
    Attribute,
    BackwardNeeds,
    Node,
    OperationType,
    ScratchRequest,
    named,
    scratch,
)
from solver.graph.ops.helpers.shared import attribute_or_input, block, distinct_axes, same_floating
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "kept_shape", "reduced_axes"]


def reduced_axes(node: Node) -> frozenset[int]:
    """Axes that a reduction removes, from the attribute or from constant input 1.

    No axes means all of them, or none with `noop_with_empty_axes`. Raises AttributeRuleError for
    axes given twice, ShapeMismatchError for axes out of range or repeated.
    """
    rank = len(node.input(0).shape)
    axes = attribute_or_input(node, "axes", 1)
    if not axes:
        return frozenset() if node.attributes["noop_with_empty_axes"] else frozenset(range(rank))
    return frozenset(distinct_axes(node, axes, rank))


def kept_shape(node: Node) -> tuple[int, ...]:
    """Shape of the output with every reduced axis kept as 1."""
    axes = reduced_axes(node)
    return tuple(1 if i in axes else size for i, size in enumerate(node.input(0).shape))


class _Reduction(OperationType):
    """As since opset 18 (sum: 13), with the axes as input 1; the older attribute `axes` is taken too."""

    arity: ClassVar[tuple[int, int]] = (1, 2)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "axes": Attribute("ints"),
        "keepdims": Attribute("int", default=1, choices=(0, 1)),
        "noop_with_empty_axes": Attribute("int", default=0, choices=(0, 1)),
    }
    constant_inputs: ClassVar[frozenset[int]] = frozenset({1})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = self._dtype(node)
        axes, shape = reduced_axes(node), kept_shape(node)
        if not node.attributes["keepdims"]:
            shape = tuple(size for i, size in enumerate(shape) if i not in axes)
        return (TensorType(shape, dtype),)

    def _dtype(self, node: Node) -> DType:
        return same_floating(node, (0,))

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        if not reduced_axes(node):
            return ()
        return (block("partial", node.outputs[0].elements, node.outputs[0].dtype),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds()


class _ReduceMax(_Reduction):
    """The largest along axes; of integers and truth values too, which have no derivative."""

    name = "ReduceMax"

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        (type_,) = super().infer(node)
        if type_.elements and not node.input(0).elements:
            raise node.mismatch("nothing is the largest of no elements")
        return (type_,)

    def _dtype(self, node: Node) -> DType:
        return node.input(0).dtype

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        """`share` holds dY divided by the number of equal elements, for each element of Y."""
        output = node.outputs[0]
        requests = [scratch("share", (output.elements,), output.dtype)]
        requests.append(block("partial", output.elements, output.dtype))
        return BackwardNeeds(inputs=frozenset({0}), outputs=frozenset({0}), scratch=tuple(requests))


OPERATORS: tuple[OperationType, ...] = (*named(_Reduction, "ReduceMean", "ReduceSum"), _ReduceMax())
