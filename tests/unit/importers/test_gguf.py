"""Weights of GGUF files: frozen ones stay as they are quantised, trained ones become floats."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import arenaplan
from solver.documents import dump_graph, load_graph
from solver.errors import ArenaplanError, DocumentError, StorageError
from solver.executor.initial import initial_value
from solver.graph import DType, TrainableGraph
from solver.graph.packing import unpack, unpack_rows
from solver.graph.storage import Storage
from solver.importers.weights import read_arrays, read_weights, with_weights
from tests.support.gguf_files import write_gguf
from tests.support.graphs import Sketch

_ROWS, _INNER = 32, 256
_STORAGES = {
    "F16": Storage("float16"),
    "BF16": Storage("bfloat16"),
    "Q8_0": Storage("int8", 32),
    "Q4_0": Storage("int4", 32),
    "Q4_K": Storage("q4_k", 256),
}


def network(*, trainable: Any = ("head",), frozen_by_rows: bool = True) -> TrainableGraph:
    """A product with the frozen `w`, and one with the trained `head`."""
    sketch = Sketch()
    x, target = sketch.input("x", 4, _INNER), sketch.label("target", 4, 8)
    w = sketch.parameter("w", _ROWS, _INNER)
    if not frozen_by_rows:
        w = sketch.op("Relu", [w], "positive")
    hidden = sketch.op("Gemm", [x, w], "hidden", transB=1)
    y = sketch.op("Gemm", [hidden, sketch.parameter("head", 8, _ROWS)], "y", transB=1)
    sketch.op("MeanSquaredError", [y, target], "loss")
    return sketch.graph(trainable=trainable)


@pytest.fixture
def values() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    shapes = {"w": (_ROWS, _INNER), "head": (8, _ROWS)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def quantised_by_llama_cpp(word: str, rows: int, inner: int) -> Any:
    """Packed rows of a type that the package does not quantise to: any integers, and small scales."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[word]]
    rng = np.random.default_rng(8)
    packed = rng.integers(0, 256, (rows, inner // block, size), np.uint8)
    scales = rng.uniform(-0.01, 0.01, (rows, inner // block, 2)).astype(np.float16)
    packed[..., :4] = scales.view(np.uint8)
    return packed.reshape(rows, -1)


@pytest.mark.parametrize("word", sorted(_STORAGES))
def test_frozen_weights_stay_the_bytes_of_the_file(word: str, values: dict[str, Any], tmp_path: Path) -> None:
    path, w = tmp_path / "model.gguf", values["w"]
    if word == "Q4_K":
        w = quantised_by_llama_cpp(word, _ROWS, _INNER)
    write_gguf(path, {"w": (w, word), "head": (values["head"], "F32")}, alignment=64)
    imported = with_weights(network(), path)
    weight, operand = read_weights(path)["w"], imported.graph.operands["w"]
    assert operand.type.storage == _STORAGES[word]
    assert operand.type.nbytes == weight.length < _ROWS * _INNER * 4
    assert operand.initializer is not None
    place = operand.initializer.file
    raw = path.read_bytes()[weight.offset : weight.offset + weight.length]
    assert place is not None
    assert (place.offset, place.sha256) == (weight.offset, hashlib.sha256(raw).hexdigest())
    assert initial_value(operand).tobytes() == raw
    kind = gguf.GGMLQuantizationType[word]
    packed = np.frombuffer(raw, np.uint8).reshape(_ROWS, -1)
    expected = gguf.dequantize(packed, kind)
    assert unpack(packed, operand.type).tobytes() == expected.tobytes()
    np.testing.assert_array_equal(read_arrays(path)["w"], expected)
    assert any("for they are not trained: 1 tensor of " in note for note in imported.notes)
    # The document names the place in the file, and the plan trains from there.
    graph = load_graph(dump_graph(imported.graph), folder=tmp_path)
    assert graph.operands["w"] == operand
    assert arenaplan.validate(graph, arenaplan.plan(graph), steps=2).identical


@pytest.mark.parametrize("case", ["trained", "read as floats"])
def test_floats_are_made_where_the_storage_cannot_be_read(
    case: str, values: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {"w": (values["w"], "Q4_0"), "head": (values["head"], "F32")})
    graph = network(trainable="all") if case == "trained" else network(frozen_by_rows=False)
    imported = with_weights(graph, path)
    assert imported.graph.operands["w"].type == graph.operands["w"].type
    expected = read_arrays(path)["w"]
    assert initial_value(imported.graph.operands["w"]).tobytes() == expected.tobytes()
    assert "by copy: 1 tensor of Q4_0 as float32" in imported.notes[0]
    assert "1 weight is stored in 4,608 bytes (Q4_0) and planned in 32,768 bytes" in imported.notes[1]


@pytest.mark.parametrize("word", ["Q4_1", "Q5_0", "Q6_K", "Q2_K"])
def test_other_quantised_types_become_floats(word: str, tmp_path: Path) -> None:
    kind, path = gguf.GGMLQuantizationType[word], tmp_path / "model.gguf"
    block, size = gguf.GGML_QUANT_SIZES[kind]
    packed = np.random.default_rng(1).integers(0, 48, (2, 256 // block * size), np.uint8)
    write_gguf(path, {"w": (packed, word)})
    assert read_weights(path)["w"].shape == (2, 256)
    assert read_arrays(path)["w"].tobytes() == gguf.dequantize(packed, kind).tobytes()


@pytest.mark.parametrize("word", ["Q8_1", "99"])
def test_a_type_that_is_not_read_is_named_with_those_that_are(word: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {"w": (np.zeros((1, 32), np.float32), "Q8_0")})
    data, kind = path.read_bytes(), gguf.GGMLQuantizationType
    number = 99 if word == "99" else kind[word].value
    before = (32).to_bytes(8, "little") + (1).to_bytes(8, "little")  # the sizes, which the type follows
    assert data.count(before + kind.Q8_0.value.to_bytes(4, "little")) == 1
    changed = data.replace(
        before + kind.Q8_0.value.to_bytes(4, "little"), before + number.to_bytes(4, "little")
    )
    path.write_bytes(changed + bytes(64))
    with pytest.raises(DocumentError, match=rf"of type {word}, which is not read") as caught:
        read_arrays(path)
    assert "F32, F64" in str(caught.value)
    assert "Q8_0" in str(caught.value)
    assert "Q4_K" in str(caught.value)


def test_q4_k_has_scales_that_are_numbers_and_is_not_packed(values: dict[str, Any], tmp_path: Path) -> None:
    path, packed = tmp_path / "model.gguf", quantised_by_llama_cpp("Q4_K", _ROWS, _INNER)
    packed[2, 2:4] = np.frombuffer(np.float16(np.nan).tobytes(), np.uint8)
    write_gguf(path, {"w": (packed, "Q4_K"), "head": (values["head"], "F32")})
    with pytest.raises(StorageError, match=r"'w' .* scale of group 0 in row 2 is nan"):
        with_weights(network(), path)
    graph = network()
    operand = graph.operands["w"]
    stored = replace(operand, type=replace(operand.type, storage=Storage("q4_k", 256)))
    with pytest.raises(StorageError, match=r"'w' is stored as q4_k, to which floats are not packed"):
        initial_value(stored)
    write_gguf(path, {"w": (values["w"], "F32"), "head": (values["head"], "F32")})
    with pytest.raises(StorageError, match=r"'w' is stored as q4_k, .* or store the operand as int4"):
        with_weights(graph.with_graph(operands={**graph.operands, "w": stored}), path)


def test_unpacking_q4_k_allocates_nothing_of_the_size_of_a_tile() -> None:
    packed, floats = quantised_by_llama_cpp("Q4_K", 64, 4096), np.empty((64, 4096), np.float32)
    unpack_rows(packed, _STORAGES["Q4_K"], floats)
    tracemalloc.start()
    unpack_rows(packed, _STORAGES["Q4_K"], floats)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 96 * 1024


@pytest.mark.parametrize(("scale", "why"), [(np.nan, "is nan"), (np.inf, "is inf"), (0, "is zero")])
def test_scales_that_stand_for_no_weights(
    scale: float, why: str, values: dict[str, Any], tmp_path: Path
) -> None:
    path, word = tmp_path / "model.gguf", "Q8_0"
    packed = gguf.quantize(values["w"], gguf.GGMLQuantizationType[word])
    packed[3, 34:36] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    write_gguf(path, {"w": (packed, word), "head": (values["head"], "F32")})
    with pytest.raises(StorageError, match=rf"'w' .* scale of group 1 in row 3 {why}"):
        with_weights(network(), path)
    if scale != 0:
        with pytest.raises(DocumentError, match=r"'w' in .* not finite"):
            with_weights(network(trainable="all"), path)


def test_a_file_that_was_cut_off(values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {"w": (values["w"], "Q4_0"), "head": (values["head"], "F32")})
    data = path.read_bytes()
    for size in (12, 30, 100, len(data) // 2, len(data) - 40):
        path.write_bytes(data[:size])
        with pytest.raises(DocumentError, match="damaged: it ends before byte"):
            read_weights(path)


def test_big_endian_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "test", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("w", np.ones((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(DocumentError, match="big-endian"):
        read_weights(path)


def test_the_package_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {"w": (np.zeros((1, 32), np.float32), "Q8_0")})
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(DocumentError, match=r"not installed.*pip install 'gguf>=0.17'"):
        read_weights(path)


def test_no_damage_escapes(values: dict[str, Any], tmp_path: Path) -> None:
    path, rng = tmp_path / "model.gguf", random.Random(7)
    write_gguf(path, {"w": (values["w"], "Q4_0"), "head": (values["head"], "F16")})
    data, graph = path.read_bytes(), network()
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(min(len(broken), 400))] = rng.randrange(256)
        if rng.random() < 0.2:
            del broken[rng.randrange(len(broken)) :]
        path.write_bytes(broken)
        with suppress(ArenaplanError):
            with_weights(graph, path)


def test_halves_of_safetensors_are_stored_as_they_are(values: dict[str, Any], tmp_path: Path) -> None:
    """Also for a product that takes columns, whose rows lie in the other order."""
    sketch = Sketch()
    x, target = sketch.input("x", 4, _INNER), sketch.label("target", 4, _ROWS)
    scaled = sketch.op("Mul", [x, sketch.parameter("scale", _INNER)], "scaled")
    product = sketch.op("MatMul", [scaled, sketch.parameter("w", _INNER, _ROWS)], "product")
    sketch.op("MeanSquaredError", [product, target], "loss")
    graph, path = sketch.graph(trainable=["scale"]), tmp_path / "w.npz"
    half = values["w"].T.astype(np.float16)
    np.savez(path, w=half, scale=np.ones(_INNER, np.float16))
    operand = with_weights(graph, path).graph.operands["w"]
    assert operand.type.storage == Storage("float16", axis=1)
    assert operand.dtype is DType.FLOAT32
    np.testing.assert_array_equal(unpack(initial_value(operand), operand.type), half)


def test_names_are_mapped(values: dict[str, Any], tmp_path: Path) -> None:
    path, names = tmp_path / "model.gguf", tmp_path / "names.json"
    write_gguf(path, {"blk.0.ffn": (values["w"], "Q4_0"), "out": (values["head"], "F32")})
    mapping: dict[str, Any] = {
        "file": "model.gguf",
        "names": {"l*": "none.*", "w": "blk.0.ffn", "h*d": "*.out"},
    }
    names.write_text(json.dumps(mapping), encoding="utf-8")
    with pytest.raises(DocumentError, match=r"lacks 1 of the parameters: 'ea\.out'"):
        with_weights(network(), names)
    mapping["names"]["h*d"] = "out"
    names.write_text(json.dumps(mapping), encoding="utf-8")
    with pytest.raises(DocumentError, match=r"does not map names: .* another number of \*"):
        with_weights(network(), names)
    del mapping["names"]["h*d"]
    names.write_text(json.dumps(mapping), encoding="utf-8")
    with pytest.raises(DocumentError, match=r"'head'.* It has 'blk\.0\.ffn', 'out'\..*map names"):
        with_weights(network(), names)
    mapping["names"] |= {"*.scale": "*.s", "head": "out"}
    names.write_text(json.dumps(mapping), encoding="utf-8")
    imported = with_weights(network(), names)
    np.testing.assert_array_equal(initial_value(imported.graph.operands["head"]), values["head"])
    assert imported.graph.operands["w"].type.storage == Storage("int4", 32)
    assert len(imported.notes) == 1
    mapping["names"] = {"he*": None, "w": "blk.0.ffn"}
    names.write_text(json.dumps(mapping), encoding="utf-8")
    partly = with_weights(network(), names).graph
    assert partly.operands["head"] == network().operands["head"]
    assert partly.operands["w"] == imported.graph.operands["w"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"names": {}}',
        '{"file": 1, "names": {}}',
        '{"file": "a", "names": 3}',
        '{"file": "a", "names": {"b": 3}}',
        '{"file": "a", "names": {}, "more": 1}',
    ],
)
def test_a_file_that_maps_no_names(text: str, tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match="does not map names"):
        with_weights(network(), path)


def test_other_batches_have_the_same_weights(values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {"w": (values["w"], "Q4_0"), "head": (values["head"], "F32")})
    document = json.loads(dump_graph(network()))
    for operand in document["operands"]:
        if operand["role"] in ("input", "label"):
            operand["shape"][0] = "batch"
    graph = with_weights(load_graph({**document, "batch": 4}), path).graph
    other = graph.at(batch=2)
    assert other.operands["x"].shape == (2, _INNER)
    assert [other.operands[name] for name in ("w", "head")] == [graph.operands[n] for n in ("w", "head")]
    plan = arenaplan.plan(graph, batch="2..4")
    assert arenaplan.validate(graph, plan, steps=1).identical
