"""Functions of one operand from a calculator.

Exp Sqrt Reciprocal    their slope is a function of Y, which the backward step reads
Log Abs Erf            it reads X
Sin Cos Softplus
Asin Acos Atan         it reads X
Asinh Acosh Atanh
Neg                    it reads neither
"""

from __future__ import annotations

from solver.graph.ops.base import BackwardNeeds, InPlace, Node, OperationType, named
from solver.graph.ops.helpers.elementwise import MASK, Elementwise

__all__ = ["OPERATORS"]


class _OfInput(Elementwise):
    def reads_input(self, node: Node) -> bool:
        return True


class _Abs(_OfInput):
    """The slope at 0 is 0."""

    name = "Abs"


class _Erf(_OfInput):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to X."""

    name = "Erf"

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        """Backward only: the forward kernel reads the sign of X after it has written Y."""
        return (InPlace("dy0", "dx0"),)

    def forward_blocks(self, node: Node) -> tuple[str, ...]:
        return ("square", "inner", "work", MASK)


class _Softplus(_OfInput):
    """log(1 + exp(X)), which does not overflow. X stays: where Y is tiny it does not tell the slope."""

    name = "Softplus"


class _Neg(Elementwise):
    name = "Neg"

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds()


OPERATORS: tuple[OperationType, ...] = (
    *(*named(Elementwise, "Exp"), *named(_OfInput, "Log"), *named(Elementwise, "Sqrt", "Reciprocal")),
    *(_Neg(), _Abs(), _Erf(), *named(_OfInput, "Sin", "Cos"), _Softplus()),
    *named(_OfInput, "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"),
)
