"""Documents with a sequence, unnamed outputs and constant scales: read, written, planned, trained."""

from __future__ import annotations

import json
from typing import Any

import pytest

from solver.documents import dump_graph, dump_plan, load_graph, load_plan
from solver.errors import GraphError
from solver.executor import validate
from solver.pipeline import plan


def operand(name: str, role: str, *shape: int | str, **more: Any) -> dict[str, Any]:
    kind = {"kind": "glorot_uniform", "seed": len(name)} if role == "parameter" else None
    return {
        "name": name,
        "role": role,
        "shape": list(shape),
        "dtype": more.pop("dtype", "float32"),
        **({"initializer": kind} if kind else {}),
        **more,
    }


def document() -> dict[str, Any]:
    """Frames are made larger, flattened, and read by an LSTM one after the other."""
    scales = {"kind": "values", "values": [1.0, 1.0, 2.0, 1.5]}
    shape = {"kind": "values", "values": [0, 0, -1]}
    flat = {"kind": "values", "values": [0, -1]}
    return {
        "format": "arenaplan.graph",
        "version": 1,
        "name": "frames",
        "batch": 2,
        "operands": [
            operand("frames", "input", "batch", 5, 2, 2),
            operand("label", "label", "batch", 3),
            operand("scales", "constant", 4, initializer=scales),
            operand("shape", "constant", 3, dtype="int64", initializer=shape),
            operand("flat", "constant", 2, dtype="int64", initializer=flat),
            operand("w", "parameter", 12, 12),
            operand("r", "parameter", 12, 3),
            operand("b", "parameter", 24),
        ],
        "operations": [
            {
                "name": "larger",
                "type": "Resize",
                "inputs": ["frames", "", "scales"],
                "outputs": ["large"],
                "attributes": {"mode": "linear"},
            },
            {"name": "rows", "type": "Reshape", "inputs": ["large", "shape"], "outputs": ["steps"]},
            {
                "name": "lstm",
                "type": "LSTM",
                "inputs": ["steps", "w", "r", "b"],
                "outputs": ["", "last"],
                "attributes": {"layout": 1},
            },
            {"name": "classes", "type": "Reshape", "inputs": ["last", "flat"], "outputs": ["logits"]},
            {
                "name": "cross",
                "type": "CategoricalCrossEntropy",
                "inputs": ["logits", "label"],
                "outputs": ["loss"],
                "attributes": {"from_logits": 1},
            },
        ],
        "loss": "loss",
        "optimizer": {"type": "Adam", "learning_rate": 0.01},
    }


def test_from_a_document_to_training_in_its_arena() -> None:
    graph = load_graph(json.dumps(document()).encode())
    assert graph.operands["large"].shape == (2, 5, 4, 3)
    assert [o.type for o in graph.operations].count("LSTMCell") == 5
    made = plan(graph)
    assert validate(graph, made, steps=2).identical
    assert load_plan(dump_plan(made)) == made


def test_what_is_written_is_the_unrolled_graph() -> None:
    graph = load_graph(json.dumps(document()).encode())
    assert load_graph(dump_graph(graph)) == graph


def test_a_mistake_in_a_sequence_points_to_it() -> None:
    wrong = document()
    wrong["operands"][5] = operand("w", "parameter", 12, 11)
    with pytest.raises(GraphError) as caught:
        load_graph(json.dumps(wrong).encode())
    assert caught.value.path == ("operations", 2)
    wrong = document()
    wrong["operations"][2]["outputs"] = ["", "last", "cells", "fourth"]
    with pytest.raises(GraphError) as caught:
        load_graph(json.dumps(wrong).encode())
    assert caught.value.path[:2] == ("operations", 2)
