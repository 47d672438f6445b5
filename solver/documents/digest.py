"""The digests that tie a plan to its graph and to its reference program."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
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
    found = {id(value.type): value.type for value in program.values}
    types = {number: f"{type_.dtype.value}{type_.shape}" for number, type_ in found.items()}
    rows: list[object] = [
        ("program", program.name, program.period),
        [(space.name, space.alignment, space.addressable) for space in program.spaces],
        [(v.label, types[id(v.type)], v.kind.word, v.origin, v.space) for v in program.values],
        _Verbatim(f"[{', '.join(_nodes(program.operations))}]"),
        [
            (
                (s.operation, s.phase.word, s.part, s.due, s.reference, s.level, s.until),
                [(b.slot, b.value, b.access.word) for b in s.bindings],
            )
            for s in program.steps
        ],
        [(entry.value, entry.kind.word, entry.reference) for entry in program.entry],
        [(exit_.value, exit_.reference) for exit_ in program.exit],
        [(a.value, a.source, a.step, a.view, a.offset) for a in program.aliases],
        [(value, repr(initial)) for value, initial in sorted(program.initial.items())],
    ]
    return hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest()


class _Verbatim(str):
    """Text of a row that is written already."""

    __slots__ = ()
    __repr__ = str.__str__


def _nodes(nodes: Sequence[Node]) -> Iterator[str]:
    """What decides what a kernel computes, as the text of plain values.

    Updates of all weights have one mapping of attributes, types are shared as well: each is written once.
    """
    types: dict[int, str] = {}
    attributes: dict[int, str] = {}
    for node in nodes:
        given = node.operation
        for type_ in (*node.inputs, *node.outputs):
            if id(type_) not in types:
                types[id(type_)] = repr(type_ and (type_.shape, type_.dtype.value))
        if id(node.attributes) not in attributes:
            attributes[id(node.attributes)] = repr(sorted(node.attributes.items()))
        named = (given.id, given.type, given.inputs, given.outputs, node.scratch_budget)
        inputs = ", ".join([types[id(type_)] for type_ in node.inputs])
        outputs = ", ".join([types[id(type_)] for type_ in node.outputs])
        shared = attributes[id(node.attributes)]
        yield (
            f"({named!r}, [{inputs}], [{outputs}], {shared}, {node.constants!r},"
            f" {sorted(node.floats.items())!r})"
        )
