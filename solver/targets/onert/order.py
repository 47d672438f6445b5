"""onert's backward order, and which buffer stands for a constant where an operation reads it."""

from __future__ import annotations

from collections.abc import Mapping

from solver.graph.types import DType, Operand, Operation, Role, TrainableGraph

__all__ = ["constant_buffers", "essential_backward_order"]


def essential_backward_order(graph: TrainableGraph) -> tuple[Operation, ...]:
    """Operations of the backward pass: reversed depth-first post-order from the loss.

    Operations that lead to no trainable parameter are dropped; without a loss all do.
    """
    if graph.loss is None:
        return ()
    defined_by = {name: operation for operation in graph.operations for name in operation.outputs}
    essential = _essential(graph)
    order = [op for op in _post_order(graph.loss, defined_by) if op.id in essential]
    return tuple(reversed(order))


def _post_order(loss: str, defined_by: Mapping[str, Operation]) -> list[Operation]:
    ordered: dict[str, Operation] = {}
    pending = [(defined_by[loss], False)]
    while pending:
        operation, expanded = pending.pop()
        if operation.id in ordered:
            continue
        if expanded:
            ordered[operation.id] = operation
            continue
        pending.append((operation, True))
        pending += [(defined_by[name], False) for name in reversed(operation.inputs) if name in defined_by]
    return list(ordered.values())


def _essential(graph: TrainableGraph) -> frozenset[str]:
    """Operations that read a trainable parameter, or something computed from one."""
    varying = set(graph.trainable)
    essential = set()
    for operation in graph.operations:
        if varying.intersection(operation.inputs):
            varying.update(operation.outputs)
            essential.add(operation.id)
    return frozenset(essential)


def constant_buffers(graph: TrainableGraph, *, shared: bool) -> dict[tuple[str, str], str]:
    """Buffer of a constant or parameter, by operation and name, in the order of operations.

    The runtime unties weights: each further operation that reads one has a copy of its own.
    With `shared`, constants of equal values are one buffer.
    """
    buffers: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    by_value: dict[tuple[DType, tuple[int, ...], bytes], str] = {}
    for operation in graph.operations:
        for name in dict.fromkeys(operation.inputs):
            if not name or graph.operands[name].role not in (Role.PARAMETER, Role.CONSTANT):
                continue
            buffer = f"{name}@copy.{operation.id}" if name in taken else name
            taken.add(name)
            value = _value(graph.operands[name]) if shared else None
            buffers[operation.id, name] = by_value.setdefault(value, buffer) if value else buffer
    return buffers


def _value(operand: Operand) -> tuple[DType, tuple[int, ...], bytes] | None:
    data = operand.initializer.data if operand.initializer else None
    return None if operand.role is Role.PARAMETER or data is None else (operand.dtype, operand.shape, data)
