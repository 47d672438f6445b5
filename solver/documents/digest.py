"""The digests that tie a plan to its graph and to its reference program."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from solver.documents.graph import graph_to_dict
from solver.documents.parse import canonical_json
from solver.documents.program_tables import program_tables
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
    """SHA-256, in hexadecimal, over the tables of a program, as a plan document carries them. Linear."""
    return hashlib.sha256(canonical_json(program_tables(program))).hexdigest()
