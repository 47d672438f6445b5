"""Binary arithmetic with broadcasting. Every operator reads the least that its derivatives need.

    Y = A + B    dA = dZ         dB = dZ
    Y = A - B    dA = dZ         dB = -dZ
    Y = A * B    dA = dZ B       dB = dZ A
    Y = A / B    dA = dZ / B     dB = -dZ A / B^2
    Y = A ^ B    dA = dY B A^(B-1)   dB = dY Y log A

Sums, differences and products may be of integers as well, which have no derivative and fuse no activation.
dZ is dY behind the fused activation, which is inverted from Y. A derivative is summed over the
axes along which its operand was broadcast, block by block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import ClassVar

from solver.graph.ops.base import BackwardNeeds, InPlace, Node, OperationType
from solver.graph.ops.helpers.shared import block, broadcast_shape, same_floating
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS"]


class _Binary(OperationType):
    arity: ClassVar[tuple[int, int]] = (2, 2)
    fuses_activation = True
    #: Position of a derivative -> positions of the inputs that it is computed from.
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset(), 1: frozenset()}
    #: Whether integers are taken, too.
    of_integers: ClassVar[bool] = False

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = _integers(node) if self.of_integers else None
        dtype = dtype or same_floating(node, (0, 1))
        return (TensorType(broadcast_shape(node, node.input(0), node.input(1)), dtype),)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return _promises(self, _fuses(node))

    def in_place_backward(self, fused: bool) -> tuple[InPlace, ...]:
        """The derivative of A is written before dZ is read for that of B; `fused`, dZ is not dY's memory."""
        return (InPlace("dy0", "dx0", alone=not fused), InPlace("dy0", "dx1"))

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        fused = _fuses(node)
        output = node.outputs[0]
        summed = [
            node.input(i).elements for i in sorted(derivatives) if node.input(i).elements < output.elements
        ]
        requests = [block("term", output.elements, output.dtype)]
        if fused:
            requests.append(block("inner", output.elements, output.dtype))
        if summed:
            requests.append(block("partial", max(summed), output.dtype))
        return BackwardNeeds(
            inputs=frozenset().union(*(self.reads[i] for i in derivatives)),
            outputs=frozenset({0}) if fused else frozenset(),
            scratch=tuple(requests),
        )

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        """Inputs that do not reach a derivative: all but those that it would have read by itself."""
        return frozenset() if forward else _unread(self, slot)


@cache
def _promises(kind: _Binary, fused: bool) -> tuple[InPlace, ...]:
    return (InPlace("x0", "y0"), InPlace("x1", "y0"), *kind.in_place_backward(fused))


@cache
def _unread(kind: _Binary, slot: str) -> frozenset[str]:
    """The inputs that a derivative is not computed from; there are two derivatives."""
    read = next((positions for i, positions in kind.reads.items() if slot == f"dx{i}"), {0, 1})
    return frozenset(f"x{i}" for i in {0, 1} - read)


class _Add(_Binary):
    name = "Add"
    of_integers = True

    def in_place_backward(self, fused: bool) -> tuple[InPlace, ...]:
        if fused:
            return super().in_place_backward(fused)
        return (InPlace("dy0", "dx0", view=True), InPlace("dy0", "dx1", view=True))


class _Sub(_Binary):
    name = "Sub"
    of_integers = True

    def in_place_backward(self, fused: bool) -> tuple[InPlace, ...]:
        if fused:
            return super().in_place_backward(fused)
        return (InPlace("dy0", "dx0", view=True), InPlace("dy0", "dx1"))


class _Mul(_Binary):
    name = "Mul"
    of_integers = True
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset({1}), 1: frozenset({0})}


class _Div(_Binary):
    name = "Div"
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset({1}), 1: frozenset({0, 1})}


class _Pow(_Binary):
    """A to the power of B. A B of integers has no derivative.

    The slope in A is 0 wherever B is 0, and the slope in B is 0 wherever A is 0, infinities left out.
    It fuses no activation: the derivative of B reads Y itself.
    """

    name = "Pow"
    fuses_activation = False
    reads: ClassVar[Mapping[int, frozenset[int]]] = {0: frozenset({0, 1}), 1: frozenset({0})}

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ()

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if node.input(1).dtype is DType.BOOL:
            raise node.mismatch("expected numbers as exponent")
        dtype = same_floating(node, (0, 1) if node.input(1).dtype.is_floating else (0,))
        return (TensorType(broadcast_shape(node, node.input(0), node.input(1)), dtype),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        needs = super().backward(node, derivatives)
        return replace(needs, outputs=frozenset({0} if 1 in derivatives else ()))

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        ignored = super().ignores(node, forward, slot)
        return ignored | {"y0"} if slot == "dx0" else ignored


def _integers(node: Node) -> DType | None:
    """The one integer type of both operands, if they have one."""
    left, right = node.input(0).dtype, node.input(1).dtype
    whole = left is right and not left.is_floating and left is not DType.BOOL
    return left if whole and not _fuses(node) else None


def _fuses(node: Node) -> bool:
    return bool(node.attributes.get("activation", "None") != "None")


OPERATORS: tuple[OperationType, ...] = (_Add(), _Sub(), _Mul(), _Div(), _Pow())
