"""Functions of one operand, element by element: what each says beyond its name."""

from __future__ import annotations

from typing import ClassVar

from solver.graph.ops.base import ELEMENTWISE, BackwardNeeds, InPlace, Node, OperationType, ScratchRequest
from solver.graph.ops.helpers.shared import block, same_floating
from solver.graph.types import DType, TensorType

__all__ = ["MASK", "Elementwise", "blocks"]

#: The one block that holds truth values.
MASK = "mask"


def blocks(names: tuple[str, ...], output: TensorType) -> tuple[ScratchRequest, ...]:
    """A block of scratch for each name, of the output's element type unless it is the mask."""
    return tuple(block(name, output.elements, DType.BOOL if name == MASK else output.dtype) for name in names)


class Elementwise(OperationType):
    """Y has the type of X. The backward step reads Y or X, and multiplies dY with a factor by blocks.

    An operator reads Y where its derivative is a function of Y. Where it is not, X itself has to
    stay: two values of X may share one Y and differ in slope.
    """

    arity: ClassVar[tuple[int, int]] = (1, 1)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        return (node.input(0),)

    def reads_input(self, node: Node) -> bool:
        """Whether the backward step reads X; otherwise it reads Y."""
        return False

    def forward_blocks(self, node: Node) -> tuple[str, ...]:
        """Names of the blocks of the forward step, in the order in which its kernel takes them."""
        return ()

    def backward_blocks(self, node: Node) -> tuple[str, ...]:
        """The same for the backward step; the first is the factor."""
        return ("factor",)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ELEMENTWISE

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return blocks(self.forward_blocks(node), node.input(0))

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        read, scratch = frozenset({0}), blocks(self.backward_blocks(node), node.input(0))
        if self.reads_input(node):
            return BackwardNeeds(inputs=read, scratch=scratch)
        return BackwardNeeds(outputs=read, scratch=scratch)
