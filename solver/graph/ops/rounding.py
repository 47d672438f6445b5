"""Steps: functions of one operand that are constant almost everywhere, and have no derivative.

PyTorch gives them the derivative 0, which trains nothing either: what reaches the loss through them alone is
refused as a parameter.
"""

from __future__ import annotations

from typing import ClassVar

from solver.graph.ops.base import InPlace, Node, NoDerivative, OperationType, named
from solver.graph.ops.helpers.shared import same_floating
from solver.graph.types import TensorType

__all__ = ["OPERATORS"]


class _Rounding(NoDerivative):
    arity: ClassVar[tuple[int, int]] = (1, 1)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        return (node.input(0),)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return (InPlace("x0", "y0"),)


class _Round(_Rounding):
    """Rounds to the nearest whole number, halves to the even one."""

    name = "Round"


OPERATORS: tuple[OperationType, ...] = (
    *(*named(_Rounding, "Floor", "Ceil"), _Round(), *named(_Rounding, "Sign")),
)
