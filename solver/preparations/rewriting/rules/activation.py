"""An activation behind an operator that can apply it to its own output."""

from __future__ import annotations

from typing import ClassVar

from solver.graph.ops import lookup
from solver.graph.types import Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["FuseActivation"]

_SAME_NAME = frozenset({"Relu", "Sigmoid", "Tanh"})


class FuseActivation(Rule):
    """act(f(X)) is f(X) with `activation` act: Relu, Sigmoid, Tanh, and Clip to [0, 6], which is Relu6.

    Every one of them is differentiable from its output alone, so the operator multiplies dY by act'(Y)
    where it used to be given the product. Values are those of the same kernel run in place. Gradients
    may round differently: the operator stages the product chunk by chunk, and where that makes the
    chunks smaller, a sum over them is cut elsewhere. Sigmoid and Tanh may differ in the last bit, where
    NumPy's loops over gaps are not those over dense memory.
    Not where something else reads f(X), or it has an activation already.
    """

    name: ClassVar[str] = "fuse-activation"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        activation = _activation(around, operation)
        if activation is None:
            return None
        inner = around.feeding(operation.inputs[0])
        if inner is None or not lookup(inner.type).fuses_activation:
            return None
        if around.nodes[inner.id].attributes["activation"] != "None":
            return None
        attributes = {**inner.attributes, "activation": activation}
        fused = Operation(inner.id, inner.type, inner.inputs, operation.outputs, attributes)
        return Edit((inner.id, operation.id), (fused,))


def _activation(around: Surroundings, operation: Operation) -> str | None:
    """The name under which an operator would fuse it."""
    if operation.type in _SAME_NAME:
        return operation.type
    return "Relu6" if operation.type == "Clip" and _bounds(around, operation) == (0.0, 6.0) else None


def _bounds(around: Surroundings, clip: Operation) -> tuple[float | None, float | None]:
    """Attributes or constant inputs; None for what is unbounded, or bounded by what is not a constant."""
    node = around.nodes[clip.id]

    def bound(position: int, key: str) -> float | None:
        if not node.has_input(position):
            attribute: float | None = node.attributes[key]
            return attribute
        value = around.constant(clip.inputs[position])
        return None if value is None else float(value.reshape(()))

    return bound(1, "min"), bound(2, "max")
