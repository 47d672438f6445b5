"""Graph documents: the error, the place and the words for each mistake; sequences and symbolic sizes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from solver.documents import SCHEMAS, dump_graph, dump_plan, load_buffers, load_graph, load_options, load_plan
from solver.errors import ArenaplanError, DocumentError, GraphError, TooManyOperationsError, TrainableError
from solver.executor import validate
from solver.pipeline import plan
from tests.support.documents import BAD_GRAPHS, BAD_TEXTS, BadGraph, BadText, graph_document


@pytest.mark.parametrize("case", BAD_TEXTS, ids=lambda case: case.id)
def test_bad_text(case: BadText) -> None:
    with pytest.raises(DocumentError) as caught:
        load_graph(case.data)
    _check(caught.value, case.pointer, case.words)


@pytest.mark.parametrize("case", BAD_GRAPHS, ids=lambda case: case.id)
def test_bad_graph(case: BadGraph) -> None:
    with pytest.raises(ArenaplanError) as caught:
        load_graph(case.data)
    assert type(caught.value) is case.error
    _check(caught.value, case.pointer, case.words)


def _check(error: ArenaplanError, pointer: str, words: tuple[str, ...]) -> None:
    text = str(error)
    assert error.pointer == pointer, text
    for word in words:
        assert word in text
    assert error.remedy
    assert "\n" not in text
    assert len(text) < 1000
    assert "pydantic" not in text


def test_cases_have_names_of_their_own() -> None:
    counts = Counter([case.id for case in BAD_TEXTS] + [case.id for case in BAD_GRAPHS])
    assert max(counts.values()) == 1


def test_parsed_value_gives_the_same_error() -> None:
    for case in BAD_GRAPHS:
        with pytest.raises(ArenaplanError) as from_text:
            load_graph(case.data)
        with pytest.raises(ArenaplanError) as from_value:
            load_graph(json.loads(case.data))
        assert str(from_text.value) == str(from_value.value)
        assert from_text.value.path == from_value.value.path


def test_too_many_operations() -> None:
    with pytest.raises(TooManyOperationsError, match="5 operations; at most 4") as caught:
        load_graph(graph_document(), max_operations=4)
    assert caught.value.pointer == "/operations"


def test_several_mistakes_are_counted() -> None:
    document = graph_document()
    document["name"] = 1
    document["version "] = 1
    document["batch"] = "x"
    with pytest.raises(DocumentError, match=r"2 more places to correct") as caught:
        load_graph(document)
    assert caught.value.pointer == "/version "


def test_thousands_of_mistakes_are_not_described_one_by_one() -> None:
    with pytest.raises(DocumentError, match="has 5000 mistakes"):
        load_graph({**graph_document(), **{f"key{i}": i for i in range(5000)}})
    document = graph_document()
    document["operands"] = [1] * 1_000_000
    with pytest.raises(DocumentError) as caught:
        load_graph(document)
    assert caught.value.pointer == "/operands/0"


def test_frozen_parameter_in_the_trainable_set() -> None:
    document = graph_document()
    document["operands"][4]["trainable"] = False
    document["trainable"] = ["fc1.weight", "bias"]
    with pytest.raises(TrainableError, match="'bias'") as caught:
        load_graph(document)
    assert caught.value.pointer == "/trainable/1"


def test_integer_parameter_cannot_be_trained() -> None:
    document = graph_document()
    document["operands"][2] = {"name": "flat.shape", "role": "parameter", "shape": [2], "dtype": "int64"}
    with pytest.raises(ArenaplanError, match=r"flat\.shape"):
        load_graph(document)


def test_a_key_that_is_no_string() -> None:
    document = graph_document()
    document["operations"][0]["attributes"] = {1: 2}
    with pytest.raises(DocumentError, match="string"):
        load_graph(document)


# ------------------------------------------------------------------------------------------------- long lists


MOST = 1024

LISTS: Mapping[str, Any] = {
    "tiers": [f"t{k}=1KiB,bandwidth=1GB/s" for k in range(MOST + 1)],
    "memories": [f"m{k}=1KiB" for k in range(MOST + 1)],
    "reserved": [f"{128 * k}..{128 * k + 64}" for k in range(MOST + 1)],
    "dims": {f"d{k}": 2 for k in range(MOST + 1)},
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_options_has_a_limit(name: str) -> None:
    with pytest.raises(ArenaplanError) as caught:
        load_options({name: LISTS[name]})
    assert caught.value.path == (name,)
    assert f"at most {MOST}" in caught.value.remedy
    assert str(MOST) in str(SCHEMAS["options"]["properties"][name])
    entries = LISTS[name]
    rest = dict(list(entries.items())[1:]) if isinstance(entries, dict) else entries[1:]
    load_options({name: rest})


def test_reserved_ranges_of_buffers_have_the_same_limit() -> None:
    ranges = [{"low": 128 * k, "high": 128 * k + 64} for k in range(MOST + 1)]
    document = {"format": "arenaplan.buffers", "version": 1, "buffers": [], "reserved": ranges}
    with pytest.raises(ArenaplanError) as caught:
        load_buffers(document)
    assert caught.value.path == ("reserved",)


# -------------------------------------------------------------------------------------------------- sequences


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


# --------------------------------------------------------------------------------------------- symbolic sizes


def expanded(*sizes: Any) -> dict[str, Any]:
    """A weight that is expanded to `sizes`, beside a label ["batch", "seq"]."""
    operands: list[dict[str, Any]] = [
        {"name": "w", "role": "parameter", "shape": [1, 1], "dtype": "float32"},
        {"name": "sizes", "role": "constant", "shape": [2], "dtype": "int64"},
        {"name": "label", "role": "label", "shape": ["batch", "seq"], "dtype": "float32"},
    ]
    operands[1]["initializer"] = {"kind": "values", "values": [*sizes]}
    operations = [
        {"name": "expand", "type": "Expand", "inputs": ["w", "sizes"], "outputs": ["y"]},
        {"name": "mse", "type": "MeanSquaredError", "inputs": ["y", "label"], "outputs": ["loss"]},
    ]
    document: dict[str, Any] = {"format": "arenaplan.graph", "version": 1, "name": "g", "batch": 2}
    document |= {"dims": {"seq": 3}, "operands": operands, "operations": operations, "loss": "loss"}
    return {**document, "optimizer": {"type": "SGD", "learning_rate": 0.1}}


@pytest.mark.parametrize("sizes", [("batch", "seq"), ("batch", 3)])
def test_sizes_follow_the_dimensions(sizes: tuple[Any, ...]) -> None:
    graph = load_graph(expanded(*sizes))
    assert graph.operands["y"].shape == (2, 3)
    assert graph.at(batch=5).operands["y"].shape == (5, 3)
    assert load_graph(expanded(*sizes), batch=7).operands["y"].shape == (7, 3)


@pytest.mark.parametrize("wrong", ["rows", "NaN", {}, True])
def test_other_words_are_no_sizes(wrong: Any) -> None:
    with pytest.raises(DocumentError, match="no int64 element of operand 'sizes'") as caught:
        load_graph(expanded(wrong, 3))
    assert caught.value.path[-2:] == ("values", 0)
