"""Model files on the command line: told by their extension, planned and trained like graph documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.cli.answers import read_source
from solver import documents
from solver.pipeline import BlockProgram, TrainableGraph

MODEL = """[Model]
Type = NeuralNetwork
Loss = cross
batch_size = 4

[Optimizer]
Type = adam

[image]
Type = input
Input_Shape = 1:6:6

[conv]
Type = conv2d
filters = 2
kernel_size = 3,3
Activation = relu

[flat]
Type = flatten

[classes]
Type = fully_connected
Unit = 3
Activation = softmax
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.INI"
    path.write_text(MODEL, encoding="utf-8")
    return path


def test_the_extension_tells(model: Path) -> None:
    graph = read_source(model).read(8).graph
    assert graph.name == "small"
    assert graph.operands["image"].shape == (8, 1, 6, 6)
    assert read_source(model).read(8).network == graph


def test_documents_are_told_by_their_format(model: Path, tmp_path: Path) -> None:
    graph, other = tmp_path / "graph.json", tmp_path / "program"
    graph.write_bytes(documents.dump_graph(read_source(model).read(None).graph))
    assert isinstance(read_source(graph).read(None).network, TrainableGraph)
    program = {"format": documents.PROGRAM_FORMAT, "version": 1, "name": "p"}
    program |= {"blocks": [{"name": "b", "bytes": 64}], "operations": [{"name": "o", "writes": ["b"]}]}
    other.write_text(json.dumps(program), encoding="utf-8")
    assert isinstance(read_source(other).read(None).network, BlockProgram)
