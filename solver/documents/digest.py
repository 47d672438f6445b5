"""The digests that tie a plan to its graph and to its reference program."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from solver.documents.graph import graph_to_dict
from solver.documents.parse import canonical_json
from solver.graph.types import Initializer, Operand, TrainableGraph
from solver.program import reference_digest

__all__ = ["graph_digest", "reference_digest"]


def graph_digest(graph: TrainableGraph) -> str:
    """SHA-256, in hexadecimal, over everything that decides how the graph trains.

    That is operands with shapes and initializers, operations with the attributes that were given,
    loss, optimizer, trainable set and outputs; not the graph's title. Values enter by their own SHA-256, so
    that large weights are read once and never encoded, and it makes no difference whether they are inline.
    """
    slim = graph.with_graph(name="", operands={o.id: _without_data(o) for o in graph.operands.values()})
    content: dict[str, Any] = graph_to_dict(slim)
    content["values"] = {
        operand.id: digest
        for operand in graph.operands.values()
        if operand.initializer is not None and (digest := _values_digest(operand.initializer))
    }
    return hashlib.sha256(canonical_json(content)).hexdigest()


def _values_digest(initializer: Initializer) -> str:
    """Empty for named schemes."""
    if initializer.file is not None:
        return initializer.file.sha256
    return "" if initializer.data is None else hashlib.sha256(initializer.data).hexdigest()


def _without_data(operand: Operand) -> Operand:
    if operand.initializer is None or operand.initializer.kind != "values":
        return operand
    return replace(operand, initializer=Initializer("values", data=b""))
