"""NaN and the infinities in documents: one word for each, wherever a document has a float."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from solver.canonical import canonical_json
from solver.documents import dump_graph, dump_plan, graph_digest, load_graph, load_plan
from solver.errors import DocumentError
from solver.executor import validate
from solver.graph import Initializer, Role, TrainableGraph
from solver.pipeline import plan
from tests.support.documents import mutated
from tests.support.graphs import Sketch

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def masked(value: float, kind: str) -> TrainableGraph:
    """A softmax of scores, some of which a constant masks, clipped below at an attribute."""
    s = Sketch("masked")
    h = s.op("Gemm", [s.input("x", 2, 3), s.parameter("w", 3, 4)], "h")
    data = np.array([0, value, 0, 0], np.float32).tobytes()
    first = Initializer("values", data=data) if kind == "values" else Initializer("constant", value=value)
    mask = s.add("mask", Role.CONSTANT, (4,), initializer=first)
    h = s.op("Clip", [h], "clipped", min=-math.inf, max=math.inf)
    h = s.op("Where", [s.op("IsNaN", [mask], "empty"), h, s.op("Add", [h, mask], "sum")], "kept")
    s.op("MeanSquaredError", [s.op("Softmax", [h], "p"), s.label("t", 2, 4)], "loss")
    return s.graph(trainable=["w"])


@pytest.mark.parametrize("kind", ["constant", "values"])
@pytest.mark.parametrize("word", WORDS)
def test_graphs_and_plans_keep_them(word: str, kind: str) -> None:
    graph = masked(WORDS[word], kind)
    data = dump_graph(graph)
    again = load_graph(data)
    assert dump_graph(again) == data
    assert graph_digest(again) == graph_digest(graph)
    made = plan(graph)
    written = dump_plan(made)
    assert dump_plan(load_plan(written)) == written
    assert plan(again).digest == made.digest
    assert '"-Infinity"' in written.decode()
    assert validate(again, load_plan(written), steps=2).identical


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_a_mask_of_infinities_is_a_rule(value: float) -> None:
    s = Sketch()
    mask = np.where(np.tri(16, dtype=np.bool_), 0, np.float32(value)).astype(np.float32)
    first = Initializer("values", data=mask.tobytes())
    s.add("mask", Role.CONSTANT, (16, 16), initializer=first)
    y = s.op("Add", [s.op("MatMul", [s.input("x", 16, 4), s.parameter("w", 4, 16)], "h"), "mask"], "y")
    s.op("MeanSquaredError", [y, s.label("t", 16, 16)], "loss")
    data = dump_graph(s.graph())
    assert b'"band"' in data
    again = load_graph(data).operands["mask"].initializer
    assert again is not None
    assert again.data == mask.tobytes()


@pytest.mark.parametrize("word", WORDS)
def test_words_in_lists_are_elements(word: str) -> None:
    operand = {"initializer": {"kind": "values", "values": [word, 1.5]}, "dtype": "float32", "shape": [2]}
    document = mutated("/operands/4", {"name": "bias", "role": "parameter", **operand})
    document["operands"][4]["shape"] = [5]
    document["operands"][4]["initializer"]["values"] += [0, 0, 0]
    data = load_graph(document).operands["bias"].initializer
    assert data is not None
    assert data.data is not None
    first = np.frombuffer(data.data, np.float32)[0]
    np.testing.assert_equal(first, np.float32(WORDS[word]))


@pytest.mark.parametrize(
    ("pointer", "value", "words"),
    [
        ("/operands/3/initializer", {"kind": "constant", "value": "infinity"}, "must be"),
        ("/operands/3/initializer", {"kind": "normal", "scale": "Infinity"}, "must be a number"),
        ("/operands/2/initializer", {"kind": "values", "values": ["NaN", 6]}, "NaN is no int64 element"),
        ("/training", {"clip_global_norm": "Infinity"}, "must be a number"),
    ],
)
def test_words_are_refused_where_they_mean_nothing(pointer: str, value: Any, words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        load_graph(mutated(pointer, value))


@pytest.mark.parametrize("word", WORDS)
def test_hyper_parameters_are_finite(word: str) -> None:
    with pytest.raises(DocumentError, match="It must be a number, true or false"):
        load_graph(mutated("/optimizer", {"type": "SGD", "learning_rate": word}))


def test_the_words_are_strings_of_strict_json() -> None:
    text = dump_graph(masked(math.nan, "constant")).decode()

    def refused(word: str) -> None:
        raise AssertionError(word)

    canonical_json(json.loads(text, parse_constant=refused))
    assert '"value":"NaN"' in text
