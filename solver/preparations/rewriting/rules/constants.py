"""Operations on constants, computed once."""

from __future__ import annotations

from typing import ClassVar

from solver.graph.types import Initializer, Operand, Operation, Role
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import RANDOM, Surroundings

__all__ = ["FoldConstants"]

#: Bytes by which outputs may exceed the constants they are computed from: planning stays small.
_GROWTH = 1024 * 1024

#: Work that can exceed the size of its operands a thousandfold.
_COSTLY = frozenset({"AveragePool", "Conv", "ConvTranspose", "MaxPool"})


class FoldConstants(Rule):
    """Y = f(constants) is a constant, with the very bits that the kernel of f gives.

    No derivative goes through it: no parameter stands before it. Parameters are never folded, not even
    frozen ones: a checkpoint may bring other values. Nor is what draws random numbers, what updates a
    state, and what slides windows. Quantised weights stay as small as they are stored.
    """

    name: ClassVar[str] = "fold-constants"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.BITWISE

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type in RANDOM | _COSTLY or not around.changes_nothing_else(operation):
            return None
        if any(name in around.kept for name in operation.outputs):
            return None
        if not all(map(around.is_constant, filter(None, operation.inputs))):
            return None
        inputs = [around.constant(name) if name else None for name in operation.inputs]
        node = around.nodes[operation.id]
        if operation.type == "DequantizeLinear" and node.outputs[0].nbytes > node.input(0).nbytes:
            return None
        size = sum(value.nbytes for value in inputs if value is not None)
        if sum(type_.nbytes for type_ in node.outputs) > size + _GROWTH:
            return None
        values = around.arithmetic.outputs(node, inputs)
        constants = tuple(
            Operand(name, type_, Role.CONSTANT, Initializer("values", value.tobytes()))
            for name, type_, value in zip(operation.outputs, node.outputs, values, strict=True)
        )
        return Edit((operation.id,), constants=constants)
