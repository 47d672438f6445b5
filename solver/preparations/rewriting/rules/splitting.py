"""A fused activation by itself again."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from solver.graph.types import AttributeValue, Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["SplitActivation", "activation_apart"]


class SplitActivation(Rule):
    """f(X) with an activation is act(f(X)): `FuseActivation` backwards, with the same algebra.

    A product that fuses its activation reads Y until its last derivative is done, and stages dY act'(Y)
    beside dY. By itself the activation is through with Y and dY before the product's derivatives begin:

        fused       X  W  Y  dY  staged  dW          apart       Y  dY  dZ   then   X  W  dZ  dW
    """

    name: ClassVar[str] = "split-activation"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING
    adds_operations: ClassVar[bool] = True

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.attributes.get("activation", "None") == "None":
            return None
        return Edit((operation.id,), activation_apart(around, operation))


def activation_apart(around: Surroundings, operation: Operation) -> tuple[Operation, Operation]:
    """An operation with a fused activation as two."""
    attributes = dict(operation.attributes)
    type_, bounds = _APART[str(attributes.pop("activation"))]
    linear = around.new_operand(f"{operation.id}.linear")
    inner = Operation(operation.id, operation.type, operation.inputs, (linear,), attributes)
    name = around.new_operation(f"{operation.id}.activation")
    return inner, Operation(name, type_, (linear,), operation.outputs, bounds)


_APART: Mapping[str, tuple[str, Mapping[str, AttributeValue]]] = MappingProxyType(
    {
        "Relu": ("Relu", {}),
        "Relu6": ("Clip", {"min": 0.0, "max": 6.0}),
        "Sigmoid": ("Sigmoid", {}),
        "Tanh": ("Tanh", {}),
    }
)
