"""Stored operands in graph documents: round trips; each mistake is a sentence with a remedy that works."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.documents import dump_graph, graph_digest, load_graph
from solver.errors import ArenaplanError
from solver.executor import Trainer, synthetic_batch
from solver.graph.packing import pack, unpack
from solver.graph.storage import Storage
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.targets import TARGETS

Document = dict[str, Any]

_DOCUMENT: Document = {
    "format": "arenaplan.graph",
    "version": 1,
    "name": "stored",
    "operands": [
        {"name": "x", "role": "input", "shape": [2, 64], "dtype": "float32"},
        {"name": "t", "role": "label", "shape": [2, 32], "dtype": "float32"},
        {
            "name": "w",
            "role": "parameter",
            "shape": [32, 64],
            "dtype": "float32",
            "storage": {"kind": "int4"},
        },
        {"name": "b", "role": "parameter", "shape": [32], "dtype": "float32"},
    ],
    "operations": [
        {
            "name": "g",
            "type": "Gemm",
            "inputs": ["x", "w", "b"],
            "outputs": ["y"],
            "attributes": {"transB": 1},
        },
        {"name": "l", "type": "MeanSquaredError", "inputs": ["y", "t"], "outputs": ["loss"]},
    ],
    "loss": "loss",
    "optimizer": {"type": "SGD", "learning_rate": 0.1},
}

_INT4 = {"kind": "int4"}
_CANNOT = "Operand 'w' is float32[32, 64] and cannot be stored as asked:"
_STORED = "Operand 'w' is float32[32, 64] stored as int4 in groups of 32"
_READS = "reads 'w', which is stored as int4 in groups of 32 with its rows along axis"
_FAULTY = "The packed values of operand 'w' stand for no weights: the scale of group 0 in row 0 is"
_PACK = (
    "Pack the weights again: elements and scales are finite, and a scale is zero only where all elements of"
    " its group are."
)
_WHOLE = "Leave the storage of this operand out."
_ROLES = "Only parameters that are not trained, and constants, have one: leave it out."


def changed(number: int, **fields: Any) -> Document:
    document = copy.deepcopy(_DOCUMENT)
    document["operands"][number] |= fields
    return document


def stored(**fields: Any) -> Document:
    return changed(2, storage={**_INT4, **fields})


def with_values(data: bytes) -> Document:
    return changed(2, initializer={"kind": "values", "base64": base64.b64encode(data).decode()})


def reading(inputs: list[str], **shapes: list[int]) -> Document:
    document = copy.deepcopy(_DOCUMENT)
    document["operations"][0] |= {"inputs": inputs}
    for operand in document["operands"]:
        operand["shape"] = shapes.get(operand["name"], operand["shape"])
    return document


def multiplied() -> Document:
    document = reading(["x", "w"], w=[2, 64], t=[2, 64])
    document["operations"][0] |= {"type": "Mul", "attributes": {}}
    del document["operands"][3]
    document["operands"].append({"name": "v", "role": "parameter", "shape": [64], "dtype": "float32"})
    document["operations"].insert(0, {"name": "a", "type": "Add", "inputs": ["x", "v"], "outputs": ["z"]})
    document["operations"][1]["inputs"] = ["z", "w"]
    return document


#: By case: the document, the place, the sentence, the remedy.
_MISTAKES: Mapping[str, tuple[Document, str, str, str]] = {
    "an odd group": (
        stored(group=9),
        "operands/2/storage",
        f"{_CANNOT} a group has an even number of elements, at least 8, not 9.",
        'Store this operand with "group": 32, or leave its storage out.',
    ),
    "a group that does not divide": (
        stored(group=48),
        "operands/2/storage",
        f"{_CANNOT} its rows have 64 elements, which groups of 48 do not divide.",
        'Store this operand with "group": 32, or leave its storage out.',
    ),
    "an axis that is not there": (
        stored(axis=2),
        "operands/2/storage",
        f"{_CANNOT} it has no axis 2 of rows beside another axis.",
        _WHOLE,
    ),
    "the other axis": (
        stored(axis=1),
        "operations/0/inputs/1",
        f"Operation 'g' (Gemm) {_READS} 1; as input 1 it takes the rows of axis 0.",
        'Store this operand with "axis": 0.',
    ),
    "the left operand": (
        reading(["w", "x", "b"], b=[2], t=[32, 2]),
        "operations/0/inputs/0",
        f"Operation 'g' (Gemm) {_READS} 0; as input 0 it takes elements alone.",
        _WHOLE,
    ),
    "an operator without kernels for it": (
        multiplied(),
        "operations/1/inputs/1",
        f"Operation 'g' (Mul) {_READS} 0; as input 1 it takes elements alone.",
        _WHOLE,
    ),
    "groups of floats": (
        changed(2, storage={"kind": "float16", "group": 32}),
        "operands/2/storage",
        f"{_CANNOT} float16 has no groups.",
        _WHOLE,
    ),
    "an input": (
        changed(0, storage=_INT4),
        "operands/0/storage",
        "Operand 'x' (input) has a storage.",
        _ROLES,
    ),
    "a label": (
        changed(1, storage=_INT4),
        "operands/1/storage",
        "Operand 't' (label) has a storage.",
        _ROLES,
    ),
    "a trained parameter": (
        changed(2, trainable=True),
        "operands/2/trainable",
        "Operand 'w' is trainable and has a storage, in which nothing is trained.",
        "Leave its storage out, or say that it is not trainable.",
    ),
    "a trained vector": (
        changed(3, storage={"kind": "float16"}),
        "operands/3/storage",
        f"{_CANNOT} it has no axis 0 of rows beside another axis.".replace(
            "'w' is float32[32, 64]", "'b' is float32[32]"
        ),
        _WHOLE,
    ),
    "doubles": (
        changed(2, dtype="float64"),
        "operands/2/storage",
        "Operand 'w' is float64[32, 64], and has a storage.",
        "Declare it as float32: the element type is the one that operators compute in.",
    ),
    "integers": (
        changed(2, dtype="int32"),
        "operands/2/storage",
        "Operand 'w' is int32[32, 64], and has a storage.",
        "Declare it as float32: the element type is the one that operators compute in.",
    ),
    "no elements": (
        changed(2, shape=[0, 64]),
        "operands/2/storage",
        "Operand 'w' is float32[0, 64] and cannot be stored as asked: it has no elements.",
        _WHOLE,
    ),
    "values of another size": (
        with_values(bytes(10)),
        "operands/2/initializer/base64",
        f"{_STORED}, 1,152 bytes, but its values have 10 bytes.",
        "Give the 1,152 packed bytes, or 8,192 bytes of float32 elements.",
    ),
    "scales that are no number": (
        with_values(b"\0\x7e" * 576),
        "operands/2/initializer/base64",
        f"{_FAULTY} nan.",
        _PACK,
    ),
    "scales that are zero": (
        with_values((b"\0\0" + b"\x98" * 16) * 64),
        "operands/2/initializer/base64",
        f"{_FAULTY} zero, and its integers are not.",
        _PACK,
    ),
}

_FIELDS: Mapping[str, tuple[Any, str]] = {
    "kind": ("int3", "operands[2].storage.kind is 'int3'."),
    "group": (-8, "operands[2].storage.group is -8."),
    "axis": (-1, "operands[2].storage.axis is -1."),
    "scales": ("float8", "operands[2].storage.scales is 'float8'."),
    "zero_points": (1, "operands[2].storage.zero_points is 1."),
    "more": (1, "operands[2].storage.more is an unknown field."),
}


@pytest.mark.parametrize("case", _MISTAKES)
def test_a_mistake_is_one_sentence_with_its_place_and_a_remedy(case: str) -> None:
    document, place, message, remedy = _MISTAKES[case]
    with pytest.raises(ArenaplanError) as caught:
        load_graph(document)
    assert (caught.value.message, caught.value.remedy) == (message, remedy)
    assert "/".join(map(str, caught.value.path)) == place


_MENDED = (
    "an odd group", "a group that does not divide", "an axis that is not there", "the other axis",
    "an input", "the left operand", "an operator without kernels for it", "groups of floats",
    "a trained vector",
)  # fmt: skip


@pytest.mark.parametrize("case", _MENDED)
def test_remedies_work(case: str) -> None:
    document, place, _, remedy = _MISTAKES[case]
    document, number = copy.deepcopy(document), place.split("/")[1]
    operand = document["operands"][int(number) if place.startswith("operands") else 2]
    if remedy.startswith("Store"):
        operand["storage"] |= json.loads("{" + remedy.split("with ")[1].split(",")[0].rstrip(".") + "}")
    else:
        del operand["storage"]
    if case == "an input":
        del document["operands"][2]["storage"]
    load_graph(document)


@pytest.mark.parametrize("field", _FIELDS)
def test_fields_are_checked(field: str) -> None:
    value, message = _FIELDS[field]
    with pytest.raises(ArenaplanError) as caught:
        load_graph(stored(**{field: value}))
    assert caught.value.message == message


def test_what_is_stored_is_not_trained() -> None:
    assert load_graph(_DOCUMENT).trainable == ("b",)
    with pytest.raises(
        ArenaplanError, match="'w' is stored as int4 in groups of 32, in which nothing is trained"
    ):
        load_graph({**_DOCUMENT, "trainable": ["w", "b"]})


@pytest.mark.parametrize(
    "storage",
    [
        {"kind": "float16"},
        {"kind": "bfloat16"},
        {"kind": "int8", "group": 64, "scales": "bfloat16"},
        {"kind": "int4", "group": 16, "zero_points": True},
    ],
    ids=str,
)
def test_graphs_come_back_from_their_documents(storage: Document) -> None:
    graph = load_graph(changed(2, storage=storage))
    again = load_graph(dump_graph(graph))
    assert again.operands["w"].type == graph.operands["w"].type
    assert graph_digest(again) == graph_digest(graph) != graph_digest(load_graph(changed(2, storage=None)))


@pytest.mark.parametrize(
    "give", [lambda floats, packed: floats, lambda floats, packed: packed], ids=["floats", "packed"]
)
def test_values_are_floats_or_packed_bytes(give: Callable[[bytes, bytes], bytes]) -> None:
    """Both train alike: floats are packed when training begins."""
    values = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    type_ = load_graph(_DOCUMENT).operands["w"].type
    assert type_.storage == Storage("int4", 32)
    packed = pack(values, type_).tobytes()
    graph, other = (load_graph(with_values(data)) for data in (give(values.tobytes(), packed), packed))
    with Trainer(graph, plan(graph)) as one, Trainer(other, plan(other)) as two:
        batch = synthetic_batch(graph, 0, 1)
        assert one.step(batch) == two.step(batch)
        np.testing.assert_array_equal(one.read("w"), two.read("w"))


def test_values_of_a_file_are_packed_bytes_or_floats(tmp_path: Path) -> None:
    """What a graph with a storage of its own reads from a file of floats comes back from its document."""
    floats = np.random.default_rng(0).standard_normal((32, 64)).astype("<f4")
    type_ = load_graph(_DOCUMENT).operands["w"].type
    for number, data in enumerate((floats.tobytes(), pack(floats, type_).tobytes())):
        (tmp_path / "w.bin").write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        initializer = {"kind": "file", "file": "w.bin", "sha256": sha256, "bytes": len(data)}
        graph = load_graph(changed(2, initializer=initializer), folder=tmp_path)
        again = load_graph(dump_graph(graph), folder=tmp_path)
        with Trainer(again, plan(again)) as trainer:
            np.testing.assert_array_equal(trainer.read("w"), unpack(pack(floats, type_), type_), str(number))
    with pytest.raises(ArenaplanError) as caught:
        load_graph(changed(2, initializer={**initializer, "bytes": 10}), folder=tmp_path)
    assert caught.value.path[-1] == "bytes"
    assert caught.value.remedy == "Give 1,152 or 8,192."


@pytest.mark.parametrize("target", [name for name, t in TARGETS.items() if not t.capabilities.stored])
def test_targets_that_read_no_stored_weights_say_so(target: str) -> None:
    with pytest.raises(ArenaplanError) as caught:
        plan(load_graph(_DOCUMENT), PlanOptions(target=target))
    assert caught.value.message == (
        f"The target {target!r} reads no stored weights, and 'w' is stored as int4 in groups of 32."
    )
    assert caught.value.path == ("target",)
