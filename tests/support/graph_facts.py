"""A graph as a flat table of facts, of which the rows of importers' tests state some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solver.graph import TrainableGraph

__all__ = ["assert_facts", "facts_of"]


def facts_of(graph: TrainableGraph) -> dict[str, Any]:
    """Types of operations, what is trained, and by name the shape, role, type and first values of operands.

    Of an operation ``fc`` the keys are ``fc()`` for its type, ``fc() inputs``, ``fc() shape`` of its first
    output, and its attributes as ``fc() transB``.
    """
    facts: dict[str, Any] = {
        "types": [operation.type for operation in graph.operations],
        "ids": [operation.id for operation in graph.operations],
        "trainable": graph.trainable,
        "outputs": graph.outputs,
        "loss": graph.loss,
    }
    for operand in graph.operands.values():
        kind = None if operand.initializer is None else operand.initializer.kind
        facts |= {operand.id: operand.shape, f"{operand.id} role": operand.role.value}
        facts |= {f"{operand.id} dtype": operand.dtype.value, f"{operand.id} kind": kind}
    for operation in graph.operations:
        name = f"{operation.id}()"
        facts |= {name: operation.type, f"{name} inputs": operation.inputs}
        facts[f"{name} attributes"] = dict(operation.attributes)
        facts[f"{name} shape"] = next((graph.operands[o].shape for o in operation.outputs if o), None)
        facts |= {f"{name} {key}": value for key, value in operation.attributes.items()}
    return facts


def assert_facts(graph: TrainableGraph, expected: Mapping[str, Any]) -> None:
    """The graph has these facts; an absent one is None."""
    facts = facts_of(graph)
    assert {key: facts.get(key) for key in expected} == dict(expected)
