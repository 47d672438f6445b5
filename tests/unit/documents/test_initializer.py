"""First values: kinds, ranges, both spellings, constants by rule, words for NaN and the infinities."""

from __future__ import annotations

import base64
import json
import math
import zlib
from typing import Any

import numpy as np
import pytest

import solver.documents.graph as documents_of_graphs
from solver.canonical import canonical_json, float_of, word_for
from solver.documents import dump_graph, dump_plan, graph_digest, load_graph, load_plan
from solver.documents.initializers import (
    InitializerDocument,
    initializer_content,
    rule_bytes,
    rule_of,
    to_initializer,
)
from solver.errors import DocumentError
from solver.executor import Trainer, validate
from solver.graph import DType, Initializer, Role, TensorType, TrainableGraph
from solver.pipeline import plan
from tests.support.documents import mutated
from tests.support.graphs import Sketch


def read(shape: tuple[int, ...], dtype: str, **fields: Any) -> Initializer:
    document = InitializerDocument.model_validate(fields)
    return to_initializer(document, "w", TensorType(shape, DType(dtype)), ("operands", 0, "initializer"))


def inline(shape: tuple[int, ...], dtype: str, values: list[Any]) -> Initializer:
    return read(shape, dtype, kind="values", values=values)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float32", [0.5, -1, 3.4028234663852886e38, 1e-50]),
        ("float64", [1e308, -1e308, 0.1, 7]),
        ("int32", [2**31 - 1, -(2**31), 0, 1]),
        ("int64", [2**63 - 1, -(2**63), 0, 1]),
        ("uint8", [0, 255, 1, 2]),
        ("bool", [True, False, False, True]),
    ],
)
def test_values_and_base64_mean_the_same(dtype: str, values: list[Any]) -> None:
    expected = np.array(values, dtype).reshape(2, 2)
    listed = inline((2, 2), dtype, values)
    encoded = read((2, 2), dtype, kind="values", base64=base64.b64encode(expected.tobytes()).decode())
    assert listed == encoded == Initializer("values", data=expected.tobytes())
    assert np.array_equal(np.frombuffer(listed.data or b"", dtype).reshape(2, 2), expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 3.5e38),
        ("float32", 10**400),
        ("float32", True),
        ("float32", "1"),
        ("float32", None),
        ("float64", 10**309),
        ("int32", 2**31),
        ("int32", -(2**31) - 1),
        ("int64", 2**63),
        ("int64", 1.0),
        ("uint8", -1),
        ("uint8", 256),
        ("uint8", False),
        ("bool", 1),
        ("bool", 0.0),
        ("bool", "true"),
    ],
)
def test_elements_beyond_the_type(dtype: str, value: Any) -> None:
    good = dtype == "bool"
    with pytest.raises(DocumentError, match=f"is no {dtype} element of operand 'w'") as caught:
        inline((3,), dtype, [good, good, value] if good else [0, 0, value])
    assert caught.value.pointer == "/operands/0/initializer/values/2"


def test_scalar_has_one_value() -> None:
    assert inline((), "int32", [7]).data == np.int32(7).tobytes()
    with pytest.raises(DocumentError, match=r"int32\[\], 1 elements, but has 0 values"):
        inline((), "int32", [])


def test_bytes_of_bool_are_zero_or_one() -> None:
    assert read((3,), "bool", kind="values", base64="AAEB").data == b"\0\1\1"
    with pytest.raises(DocumentError, match="other than 0 and 1"):
        read((3,), "bool", kind="values", base64="AAEC")


@pytest.mark.parametrize("text", ["AAAA\n", " AAAA", "AA-_", "A", "AAAAA", "é", "AAAA===="])
def test_strict_base64(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read((3,), "uint8", kind="values", base64=text)
    assert caught.value.pointer == "/operands/0/initializer/base64"


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"kind": "zeros"}, "int64"),
        ({"kind": "ones"}, "bool"),
        ({"kind": "constant", "value": 2}, "int32"),
        ({"kind": "constant", "value": 1}, "bool"),
        ({"kind": "constant", "value": 0.5}, "float32"),
        ({"kind": "normal", "scale": 0.1, "seed": 3}, "float64"),
        ({"kind": "uniform", "scale": 2, "seed": 0}, "float32"),
        ({"kind": "he_normal", "seed": 2**63 - 1}, "float32"),
        ({"kind": "glorot_uniform", "seed": 4}, "float32"),
    ],
)
def test_named_schemes_round_trip(fields: dict[str, Any], dtype: str) -> None:
    made = read((2, 3), dtype, **fields)
    assert made.data is None
    assert initializer_content(made) == fields
    assert read((2, 3), dtype, **initializer_content(made)) == made


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"kind": "constant", "value": 1.5}, "int32"),
        ({"kind": "constant", "value": 256}, "uint8"),
        ({"kind": "constant", "value": 2}, "bool"),
        ({"kind": "constant", "value": -1e39}, "float32"),
        ({"kind": "normal", "scale": 1.0}, "int32"),
        ({"kind": "zeros", "seed": 1}, "float32"),
        ({"kind": "he_normal", "values": [1]}, "float32"),
    ],
)
def test_named_schemes_that_do_not_fit(fields: dict[str, Any], dtype: str) -> None:
    with pytest.raises(DocumentError):
        read((1,), dtype, **fields)


def test_seed_comes_from_the_name() -> None:
    """Weights of one shape must not start alike."""
    made = read((2, 3), "float32", kind="he_normal")
    assert made.seed == zlib.crc32(b"w")


def test_null_fields_count_as_left_out() -> None:
    assert read((1,), "float32", kind="zeros", seed=None, values=None) == Initializer("zeros")


# ------------------------------------------------------------------------------------------ constants by rule


Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]


def read_rule(rule: dict[str, Any], type_: TensorType) -> bytes:
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
        assert read_rule(rule, type_) == array.tobytes()
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
        np.frombuffer(read_rule(rule, type_), np.float32).reshape(12, 15), np.tri(15, 12, dtype=np.float32).T
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
        read_rule(rule, TensorType(shape, DType(dtype)))


def added(initializer: dict[str, Any], batch: int | str = 2) -> dict[str, Any]:
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
    by_rule, by_value = load_graph(added(BAND)), load_graph(added(inline))
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
    document = added(BAND)
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
    mask = load_graph(added(BAND, "batch"), batch=5).operands["mask"]
    assert mask.shape == (5, 24, 24)
    assert mask.initializer == Initializer("values", data=rule_bytes(BAND, mask.type))


# ------------------------------------------------------------------------------------------------------ words


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
