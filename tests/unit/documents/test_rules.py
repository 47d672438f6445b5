"""Constants by rule: what is recognised gives the very bytes back, and what is near a rule is written out."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

import solver.documents.graph as documents_of_graphs
from solver.canonical import float_of, word_for
from solver.documents import dump_graph, graph_digest, load_graph
from solver.documents.initializers import (
    InitializerDocument,
    initializer_content,
    rule_bytes,
    rule_of,
    to_initializer,
)
from solver.errors import DocumentError
from solver.executor import Trainer
from solver.graph import DType, Initializer, TensorType
from solver.pipeline import plan

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]


def read(rule: dict[str, Any], type_: TensorType) -> bytes:
    """The elements of an initializer that comes out of JSON."""
    written = json.dumps({key: word_for(field) for key, field in rule.items()}, allow_nan=False)
    document = InitializerDocument.model_validate(json.loads(written))
    data = to_initializer(document, "c", type_, ()).data
    assert data is not None
    return data


def rule_for(array: Array) -> dict[str, Any] | None:
    """The rule of an array, which gives the array back."""
    type_ = TensorType(array.shape, DType(array.dtype.name))
    rule = rule_of(array.tobytes(), type_)
    if rule is not None:
        assert read(rule, type_) == array.tobytes()
        written = initializer_content(Initializer("values", data=array.tobytes()), type_)
        assert {key: float_of(field) for key, field in written.items()} == rule
    return rule


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("pattern", "bounds"),
    [
        (np.tril(np.ones((48, 40))), {"upper": 0}),
        (np.triu(np.ones((40, 48)), 1), {"upper": 0}),
        (np.triu(np.ones((40, 48)), -3), {"lower": -3}),
        (np.eye(40), {"lower": 0, "upper": 0}),
        (np.tril(np.triu(np.ones((40, 40)), -4), 2), {"lower": -4, "upper": 2}),
    ],
)
def test_bands(dtype: str, pattern: Array, bounds: dict[str, int]) -> None:
    rule = rule_for(pattern.astype(dtype))
    assert rule is not None
    assert {key: rule[key] for key in ("lower", "upper") if key in rule} == bounds
    assert {rule["value"], rule["other"]} == {0.0, 1.0}


@pytest.mark.parametrize(
    "values",
    [(-1e9, 0.0), (0.0, float(np.finfo(np.float32).min)), (-0.0, 0.0), (-np.inf, 0.0), (0.0, -np.inf)],
)
def test_masks_to_be_added(values: tuple[float, float]) -> None:
    """A sign of zero is part of the bytes."""
    mask = np.where(np.tri(33, dtype=bool), *np.array(values, np.float32))
    assert rule_for(np.broadcast_to(mask, (2, 3, 33, 33)).copy()) is not None


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 3), (2, 3)])
def test_bands_along_other_axes(axes: tuple[int, int]) -> None:
    shape = [3, 3, 3, 3]
    for axis in axes:
        shape[axis] = 12
    sizes = [12 if axis in axes else 1 for axis in range(4)]
    band = np.tri(12, dtype=np.float32).reshape(sizes)
    rule = rule_for(np.broadcast_to(band, shape).copy())
    assert rule is not None
    assert rule.get("axes", [2, 3]) == list(axes)


def test_rows_behind_columns() -> None:
    type_ = TensorType((12, 15), DType.FLOAT32)
    rule = {"kind": "band", "value": 1.0, "other": 0.0, "upper": 0, "axes": [1, 0]}
    np.testing.assert_array_equal(
        np.frombuffer(read(rule, type_), np.float32).reshape(12, 15), np.tri(15, 12, dtype=np.float32).T
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_positions(dtype: str) -> None:
    row = np.arange(100).astype(dtype)
    rule = {"kind": "iota", "value": 0.0, "step": 1.0}
    assert rule_for(np.tile(row, 3).reshape(3, 100)[:1].repeat(5, 0)) == rule
    assert rule_for(np.broadcast_to(row[:, None], (100, 8)).copy()) == {**rule, "axes": [0]}
    assert rule_for(np.flip(row).repeat(4).reshape(100, 4)) == {
        "kind": "iota", "value": 99.0, "step": -1.0, "axes": [0],
    }  # fmt: skip


def test_nearly_a_rule() -> None:
    """One element, the last bit of one, or the sign of a zero: it is written out."""
    mask = np.tri(32, dtype=np.float32)
    for index, number in (
        ((31, 0), 0.5),
        ((0, 0), np.nextafter(np.float32(1), np.float32(2))),
        ((0, 31), -0.0),
    ):
        other = mask.copy()
        other[index] = number
        assert rule_for(other) is None
    steps = np.arange(100, dtype=np.int64)
    steps[-1] += 1
    assert rule_for(steps) is None
    assert rule_for(np.arange(100, dtype=np.int64) + 2**62 + 1) is None  # no double has these
    assert rule_for(np.random.default_rng(0).random((32, 32), np.float32)) is None
    assert rule_for(np.ones((32, 32), np.float32)) is None
    assert rule_for(np.arange(8)) is None  # too short to be worth it


@pytest.mark.parametrize(
    ("shape", "dtype", "rule", "message"),
    [
        ((4,), "float32", {"kind": "band", "value": 1, "other": 0}, "2 of its axes"),
        ((), "float32", {"kind": "iota", "value": 1, "step": 0}, "1 of its axes"),
        ((4, 4), "float32", {"kind": "iota", "value": 1, "step": 0, "axes": [2]}, "1 of its axes"),
        ((4, 4), "float32", {"kind": "band", "value": 1, "other": 0, "axes": [1, 1]}, "2 of its axes"),
        ((4, 4), "bool", {"kind": "iota", "value": 0, "step": 1}, "counts in numbers"),
        ((4, 4), "bool", {"kind": "band", "value": 2, "other": 0}, "no bool element"),
        ((4, 4), "int32", {"kind": "band", "value": 1, "other": 0.5}, "no int32 element"),
        ((300,), "uint8", {"kind": "iota", "value": 0, "step": 1}, "no uint8 element"),
        ((2**20, 2**20), "bool", {"kind": "band", "value": 1, "other": 0}, "at most"),
        ((4, 4), "float32", {"kind": "band", "value": 1}, "lacks other"),
        ((4, 4), "float32", {"kind": "iota", "value": 1, "step": 1, "upper": 0}, "has no upper"),
    ],
)
def test_refusals(shape: tuple[int, ...], dtype: str, rule: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read(rule, TensorType(shape, DType(dtype)))


def masked(initializer: dict[str, Any], batch: int | str = 2) -> dict[str, Any]:
    """A network that adds a mask to its scores."""
    return {
        "format": "arenaplan.graph", "version": 1, "name": "masked",
        **({"batch": 2} if batch == "batch" else {}),
        "operands": [
            {"name": "x", "role": "input", "shape": [batch, 24], "dtype": "float32"},
            {"name": "y", "role": "label", "shape": [batch, 24, 24], "dtype": "float32"},
            {"name": "w", "role": "parameter", "shape": [24], "dtype": "float32"},
            {"name": "mask", "role": "constant", "shape": [batch, 24, 24], "dtype": "float32",
             "initializer": initializer},
            {"name": "rows", "role": "constant", "shape": [1], "dtype": "int64",
             "initializer": {"kind": "values", "values": [1]}},
        ],
        "operations": [
            {"name": "scale", "type": "Mul", "inputs": ["x", "w"], "outputs": ["s"]},
            {"name": "row", "type": "Unsqueeze", "inputs": ["s", "rows"], "outputs": ["r"]},
            {"name": "add", "type": "Add", "inputs": ["r", "mask"], "outputs": ["z"]},
            {"name": "loss", "type": "MeanSquaredError", "inputs": ["z", "y"], "outputs": ["l"]},
        ],
        "loss": "l", "optimizer": {"type": "SGD", "learning_rate": 0.1}, "trainable": "all", "outputs": [],
    }  # fmt: skip


BAND = {"kind": "band", "value": 0.0, "other": -1e4, "upper": 0}


def test_a_graph_in_both_spellings() -> None:
    """Equal graphs, one digest, one plan, the same losses; the document that is written has the rule."""
    data = rule_bytes(BAND, TensorType((2, 24, 24), DType.FLOAT32))
    inline = {"kind": "values", "base64": base64.b64encode(data).decode()}
    by_rule, by_value = load_graph(masked(BAND)), load_graph(masked(inline))
    assert by_rule == by_value
    assert graph_digest(by_rule) == graph_digest(by_value)
    written = json.loads(dump_graph(by_value))
    assert next(o for o in written["operands"] if o["name"] == "mask")["initializer"] == BAND
    assert load_graph(written) == by_value
    feed = {"x": np.ones((2, 24), np.float32), "y": np.zeros((2, 24, 24), np.float32)}
    made = plan(by_rule)
    with Trainer(by_rule, made) as one, Trainer(by_value, made) as other:
        losses = [one.step(feed) for _ in range(3)]
        assert losses == [other.step(feed) for _ in range(3)]
    assert losses[0] > 1e6  # the mask is there


def test_rules_of_a_whole_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small document must not fill a memory; what is written can be read again."""
    document = masked(BAND)
    size = 2 * 24 * 24 * 4
    monkeypatch.setattr(documents_of_graphs, "LARGEST_RULES", size)
    graph = load_graph(document)
    document["operands"].append({**document["operands"][3], "name": "other"})
    document["operations"][2:3] = [
        {"name": "add", "type": "Add", "inputs": ["r", "mask"], "outputs": ["m"]},
        {"name": "add_other", "type": "Add", "inputs": ["m", "other"], "outputs": ["z"]},
    ]
    with pytest.raises(DocumentError, match="With operand 'other' the constants by rule exceed"):
        load_graph(document)
    monkeypatch.setattr(documents_of_graphs, "LARGEST_RULES", 2 * size)
    larger = load_graph(document)
    monkeypatch.setattr(documents_of_graphs, "LARGEST_RULES", size)
    kinds = [
        o["initializer"]["kind"] for o in json.loads(dump_graph(larger))["operands"] if "initializer" in o
    ]
    assert kinds == ["band", "values", "values"]
    assert load_graph(dump_graph(larger)) == larger
    assert load_graph(dump_graph(graph)) == graph


def test_any_batch() -> None:
    """A rule says what a constant is, whatever its shape is."""
    mask = load_graph(masked(BAND, "batch"), batch=5).operands["mask"]
    assert mask.shape == (5, 24, 24)
    assert mask.initializer == Initializer("values", data=rule_bytes(BAND, mask.type))
