"""States: what an operation changes in place has one reader, so that no order of steps is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from solver.errors import StateError
from solver.graph.ops import signature
from solver.graph.ops.base import Node
from solver.graph.types import Operand, Operation, Role

__all__ = ["check_states"]


def check_states(
    operations: Sequence[Operation], typed: Mapping[str, Operand], nodes: Mapping[str, Node]
) -> None:
    """Checks that operations update states alone, each of which no other input of any operation names.

    Another reader would see the old or the new value, as the execution order has it. States that no
    operation updates may be read anywhere. Raises StateError at the input. Linear.
    """
    readers = Counter(name for operation in operations for name in operation.inputs if name)
    for i, operation in enumerate(operations):
        for k in sorted(signature(operation.type).updates(nodes[operation.id])):
            name, path = operation.inputs[k], ("operations", i, "inputs", k)
            update = f"Operation {operation.id!r} ({operation.type}) updates {name!r} in place"
            if typed[name].role is not Role.STATE:
                raise StateError(
                    f"{update}, whose role is {typed[name].role.value}.",
                    remedy="Declare it with the role state.",
                    path=path,
                )
            if readers[name] > 1:
                raise StateError(
                    f"{update}, and {_other(operations, operation, name)} it.",
                    remedy="A state that is updated is one input of one operation: give each its own.",
                    path=path,
                )


def _other(operations: Sequence[Operation], updater: Operation, name: str) -> str:
    """The other reader of a state, for a sentence."""
    others = (op for op in operations if op is not updater and name in op.inputs)
    other = next(others, None)
    return "another of its inputs is" if other is None else f"operation {other.id!r} ({other.type}) reads"
