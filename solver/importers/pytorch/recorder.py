"""Operands and operations of a graph in the making, typed as they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.graph import (
    Array,
    AttributeValue,
    DType,
    Initializer,
    Operation,
    Role,
    TensorType,
)
from solver.importers.recorder import GraphRecorder

__all__ = ["Recorder", "Value"]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the graph; `constant` holds PyTorch's tensor where its elements are known."""

    name: str
    type: TensorType
    constant: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.type.shape)


class Recorder(GraphRecorder):
    """Collects what a graph is built from. Names are unique; `scope` begins those of operations.

    `learned` are the operands that depend on parameters which are trained.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scope = ""
        self.learned: set[str] = set()
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}

    def name(self, preferred: str) -> str:
        """`preferred`, with a number behind it where that is taken."""
        preferred = preferred.replace("@", "_")
        name = preferred
        while name in self._names:
            self._counts[preferred] = self._counts.get(preferred, 1) + 1
            name = f"{preferred}_{self._counts[preferred]}"
        self._names.add(name)
        return name

    def declare(
        self,
        name: str,
        role: Role,
        type_: TensorType,
        initializer: Initializer | None = None,
        *,
        trainable: bool = True,
    ) -> Value:
        """An operand that no operation defines."""
        name = self.name(name)
        self.put(name, role, type_, initializer, trainable=trainable)
        if role is Role.PARAMETER and trainable:
            self.learned.add(name)
        return Value(name, type_)

    def constant(self, name: str, values: Array, known: Any = None) -> Value:
        """An operand that never changes."""
        type_ = TensorType(values.shape, DType(values.dtype.name))
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        operand = self.declare(name, Role.CONSTANT, type_, Initializer("values", data=little.tobytes()))
        return Value(operand.name, type_, known)

    def integers(self, what: str, values: Sequence[int]) -> Value:
        """A constant list of integers, called after the operation that is about to be recorded."""
        return self.constant(f"{self.scope}.{what}", np.array(values, np.int64))

    def apply(self, type_: str, *inputs: Value | None, **attributes: AttributeValue) -> Value:
        """Record an operation with one output. None stands for an optional input that is left out."""
        return self.apply_many(type_, inputs, ("out",), **attributes)[0]

    def apply_many(
        self, type_: str, inputs: Sequence[Value | None], outputs: Sequence[str], **attributes: AttributeValue
    ) -> tuple[Value, ...]:
        """Record an operation; an output that is not needed is the empty string, and not among the results.

        Raises a GraphError for types that do not fit.
        """
        name = self.name(self.scope)
        named = [self.name(f"{name}.{output}") if output else "" for output in outputs]
        operation = Operation(
            name, type_, tuple([x.name if x else "" for x in inputs]), tuple(named), attributes
        )
        types = self.record(operation)
        if self.learned.intersection(operation.inputs):
            self.learned.update(operation.outputs)
        return tuple(Value(*pair) for pair in zip(named, types, strict=True) if pair[0])
