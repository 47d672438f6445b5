"""Facts about a graph for rules: who defines an operand, who reads it, and its value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import Protocol

from solver.graph.nodes import graph_nodes
from solver.graph.ops import lookup
from solver.graph.ops.base import Node
from solver.graph.types import Array, Operand, Operation, Role, TrainableGraph

__all__ = ["LARGEST_SPELT_OUT", "RANDOM", "Arithmetic", "Surroundings"]

#: Operators that draw anew in each iteration, and differently in each operation.
RANDOM = frozenset({"Dropout", "RandomUniform"})

#: Constants that the document does not spell out, but names by a scheme, are computed up to this size:
#: so a small document cannot ask for a large array.
LARGEST_SPELT_OUT = 64 * 1024


class Arithmetic(Protocol):
    """Values of constants and of operations on them, as the executor computes them."""

    def value(self, operand: Operand) -> Array:
        """The first value of a constant."""

    def outputs(self, node: Node, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """The outputs of the forward kernel of the operation for these inputs."""


class Surroundings:
    """Indexes of one graph. Making it is linear, every question takes constant time."""

    def __init__(self, graph: TrainableGraph, arithmetic: Arithmetic) -> None:
        self.graph = graph
        self.arithmetic = arithmetic
        self.nodes = graph_nodes(graph)
        #: Operands whose names and values the caller asks for.
        self.kept = frozenset(graph.results)
        self._defined_by = {name: op for op in graph.operations for name in op.outputs}
        self._readers: dict[str, list[Operation]] = {}
        for operation in graph.operations:
            for name in filter(None, operation.inputs):
                self._readers.setdefault(name, []).append(operation)

    @cached_property
    def operation_ids(self) -> frozenset[str]:
        return frozenset(op.id for op in self.graph.operations)

    @cached_property
    def dead(self) -> tuple[str, ...]:
        """Operations that neither the loss nor an output nor a state depends on, in order."""
        alive = self._alive()
        return tuple(op.id for op in self.graph.operations if op.id not in alive)

    def _alive(self) -> frozenset[str]:
        pending = [op for op in self.graph.operations if self._is_root(op)]
        alive = {op.id for op in pending}
        while pending:
            before = (self.definition(name) for name in pending.pop().inputs)
            new = {op.id: op for op in before if op is not None and op.id not in alive}
            alive |= set(new)
            pending += new.values()
        return frozenset(alive)

    def _is_root(self, operation: Operation) -> bool:
        """An output that no operation defines lives by its readers."""
        undefined = (name for name in operation.inputs if self.definition(name) is None)
        named = any(name in self.kept for name in (*operation.outputs, *undefined))
        return named or not self.changes_nothing_else(operation)

    def readers(self, name: str) -> Sequence[Operation]:
        """Operations that read an operand, one as often as it reads it."""
        return self._readers.get(name, ())

    def definition(self, name: str) -> Operation | None:
        """The operation that defines an operand, if one does."""
        return self._defined_by.get(name)

    def feeding(self, name: str) -> Operation | None:
        """The operation whose only output is `name`, where nothing else needs it than one reader once."""
        operation = self._defined_by.get(name)
        alone = operation is not None and len(operation.outputs) == 1 and len(self.readers(name)) == 1
        return operation if alone and name not in self.kept else None

    @cached_property
    def _first_alike(self) -> dict[tuple[object, ...], Operation]:
        return {self._likeness(op): op for op in reversed(self.graph.operations)}

    def _likeness(self, operation: Operation) -> tuple[object, ...]:
        """A key that two operations share only if they compute the same."""
        attributes = tuple(sorted(self.nodes[operation.id].attributes.items()))
        return operation.type, operation.inputs, len(operation.outputs), attributes

    def first_alike(self, operation: Operation) -> Operation:
        """The first operation of the same type, inputs and attributes, maybe itself."""
        return self._first_alike[self._likeness(operation)]

    def changes_nothing_else(self, operation: Operation) -> bool:
        """Whether its outputs are all that it does: it updates no state."""
        return not lookup(operation.type).updates(self.nodes[operation.id])

    def is_constant(self, name: str) -> bool:
        """Whether an operand is a constant, and not a large one that is not spelt out.

        A parameter is not one, even where it is never trained: checkpoints restore it. Nor is what is stored:
        its elements would take more memory than its bytes.
        """
        operand = self.graph.operands[name]
        if operand.role is not Role.CONSTANT or operand.initializer is None or operand.type.storage:
            return False
        return operand.initializer.data is not None or operand.type.nbytes <= LARGEST_SPELT_OUT

    def constant(self, name: str) -> Array | None:
        """The value of a constant."""
        return self.arithmetic.value(self.graph.operands[name]) if self.is_constant(name) else None

    def new_operation(self, stem: str) -> str:
        """A name that no operation has."""
        return next(name for name in _names(stem) if name not in self.operation_ids)

    def new_operand(self, stem: str) -> str:
        return next(name for name in _names(stem) if name not in self.graph.operands)


def _names(stem: str) -> Iterator[str]:
    return (f"{stem}.{number}" if number else stem for number in count())
