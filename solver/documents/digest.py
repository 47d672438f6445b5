"""The digests that tie a plan to its graph and to its reference program."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from solver.documents.graph import graph_to_dict
from solver.documents.parse import canonical_json
from solver.graph.ops.base import Node
from solver.graph.types import Operand, TrainableGraph
from solver.program import Program

__all__ = ["graph_digest", "reference_digest"]


def graph_digest(graph: TrainableGraph) -> str:
    """SHA-256, in hexadecimal, over everything that decides how the graph trains.

    That is operands with shapes and initializers, operations with the attributes that were given,
    loss, optimizer, trainable set and outputs; not the graph's title. Inline values enter by their own
    SHA-256, so that large weights are read once and never encoded.
    """
    slim = graph.with_graph(name="", operands={o.id: _without_data(o) for o in graph.operands.values()})
    content: dict[str, Any] = graph_to_dict(slim)
    content["values"] = {
        operand.id: hashlib.sha256(operand.initializer.data).hexdigest()
        for operand in graph.operands.values()
        if operand.initializer is not None and operand.initializer.data is not None
    }
    return hashlib.sha256(canonical_json(content)).hexdigest()


def _without_data(operand: Operand) -> Operand:
    if operand.initializer is None or operand.initializer.data is None:
        return operand
    return replace(operand, initializer=replace(operand.initializer, data=b""))


def reference_digest(program: Program) -> str:
    """SHA-256, in hexadecimal, over a text of everything that a program says. Linear.

    Rows of plain numbers and words in a fixed order, attributes by name; no table is needed to check one
    digest against another, so it takes a fraction of the time of a document.
    """
    types = {id(value.type): f"{value.type.dtype.value}{value.type.shape}" for value in program.values}
    rows: list[object] = [
        ("program", program.name, program.period),
        [(space.name, space.alignment, space.addressable) for space in program.spaces],
        [(v.label, types[id(v.type)], v.kind.value, v.origin, v.space) for v in program.values],
        [_node(node) for node in program.operations],
        [
            (
                (s.operation, s.phase.value, s.part, s.due, s.reference, s.level, s.until),
                [(b.slot, b.value, b.access.value) for b in s.bindings],
            )
            for s in program.steps
        ],
        [(entry.value, entry.kind.value, entry.reference) for entry in program.entry],
        [(exit_.value, exit_.reference) for exit_ in program.exit],
        [(a.value, a.source, a.step, a.view, a.offset) for a in program.aliases],
        [(value, repr(initial)) for value, initial in sorted(program.initial.items())],
    ]
    return hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest()


def _node(node: Node) -> tuple[object, ...]:
    """What decides what a kernel computes, as plain values."""
    given = node.operation
    return (
        (given.id, given.type, given.inputs, given.outputs, node.scratch_budget),
        [type_ and (type_.shape, type_.dtype.value) for type_ in node.inputs],
        [(type_.shape, type_.dtype.value) for type_ in node.outputs],
        sorted(node.attributes.items()),
        node.constants,
        sorted(node.floats.items()),
    )
