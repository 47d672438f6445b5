"""Graph documents are read without models where that is sure to be right, and to the same graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from solver.documents.graph_fields import GraphFields, usual_graph
from solver.documents.graph_models import read_graph
from solver.errors import DocumentError
from tests.support.documents import graph_document

ODD = st.sampled_from([
    None, True, False, 0, 1, -1, 7, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**400, 0.0, 0.5, 1.0, -2.0,
    1e308, "", "batch", "all", "float32", "float16", "parameter", "values", "a\nb", "a\u202eb", "\ud800",
    "\x7f", "x" * 1024, "x" * 1025, [], [1], [1, "batch"], [True], ["a", "b"], ["a", 1], [0.5, 2], [[1]],
    [1] * 33,
    [1] * 1025, {}, {"last": 2}, {"last": -1}, {"kind": "ones"}, {"kind": "normal", "scale": 2, "seed": 3},
    {"kind": "constant", "value": 3}, {"kind": "normal", "scale": 0}, {"kind": "values", "values": [1, True]},
    {"type": "SGD", "learning_rate": 1}, {"clip_global_norm": 1}, {"k": 1, "l": [2, 0.5], "m": "n"},
    {"k": None},
])  # fmt: skip
KEYS = st.sampled_from([
    "batch", "training", "trainable", "outputs", "loss", "shape", "dtype", "initializer", "attributes",
    "name", "type", "role", "value", "scale", "seed", "base64", "comment", "inputs", "epsilon_hat", "a\x00b",
])  # fmt: skip


def containers(value: Any) -> Iterator[Any]:
    """Every object and list of a document, itself among them."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(graph_document())
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(list(containers(document))))
        if isinstance(place, dict):
            key = draw(st.sampled_from(sorted(place)) | KEYS) if place else draw(KEYS)
            if draw(st.booleans()) or key not in place:
                place[key] = copy.deepcopy(draw(ODD))
            else:
                del place[key]
        elif place:
            place[draw(st.integers(0, len(place) - 1))] = copy.deepcopy(draw(ODD))
    return document | {"format": "arenaplan.graph", "version": 1}


def by_models(document: dict[str, Any]) -> GraphFields | None:
    try:
        return read_graph(document)
    except DocumentError:
        return None


@given(changed())
def test_what_is_read_without_models_they_read_alike(document: dict[str, Any]) -> None:
    fields = usual_graph(document)
    if fields is not None:
        modelled = by_models(document)
        assert modelled is not None
        # As text: an integer and the same number as a float are equal, and must not take each other's place.
        assert repr(plain(fields)) == repr(plain(modelled))


def plain(fields: GraphFields) -> tuple[object, ...]:
    """All fields, lists and tuples made one."""
    return (
        fields.name, fields.batch, list(fields.operands), list(fields.operations), fields.loss,
        (fields.optimizer.type, dict(fields.optimizer.parameters)), fields.training,
        fields.trainable if isinstance(fields.trainable, str | int) else list(fields.trainable),
        fields.outputs,
    )  # fmt: skip


def test_usual_documents_need_no_model() -> None:
    assert usual_graph(graph_document()) is not None
