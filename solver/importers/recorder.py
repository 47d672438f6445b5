"""A forward graph in the making: operands that are declared, and operations that are typed as they come."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from solver.graph import (
    DeclaredOperand,
    Initializer,
    Operand,
    Operation,
    Role,
    TensorType,
    output_types,
)
from solver.graph.nodes import resolve
from solver.graph.ops import signature

__all__ = ["GraphRecorder"]


class GraphRecorder:
    """What the importers of models write to. Names are given by the caller, each of them once."""

    def __init__(self) -> None:
        self.operands: dict[str, DeclaredOperand] = {}
        self.operations: list[Operation] = []
        self.types: dict[str, Operand] = {}

    def put(
        self,
        name: str,
        role: Role,
        type_: TensorType,
        initializer: Initializer | None = None,
        *,
        trainable: bool = True,
    ) -> None:
        """An operand that no operation defines."""
        self.operands[name] = DeclaredOperand(
            name, role, type_.shape, type_.dtype, initializer, trainable=trainable
        )
        self.types[name] = Operand(name, type_, role, initializer)

    def record(self, operation: Operation) -> tuple[TensorType, ...]:
        """Add an operation; the types of its outputs. An output that is not wanted has no name.

        Raises GraphError for operands that do not fit.
        """
        found = output_types(operation, self.types)
        self.operations.append(operation)
        for name, type_ in zip(operation.outputs, found, strict=True):
            if name:
                self.types[name] = Operand(name, type_, Role.INTERMEDIATE)
        return found

    def keep(self, wanted: Collection[str]) -> None:
        """Drop operations and operands that the operands `wanted` do not depend on. Linear."""
        needed, kept = set(wanted), []
        for operation in reversed(self.operations):
            if needed.intersection(filter(None, operation.outputs)):
                kept.append(operation)
                needed.update(operation.inputs)
        self.operations[:] = reversed(kept)
        for name in [name for name in self.operands if name not in needed]:
            del self.operands[name]

    def freeze(self, loss: str) -> list[str]:
        """Parameters that reach the loss only where nothing has a derivative; they are not trained then."""
        reached = {loss}
        for operation in reversed(self.operations):
            if reached.intersection(operation.outputs):
                positions = signature(operation.type).differentiable(resolve(operation, self.types))
                reached.update(operation.inputs[i] for i in positions)
        frozen = [
            operand
            for operand in self.operands.values()
            if operand.role is Role.PARAMETER and operand.trainable and operand.id not in reached
        ]
        for operand in frozen:
            self.operands[operand.id] = replace(operand, trainable=False)
        return [operand.id for operand in frozen]
