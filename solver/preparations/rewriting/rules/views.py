"""A shape given to a tensor that was just given another."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from solver.graph.types import DType, Initializer, Operand, Operation, Role, TensorType
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["JoinViews"]

#: Same elements, same order, another shape.
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


class JoinViews(Rule):
    """Reshape(Reshape(X)) = Reshape(X): the elements keep their order, so the first shape does not matter.

    The derivative is dY in the shape of X, whichever way it goes. The first one may have no other reader.
    """

    name: ClassVar[str] = "join-views"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.BITWISE

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type not in _VIEWS:
            return None
        inner = around.feeding(operation.inputs[0])
        if inner is None or inner.type not in _VIEWS:
            return None
        shape = _shape(around, operation)
        joined = Operation(operation.id, "Reshape", (inner.inputs[0], shape.id), operation.outputs)
        return Edit((inner.id, operation.id), (joined,), (shape,))


def _shape(around: Surroundings, operation: Operation) -> Operand:
    """The shape of the output as a constant, which takes no memory."""
    sizes = np.array(around.nodes[operation.id].outputs[0].shape, np.int64)
    return Operand(
        around.new_operand(f"{operation.id}.shape"),
        TensorType(sizes.shape, DType.INT64),
        Role.CONSTANT,
        Initializer("values", sizes.tobytes()),
    )
