"""Binary arithmetic with broadcasting. Every operator reads the least that its derivatives need.

    Y = A + B    dA = dZ         dB = dZ
    Y = A - B    dA = dZ         dB = -dZ
    Y = A * B    dA = dZ B       dB = dZ A
    Y = A / B    dA = dZ / B     dB = -dZ A / B^2
    Y = A ^ B    dA = dY B A^(B-1)   dB = dY Y log A

dZ is dY behind the fused activation, which is inverted from Y. A derivative is summed over the
axes along which its operand was broadcast, block by block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from solver.graph.ops._shared import block, broadcast_shape, same_floating
from solver.graph.ops.base import BackwardNeeds, Node, OperationType
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS"]


class _Binary(OperationType):
    arity: ClassVar[tuple[int, int]] = (2, 2)
    fuses_activation = True
    #: Position of a wanted derivative -> positions of the inputs that it is computed from.
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset(), 1: frozenset()}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = same_floating(node, (0, 1))
        return (TensorType(broadcast_shape(node, node.input(0), node.input(1)), dtype),)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        fused = node.attributes.get("activation", "None") != "None"
        output = node.outputs[0]
        summed = [node.input(i).elements for i in sorted(wanted) if node.input(i).elements < output.elements]
        requests = [block("term", output.elements, output.dtype)]
        if fused:
            requests.append(block("inner", output.elements, output.dtype))
        if summed:
            requests.append(block("partial", max(summed), output.dtype))
        return BackwardNeeds(
            inputs=frozenset().union(*(self.reads[i] for i in wanted)),
            outputs=frozenset({0}) if fused else frozenset(),
            scratch=tuple(requests),
        )


class _Add(_Binary):
    name = "Add"


class _Sub(_Binary):
    name = "Sub"


class _Mul(_Binary):
    name = "Mul"
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset({1}), 1: frozenset({0})}


class _Div(_Binary):
    name = "Div"
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset({1}), 1: frozenset({0, 1})}


class _Pow(_Binary):
    """A to the power of B, which may be of integers; then it has no derivative.

    The slope in A is 0 wherever B is 0, and the slope in B is 0 wherever A is 0, infinities left out.
    It fuses no activation: the derivative of B reads Y itself.
    """

    name = "Pow"
    fuses_activation = False
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset({0, 1}), 1: frozenset({0})}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if node.input(1).dtype is DType.BOOL:
            raise node.mismatch("expected numbers as exponent")
        dtype = same_floating(node, (0, 1) if node.input(1).dtype.is_floating else (0,))
        return (TensorType(broadcast_shape(node, node.input(0), node.input(1)), dtype),)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        needs = super().backward(node, wanted)
        return replace(needs, outputs=frozenset({0} if 1 in wanted else ()))


OPERATORS: tuple[OperationType, ...] = (_Add(), _Sub(), _Mul(), _Div(), _Pow())
