"""The example documents: committed as built, and the networks that they claim to be."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from examples.models import MODELS, Document, render
from solver.documents import load_graph

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def operations(document: Document, type_: str) -> list[Document]:
    return [operation for operation in document["operations"] if operation["type"] == type_]


@pytest.mark.parametrize("name", MODELS)
def test_committed_document_is_current(name: str) -> None:
    """Otherwise: ``python -m examples.models``."""
    assert (EXAMPLES / f"{name}.json").read_text(encoding="utf-8") == render(MODELS[name]())


@pytest.mark.parametrize("name", MODELS)
def test_rendering_loses_nothing(name: str) -> None:
    assert json.loads(render(MODELS[name]())) == MODELS[name]()


@pytest.mark.parametrize(("name", "parameters"), [("mnist", 484_714), ("mobilenet_v2", 3_487_816)])
def test_parameters(name: str, parameters: int) -> None:
    operands = MODELS[name]()["operands"]
    assert sum(math.prod(x["shape"]) for x in operands if x["role"] == "parameter") == parameters


@pytest.mark.parametrize("name", MODELS)
def test_shapes_that_the_builder_follows_are_the_inferred_ones(name: str) -> None:
    """Weight shapes depend on them, so a wrong one would not load; the batch is symbolic."""
    graph = load_graph(json.dumps(MODELS[name]()).encode(), batch=3)
    assert graph.operands["image"].shape[0] == 3
    assert graph.operands["softmax.out"].shape == (3, *graph.operands["label"].shape[1:])
    assert graph.loss is not None
    assert graph.operands[graph.loss].shape == ()


@pytest.mark.parametrize("name", MODELS)
def test_weights_start_from_different_seeds(name: str) -> None:
    initializers = [operand.get("initializer", {}) for operand in MODELS[name]()["operands"]]
    seeds = [initializer["seed"] for initializer in initializers if "seed" in initializer]
    assert len(set(seeds)) == len(seeds) > 0


def test_mnist_layers() -> None:
    types = [operation["type"] for operation in MODELS["mnist"]()["operations"]]
    assert types == [
        *("Conv", "Conv", "MaxPool", "Conv", "Conv", "MaxPool", "Reshape", "Gemm", "Gemm", "Softmax"),
        "CategoricalCrossEntropy",
    ]


def test_mobilenet_layers() -> None:
    document = MODELS["mobilenet_v2"]()
    types = Counter(operation["type"] for operation in document["operations"])
    assert types == {
        "Conv": 52,
        "Add": 10,
        "Pad": 4,
        "ReduceMean": 1,
        "Gemm": 1,
        "Softmax": 1,
        "CategoricalCrossEntropy": 1,
    }


def test_mobilenet_convolutions() -> None:
    convolutions = operations(MODELS["mobilenet_v2"](), "Conv")
    depthwise = [conv for conv in convolutions if conv["attributes"]["group"] > 1]
    linear = [conv["name"] for conv in convolutions if conv["attributes"]["activation"] == "None"]
    assert len(depthwise) == 17
    assert linear == [f"block{k}.project" for k in range(17)]
    padded = [conv["name"] for conv in depthwise if conv["attributes"]["auto_pad"] == "VALID"]
    assert padded == [f"block{k}.depthwise" for k in (1, 3, 6, 13)]
    assert all((conv["name"] in padded) == (conv["attributes"]["strides"] == [2, 2]) for conv in depthwise)


def test_mobilenet_pads_one_row_and_column_at_the_end() -> None:
    graph = load_graph(json.dumps(MODELS["mobilenet_v2"]()).encode())
    pads = [operation for operation in graph.operations if operation.type == "Pad"]
    sides = [(graph.operands[op.inputs[0]].shape[1], graph.operands[op.outputs[0]].shape[2]) for op in pads]
    assert sides == [(112, 113), (56, 57), (28, 29), (14, 15)]
