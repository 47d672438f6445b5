"""Bad graph documents: the error, the place and the words for each."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from solver.documents import load_graph
from solver.errors import ArenaplanError, DocumentError, TooManyOperationsError, TrainableError
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
