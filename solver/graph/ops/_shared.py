"""What several families share: checks of element types, axes, and the size of a block of scratch."""

from __future__ import annotations

import math
from collections.abc import Iterable

from solver.errors import AttributeRuleError
from solver.graph.ops.base import Node, ScratchRequest, scratch
from solver.graph.types import DType, TensorType

__all__ = [
    "BLOCK_ELEMENTS",
    "axis_in_range",
    "bad_attribute",
    "block",
    "broadcast_shape",
    "same_floating",
]

#: Elements that an element-wise kernel treats at a time when it needs an intermediate value: 128 KiB
#: of float32, so that operands and scratch of one block stay in the second-level cache together.
BLOCK_ELEMENTS = 32 * 1024


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
    found = {node.input(i).dtype for i in positions if node.has_input(i)}
    if len(found) != 1 or not all(dtype.is_floating for dtype in found):
        raise node.mismatch("expected operands of one floating element type")
    return found.pop()


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
