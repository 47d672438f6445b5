"""ONNX models on the command line: imported, planned, trained, explained; and what is said of other files."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from service.cli.console import Exit
from solver.documents import load_plan
from tests.support.commands import run as arenaplan
from tests.support.onnx_models import model_of, node

CHOICES = ("--loss", "cross-entropy", "--optimizer", "adam", "--dim", "batch=4")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    weights = {
        "fc.weight": rng.standard_normal((30, 20)).astype(np.float32),
        "fc.bias": np.zeros(20, np.float32),
    }
    nodes = [node("MatMul", ["x", "fc.weight"], ["h"]), node("Add", ["h", "fc.bias"], ["y"])]
    path = tmp_path / "small.onnx"
    onnx.save(model_of(nodes, {"x": ("batch", 30)}, weights), path)
    return path


def test_a_document_has_the_weights_by_where_they_are(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    document, made = folder / "graph.json", folder / "plan.json"
    done = arenaplan("import", model, *CHOICES, "-o", document)
    assert "2 trained tensors of 620 elements" in done.output
    operands = {o["name"]: o for o in json.loads(document.read_bytes())["operands"]}
    assert operands["fc.weight"]["initializer"]["file"] == "../small.onnx"
    assert arenaplan("plan", document, "-o", made).exit_code == Exit.OK
    assert "Identical" in arenaplan("validate", document, made).output
    # What the document says, and what the model says with the same choices, are one graph.
    assert "Identical" in arenaplan("validate", model, made, *CHOICES).output
    model.rename(tmp_path / "moved.onnx")
    failed = arenaplan("validate", document, made)
    assert failed.exit_code == Exit.USAGE
    assert "cannot be read" in failed.output


def test_the_command_that_is_recommended_works_as_it_stands(model: Path, tmp_path: Path) -> None:
    """With how the model is trained, and with a path that a shell would take apart."""
    spaced = model.rename(tmp_path / "a model.onnx")
    explained = arenaplan("explain", spaced, *CHOICES, "--capacity", "12400").output
    said = explained.partition("   arenaplan ")[2].partition("\n")[0]
    assert "--loss cross-entropy --optimizer adam --dim batch=4" in said
    done = arenaplan(*shlex.split(said), "-o", tmp_path / "plan.json")
    assert done.exit_code == Exit.OK, done.output


def test_the_tensor_that_a_refusal_names_works_when_it_is_pasted(tmp_path: Path) -> None:
    """Behind operators that nobody knows, under a name that a shell would take apart."""
    rng = np.random.default_rng(3)
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Strange", ["r"], ["s"], domain="com.example"),
        node("Det", ["z"], ["d"]),
        node("Mul", ["s", "d"], ["it's (joined)"]),
        node("MatMul", ["it's (joined)", "fc.weight"], ["y"]),
    ]
    made = model_of(
        nodes,
        {"x": ("batch", 30), "z": (2, 2)},
        {"fc.weight": rng.standard_normal((30, 20)).astype(np.float32)},
        domains=["com.example"],
    )
    made.graph.value_info.append(
        onnx.helper.make_tensor_value_info("it's (joined)", onnx.TensorProto.FLOAT, ["batch", 30])
    )
    path, planned = tmp_path / "behind.onnx", tmp_path / "plan.json"
    onnx.save(made, path)
    refused = arenaplan("plan", path, *CHOICES)
    assert refused.exit_code == Exit.USAGE
    said = " ".join(refused.output.split())
    pasted = said.partition("Plan what follows with ")[2].partition(", which becomes")[0]
    chosen = [*CHOICES, *shlex.split(pasted)]
    assert chosen[-2:] == ["--freeze-before", "it's (joined)"]
    done = arenaplan("plan", path, *chosen, "-o", planned)
    assert done.exit_code == Exit.OK, done.output
    assert "4 of 5 nodes are not imported" in " ".join(done.output.split())
    assert "Identical" in arenaplan("validate", path, planned, *chosen, "--steps", "2").output


def test_notes_go_to_standard_error(model: Path, tmp_path: Path) -> None:
    graph = onnx.load(model)
    graph.graph.node.append(node("Softmax", ["y"], ["z"]))
    graph.graph.output[0].name = "z"
    onnx.save(graph, model)
    done = arenaplan("import", model, *CHOICES, "-o", tmp_path / "graph.json")
    assert "arenaplan: note: " in done.stderr
    assert "taken as logits" in done.stderr


def test_documents_take_no_choices(model: Path, tmp_path: Path) -> None:
    document = tmp_path / "graph.json"
    arenaplan("import", model, *CHOICES, "-o", document)
    done = arenaplan("plan", document, "--loss", "mse")
    assert done.exit_code == Exit.USAGE
    assert "says itself how it is trained" in done.output
    assert "--loss, which is for models" in done.output
    ini = tmp_path / "small.ini"
    ini.write_text("[Model]\ntype = NeuralNetwork\n[in]\ntype = input\ninput_shape = 1:1:4\n")
    ini.write_text(f"{ini.read_text()}[fc]\ntype = fully_connected\nunit = 3\n")
    assert "says itself how it is trained" in arenaplan("plan", ini, "--loss", "mse").output
    done = arenaplan("plan", ini, "--loss", "none", "-o", tmp_path / "infer.json")
    assert done.exit_code == Exit.OK, done.output
    again = tmp_path / "plan.json"
    done = arenaplan("plan", document, "--optimizer", "sgd", "--micro-batches", "4", "-o", again)
    assert done.exit_code == Exit.OK, done.output
    program = load_plan(again.read_bytes()).program
    assert program.period == 4
    assert "is a document already" in arenaplan("import", document, "-o", tmp_path / "again.json").output


def test_weights_of_another_file(model: Path, tmp_path: Path) -> None:
    weights, made, document = tmp_path / "trained.npz", tmp_path / "plan.json", tmp_path / "graph.json"
    values: dict[str, Any] = {"fc.weight": np.full((30, 20), 0.5, np.float32), "step": np.array(7)}
    values["fc.bias"] = np.ones(20, np.float32)
    np.savez(weights, **values)
    chosen = (*CHOICES, "--weights", weights)
    planned = arenaplan("plan", model, *chosen, "-o", made)
    assert planned.exit_code == Exit.OK, planned.output
    assert "no use for 1 tensor of 'trained.npz': 'step'" in planned.stderr
    first = json.loads(arenaplan("validate", model, made, *chosen, "--steps", "1", "--json").stdout)
    assert first["steps"][0]["identical"]
    # A plan has the values that training begins with, by where they are.
    assert "'fc.weight' begins with other values" in arenaplan("validate", model, made, *CHOICES).output
    assert arenaplan("import", model, *chosen, "-o", document).exit_code == Exit.OK
    operands = {o["name"]: o for o in json.loads(document.read_bytes())["operands"]}
    assert operands["fc.bias"]["initializer"]["file"] == "trained.npz"
    again = arenaplan("validate", document, made, "--steps", "1", "--json")
    assert json.loads(again.stdout)["steps"] == first["steps"]
    # A document takes weights as well, and nothing else.
    plain, other = tmp_path / "plain.json", ("--weights", weights, "--steps", "1", "--json")
    assert arenaplan("import", model, *CHOICES, "-o", plain).exit_code == Exit.OK
    assert json.loads(arenaplan("validate", plain, made, *other).stdout)["steps"] == first["steps"]


def test_weights_that_are_not_there_or_do_not_fit(model: Path, tmp_path: Path) -> None:
    missing = arenaplan("plan", model, *CHOICES, "--weights", tmp_path / "none.npz")
    assert (missing.exit_code, "--weights: There is no file" in missing.output) == (Exit.USAGE, True)
    weights = tmp_path / "w.npz"
    values: dict[str, Any] = {"fc.weight": np.zeros((20, 30), np.float32)}
    np.savez(weights, **values)
    lacking = arenaplan("plan", model, *CHOICES, "--weights", weights)
    assert (lacking.exit_code, "lacks 1 of the parameters: 'fc.bias'" in lacking.output) == (Exit.USAGE, True)


@pytest.mark.parametrize("data", [b"\x80\x02}q\x00.", b"PK\x03\x04\x00\x00", bytes(range(200, 256))])
def test_files_of_unknown_formats_get_the_list(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(data)
    done = arenaplan("plan", path)
    assert done.exit_code == Exit.USAGE
    assert "ONNX (.onnx)" in done.output
    assert "torch.onnx.export" in done.output
