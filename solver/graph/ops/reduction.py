"""Reductions along axes. The backward pass spreads dY and reads neither X nor Y."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops._shared import bad_attribute, block, same_floating
from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "kept_shape", "reduced_axes"]


def reduced_axes(node: Node) -> frozenset[int]:
    """Axes that a reduction removes, from the attribute or from constant input 1.

    No axes means all of them, or none with `noop_with_empty_axes`. Raises AttributeRuleError for
    axes given twice, ShapeMismatchError for axes out of range or repeated.
    """
    rank, axes = len(node.input(0).shape), node.attributes["axes"]
    if node.has_input(1):
        if axes is not None:
            raise bad_attribute(node, "axes", "is also given as input 1; give it once")
        axes = node.constants[1]
        if axes is None:
            raise node.mismatch("expected the axes (input 1) to be a constant integer tensor")
    if not axes:
        return frozenset() if node.attributes["noop_with_empty_axes"] else frozenset(range(rank))
    if any(not -rank <= axis < rank for axis in axes):
        raise node.mismatch(f"the axes {list(axes)} must lie in [{-rank}, {rank - 1}]")
    found = frozenset(axis % rank for axis in axes)
    if len(found) != len(axes):
        raise node.mismatch(f"the axes {list(axes)} name an axis twice")
    return found


def kept_shape(node: Node) -> tuple[int, ...]:
    """Shape of the output with every reduced axis kept as 1."""
    axes = reduced_axes(node)
    return tuple(1 if i in axes else size for i, size in enumerate(node.input(0).shape))


class _ReduceMean(OperationType):
    """Mean along axes, as since opset 18; the older attribute `axes` is taken too."""

    name = "ReduceMean"
    arity = (1, 2)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "axes": Attribute("ints"),
        "keepdims": Attribute("int", default=1, choices=(0, 1)),
        "noop_with_empty_axes": Attribute("int", default=0, choices=(0, 1)),
    }
    constant_inputs = frozenset({1})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = same_floating(node, (0,))
        axes, shape = reduced_axes(node), kept_shape(node)
        if not node.attributes["keepdims"]:
            shape = tuple(size for i, size in enumerate(shape) if i not in axes)
        return (TensorType(shape, dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        if not reduced_axes(node):
            return ()
        return (block("partial", node.outputs[0].elements, node.outputs[0].dtype),)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds()


OPERATORS: tuple[OperationType, ...] = (_ReduceMean(),)
