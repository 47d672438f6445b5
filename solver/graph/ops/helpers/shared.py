"""Checks of element types and axes, and the size of a block of scratch, for several families."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from solver.errors import AttributeRuleError
from solver.graph.ops.base import Node, ScratchRequest, scratch
from solver.graph.types import DType, TensorType

__all__ = [
    "BLOCK_ELEMENTS",
    "IGNORED_IN_PRODUCTS",
    "attribute_or_input",
    "axis_in_range",
    "bad_attribute",
    "block",
    "broadcast_shape",
    "constant_input",
    "distinct_axes",
    "same_floating",
]

#: Elements that an element-wise kernel treats at a time when it needs an intermediate value: 128 KiB
#: of float32, so that operands and scratch of one block stay in the second-level cache together.
BLOCK_ELEMENTS = 32 * 1024


#: For y = x0 x1 + x2: the inputs that each derivative does not depend on.
IGNORED_IN_PRODUCTS: Mapping[str, frozenset[str]] = {
    "dx0": frozenset({"x0"}),
    "dx1": frozenset({"x1"}),
    "dx2": frozenset({"x0", "x1"}),
}


def block(name: str, elements: int, dtype: DType) -> ScratchRequest:
    """One-dimensional scratch for a block of `elements`, at most `BLOCK_ELEMENTS`."""
    return scratch(name, (min(BLOCK_ELEMENTS, elements),), dtype)


def bad_attribute(node: Node, key: str, what: str) -> AttributeRuleError:
    """Error that names the operation, the attribute and its value."""
    return AttributeRuleError(
        f"Attribute {key!r} of operation {node.operation.id!r} ({node.operation.type}) is "
        f"{node.attributes[key]!r}, but it {what}.",
        remedy="Correct the attribute or the shape of the input.",
        path=("attributes", key),
    )


def same_floating(node: Node, positions: Iterable[int]) -> DType:
    """The one floating element type of the inputs at `positions`; absent ones are passed over.

    Raises ShapeMismatchError when they differ or are integers.
    """
    dtypes = {node.input(i).dtype for i in positions if node.has_input(i)}
    if len(dtypes) != 1 or not all(dtype.is_floating for dtype in dtypes):
        raise node.mismatch("expected operands of one floating element type")
    return dtypes.pop()


def axis_in_range(node: Node, key: str, axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises AttributeRuleError when the input has no such axis."""
    if not -rank <= axis < rank:
        raise bad_attribute(node, key, f"must lie in [{-rank}, {rank - 1}] for an input of rank {rank}")
    return axis % rank


def broadcast_shape(node: Node, left: TensorType, right: TensorType) -> tuple[int, ...]:
    """Shape of both broadcast against each other, as NumPy and ONNX do it."""
    rank = max(len(left.shape), len(right.shape))
    shapes = [(1,) * (rank - len(type_.shape)) + type_.shape for type_ in (left, right)]
    if any(a != b and 1 not in (a, b) for a, b in zip(*shapes, strict=True)):
        raise node.mismatch("expected shapes that broadcast against each other")
    return tuple(math.prod({a, b}) for a, b in zip(*shapes, strict=True))


def constant_input(node: Node, position: int, what: str) -> tuple[int, ...]:
    """Elements of a constant integer input. Raises ShapeMismatchError when it is not one."""
    node.input(position)
    values = node.constants[position]
    if values is None:
        raise node.mismatch(f"expected {what} (input {position}) to be a constant integer tensor")
    return values


def attribute_or_input(node: Node, key: str, position: int) -> tuple[int, ...] | None:
    """Integers from a constant input or, as older versions of ONNX have it, from an attribute.

    Raises AttributeRuleError when they are given twice.
    """
    values: tuple[int, ...] | None = node.attributes[key]
    if not node.has_input(position):
        return values
    if values is not None:
        raise bad_attribute(node, key, f"is also given as input {position}; give it once")
    return constant_input(node, position, f"the {key}")


def distinct_axes(node: Node, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front. Raises ShapeMismatchError for axes out of range or repeated."""
    numbers = list(axes)
    if any(not -rank <= axis < rank for axis in numbers):
        raise node.mismatch(f"the axes {numbers} must lie in [{-rank}, {rank - 1}]")
    distinct = tuple(axis % rank for axis in numbers)
    if len(set(distinct)) != len(distinct):
        raise node.mismatch(f"the axes {numbers} name an axis twice")
    return distinct
