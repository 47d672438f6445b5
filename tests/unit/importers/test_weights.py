"""Files of weights: .safetensors and .npz, taken by reference, and what is said of those that do not fit."""

from __future__ import annotations

import contextlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.errors import DocumentError
from solver.executor.initial import initial_value
from solver.graph import TrainableGraph
from solver.importers.weights import read_weights, weight_array, with_weights
from tests.support.graphs import chain

Write = Callable[[Path, Mapping[str, Any]], None]
_NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "uint8": "U8", "bool": "BOOL"}


def write_safetensors(path: Path, arrays: Mapping[str, Any]) -> None:
    """By the format's description, without its package."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        places = [len(data), len(data) + len(raw)]
        table[name] = {"dtype": _NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": places}
        data += raw
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


def write_compressed(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


@pytest.fixture
def graph() -> TrainableGraph:
    return chain()


def values_for(graph: TrainableGraph, dtype: str = "float32") -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        name: np.asarray(rng.standard_normal(graph.operands[name].shape), dtype) for name in graph.trainable
    }


@pytest.mark.parametrize("write", [write_safetensors, write_npz, write_compressed])
def test_values_take_the_place_of_the_graphs_own(write: Write, graph: TrainableGraph, tmp_path: Path) -> None:
    path, values = tmp_path / "weights", values_for(graph)
    write(path, {**values, "spare": np.zeros(3, np.int64)})
    found = with_weights(graph, path)
    for name, value in values.items():
        operand = found.graph.operands[name]
        np.testing.assert_array_equal(initial_value(operand), value)
        assert operand.initializer is not None
        assert (operand.initializer.file is None) == (write is write_compressed)
    assert any("'spare'" in note for note in found.notes)
    assert any("by copy" in note for note in found.notes) == (write is write_compressed)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floating_types_are_converted(dtype: str, graph: TrainableGraph, tmp_path: Path) -> None:
    path, values = tmp_path / "weights.safetensors", values_for(graph, dtype)
    write_safetensors(path, values)
    found = with_weights(graph, path)
    assert f"tensors of {dtype} as float32" in found.notes[0]
    stored = sum(value.nbytes for value in values.values())
    wider = f"stored in {stored:,} bytes (float16) and planned in {2 * stored:,} bytes"
    assert any(wider in note for note in found.notes) is (dtype == "float16")
    for name, value in values.items():
        np.testing.assert_array_equal(initial_value(found.graph.operands[name]), value.astype(np.float32))


def test_bfloat16_is_the_upper_half(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    text = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    halves = np.array([0x3F80, 0xC040], "<u2").tobytes()
    path.write_bytes(len(text).to_bytes(8, "little") + text + halves)
    weight = read_weights(path)["w"]
    assert weight_array(path, memoryview(path.read_bytes()), weight).tolist() == [1.0, -3.0]


@pytest.mark.parametrize("element", [">f4", "<f4"])
def test_the_order_of_axes_and_bytes(element: str, graph: TrainableGraph, tmp_path: Path) -> None:
    path, values = tmp_path / "weights.npz", values_for(graph)
    write_npz(path, {name: np.asfortranarray(value.astype(element)) for name, value in values.items()})
    found = with_weights(graph, path).graph
    for name, value in values.items():
        np.testing.assert_array_equal(initial_value(found.operands[name]), value)


def test_a_parameter_that_is_missing_is_named(graph: TrainableGraph, tmp_path: Path) -> None:
    path, values = tmp_path / "weights.npz", values_for(graph)
    lost = next(iter(values))
    write_npz(path, {name: value for name, value in values.items() if name != lost})
    with pytest.raises(DocumentError, match=f"lacks 1 of the parameters: '{lost}'"):
        with_weights(graph, path)


@pytest.mark.parametrize("change", ["shape", "element"])
def test_a_tensor_that_does_not_fit_is_named(change: str, graph: TrainableGraph, tmp_path: Path) -> None:
    path, values = tmp_path / "weights.npz", values_for(graph)
    name = next(iter(values))
    values[name] = values[name][:1] if change == "shape" else values[name].astype(np.int64)
    write_npz(path, values)
    with pytest.raises(DocumentError, match=rf"'{name}' in .* has (shape|elements of int64)"):
        with_weights(graph, path)


def _table(**entry: Any) -> bytes:
    text = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


def _entry(header: bytes, *, version: bytes = b"\x01\x00") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        content = b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + bytes(8)
        archive.writestr("w.npy", content)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "neither"),
        (b"\x80\x02}q\x00.", "torch.save_file"),
        (_table(data_offsets=[0, 12]), "outside of the file"),
        (_table(data_offsets=[4, 8]), "needs 8 bytes and has 4"),
        (_table(data_offsets=[-4, 4]), "outside of the file"),
        (_table(shape=[2**40, 2**40]), "needs"),
        (_table(shape=[True]), "a shape is"),
        (_table(dtype="F8_E4M3"), "F8_E4M3"),
        ((2**62).to_bytes(8, "little") + b"{}", "its table would have"),
        ((9).to_bytes(8, "little") + b'{"w": 1}' + bytes(9), "damaged"),
        ((10**5).to_bytes(8, "little") + b"{" + b'"a":[' * 19999 + bytes(10**5), "damaged"),
        (b"PK\x03\x04" + bytes(60), "not a zip file"),
        (_entry(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"), "not an array of numbers"),
        (_entry(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"), "needs 12 bytes and has 8"),
        (_entry(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}"), "a shape is"),
        (_entry(b"__import__('os').getcwd()"), "damaged"),
        (_entry(b"{}", version=b"\x09\x00"), "version"),
    ],
)
def test_damaged_files_are_told_apart(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        read_weights(path)
    assert said in str(caught.value).replace("safetensors.torch", "torch")


@pytest.mark.parametrize("write", [write_safetensors, write_npz, write_compressed])
def test_no_damage_escapes(write: Write, graph: TrainableGraph, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    write(whole, values_for(graph))
    data, rng = whole.read_bytes(), random.Random(7)
    path = tmp_path / "damaged"
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.choice([rng.randrange(len(broken)), rng.randrange(200), -1 - rng.randrange(300)])
            broken[at] = rng.randrange(256)
        if rng.random() < 0.3:
            del broken[rng.randrange(len(broken)) :]
        path.write_bytes(broken)
        with contextlib.suppress(DocumentError):
            with_weights(graph, path)
