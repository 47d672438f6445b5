"""Dropout: elements become zero at random, the others grow so that the mean stays (Srivastava et al., 2014).

Which ones is a function of seed, operation, number of the iteration and index of the element, so that a
replay of the step drops the same ones. The backward step makes the mask again, block by block: a saved mask
would take a byte an element from the forward to the backward pass, and to make it anew takes less than two
nanoseconds an element.

Ratio is an attribute, as it was in ONNX up to opset 10. There is no inference here: 0 is the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import (
    ELEMENTWISE,
    Attribute,
    BackwardNeeds,
    InPlace,
    Node,
    OperationType,
    ScratchRequest,
    scratch,
)
from solver.graph.ops.helpers.shared import bad_attribute, same_floating
from solver.graph.types import DType, TensorType

__all__ = ["BLOCK", "OPERATORS"]

#: Elements at a time, an even number: five arrays of 64 KiB or less in float32 stay in the cache.
BLOCK = 16 * 1024


class _Dropout(OperationType):
    name = "Dropout"
    arity: ClassVar[tuple[int, int]] = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "ratio": Attribute("float", default=0.5, minimum=0.0),
        "seed": Attribute("int", default=0, minimum=0),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        if not node.attributes["ratio"] < 1:
            raise bad_attribute(node, "ratio", "must be less than 1")
        return (node.input(0),)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ELEMENTWISE

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        """Two elements take one integer of 64 bits; `words` are integers of the size of an element."""
        if not node.attributes["ratio"]:
            return ()
        count, dtype = min(BLOCK, node.input(0).elements), node.input(0).dtype
        pairs = tuple(scratch(name, (-(-count // 2),), DType.INT64) for name in ("counters", "bits", "work"))
        words = scratch("words", (count,), DType.INT64 if dtype is DType.FLOAT64 else DType.INT32)
        return (*pairs, scratch("dropped", (count,), DType.BOOL), words)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds(scratch=self.forward_scratch(node))


OPERATORS: tuple[OperationType, ...] = (_Dropout(),)
