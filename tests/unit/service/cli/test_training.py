"""Commands that train in a planned arena: outputs for a batch, validations, logs of accesses."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from service.cli.console import Exit
from solver import documents, pipeline
from solver.documents import load_graph, load_plan
from solver.executor import Trainer, synthetic_batch
from solver.graph import TrainableGraph, build_graph
from solver.plan import PlanOptions, with_deployment_digest, with_digest
from solver.program import Tier
from solver.reports.records import paging
from tests.support.commands import run as arenaplan
from tests.support.deployments import with_plan
from tests.support.graphs import Sketch, chain
from tests.support.onnx_models import model_of, node, perceptron
from tests.support.sizes import SEQUENCES

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
MNIST = EXAMPLES / "mnist.json"
RNG = np.random.default_rng(11)


@pytest.fixture
def model(tmp_path: Path) -> onnx.ModelProto:
    """Two outputs, of which the loss is of the first."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Tanh", ["h"], ["y"]),
        node("Relu", ["h"], ["beside"]),
    ]
    weights = {"w": RNG.standard_normal((3, 4)).astype(np.float32)}
    made = model_of(nodes, {"x": (2, 3)}, weights, outputs=("y", "beside"))
    onnx.save(made, tmp_path / "model.onnx")
    return made


def planned(folder: Path, *choices: str) -> tuple[str | Path, ...]:
    """A plan of the model, and how it is run."""
    given = ("--loss", "mse", *choices)
    assert arenaplan("plan", folder / "model.onnx", *given, "-o", folder / "plan.json").exit_code == Exit.OK
    return (folder / "plan.json", "--graph", folder / "model.onnx", *given)


def test_outputs_are_those_of_the_model(model: onnx.ModelProto, tmp_path: Path) -> None:
    run = planned(tmp_path, "--keep-outputs", "all")
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.savez(tmp_path / "batch.npz", x=x)  # without the label
    done = arenaplan("run", *run, "--input", tmp_path / "batch.npz", "-o", tmp_path / "out.npz")
    assert done.exit_code == Exit.OK
    assert "out.npz: y float32 [2, 4], beside float32 [2, 4]" in done.output
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    with np.load(tmp_path / "out.npz") as written:
        assert list(written) == ["y", "beside"]
        for array, other in zip(written.values(), expected, strict=True):
            np.testing.assert_allclose(array, other, rtol=1e-5)


def test_weights_of_a_file(model: onnx.ModelProto, tmp_path: Path) -> None:
    w, x = np.full((3, 4), 2, np.float32), np.full((2, 3), 5, np.float32)
    np.savez(tmp_path / "weights.npz", w=w)
    np.savez(tmp_path / "batch.npz", x=x, label=np.ones((2, 4), np.float32))
    run = planned(tmp_path, "--keep-outputs", "beside", "--weights", str(tmp_path / "weights.npz"))
    done = arenaplan("run", *run, "--input", tmp_path / "batch.npz", "-o", tmp_path / "out.npz", "--json")
    assert done.exit_code == Exit.OK, done.output
    assert json.loads(done.stdout) == {"outputs": {"beside": {"dtype": "float32", "shape": [2, 4]}}}
    with np.load(tmp_path / "out.npz") as written:
        assert written["beside"].tolist() == (x @ w).tolist()


def test_a_weight_that_is_an_output_is_not_trained_first(tmp_path: Path) -> None:
    w = np.full((3, 4), 2, np.float32)
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Identity", ["w"], ["same"])]
    onnx.save(model_of(nodes, {"x": (2, 3)}, {"w": w}, outputs=("y", "same")), tmp_path / "model.onnx")
    np.savez(tmp_path / "batch.npz", x=np.ones((2, 3), np.float32))
    run = planned(tmp_path, "--keep-outputs", "all")
    done = arenaplan("run", *run, "--input", tmp_path / "batch.npz", "-o", tmp_path / "out.npz")
    assert done.exit_code == Exit.OK, done.output
    with np.load(tmp_path / "out.npz") as written:
        assert written["same"].tolist() == w.tolist()


def test_trained_weights(tmp_path: Path) -> None:
    assert arenaplan("plan", MNIST, "--batch", "2", "-o", tmp_path / "plan.json").exit_code == Exit.OK
    graph = load_graph(MNIST.read_bytes(), batch=2)
    batch: dict[str, Any] = synthetic_batch(graph, 0, 0)
    np.savez(tmp_path / "batch.npz", **batch)
    with Trainer(graph, load_plan((tmp_path / "plan.json").read_bytes())) as trainer:
        for step in range(3):
            trainer.step(synthetic_batch(graph, 1, step))
        trainer.save(tmp_path / "trained.safetensors")
        trainer.step(batch)
        expected = trainer.read("softmax.out")
    run = (
        tmp_path / "plan.json",
        "--graph",
        MNIST,
        "--input",
        tmp_path / "batch.npz",
        "-o",
        tmp_path / "out.npz",
    )
    for more, same in ((("--checkpoint", tmp_path / "trained.safetensors"), True), ((), False)):
        assert arenaplan("run", *run, *more).exit_code == Exit.OK
        with np.load(tmp_path / "out.npz") as written:
            assert (written["softmax.out"].tobytes() == expected.tobytes()) == same


def test_a_graph_document_and_standard_output(tmp_path: Path) -> None:
    assert arenaplan("plan", MNIST, "--batch", "2", "-o", tmp_path / "plan.json").exit_code == Exit.OK
    batch: dict[str, Any] = synthetic_batch(load_graph(MNIST.read_bytes(), batch=2), 0, 0)
    np.savez(tmp_path / "batch.npz", **batch)
    done = arenaplan("run", tmp_path / "plan.json", "--graph", MNIST, "--input", tmp_path / "batch.npz")
    assert done.exit_code == Exit.OK
    with np.load(io.BytesIO(done.stdout_bytes)) as written:
        probabilities = written["softmax.out"]
    assert probabilities.shape == (2, 10)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-6)


def test_the_graph_beside_a_plan_is_the_one_that_it_was_made_from(tmp_path: Path) -> None:
    for size, folder in ((2, tmp_path), (3, tmp_path / "other")):
        folder.mkdir(exist_ok=True)
        made = arenaplan("plan", MNIST, "--batch", str(size), "-o", folder / "plan.json")
        assert made.exit_code == Exit.OK
    batch: dict[str, Any] = synthetic_batch(load_graph(MNIST.read_bytes(), batch=2), 0, 0)
    np.savez(tmp_path / "batch.npz", **batch)
    other = json.loads(MNIST.read_text()) | {"optimizer": {"type": "SGD", "learning_rate": 0.5}}
    (tmp_path / "another.json").write_text(json.dumps(other))
    (tmp_path / "damaged.json").write_text('{"format": "arenaplan.graph"')
    run = ("run", tmp_path / "plan.json", "--input", tmp_path / "batch.npz", "-o", tmp_path / "out.npz")
    assert "A plan has no weights" in arenaplan(*run).stderr
    (tmp_path / "graph.json").write_bytes(MNIST.read_bytes())
    assert arenaplan(*run).exit_code == Exit.OK
    with np.load(tmp_path / "out.npz") as written:
        assert written["softmax.out"].shape == (2, 10)


@pytest.mark.parametrize(
    ("arrays", "more", "said"),
    [
        ({"x": (2, 3)}, ("no graph",), "--graph: A plan has no weights"),
        ({"x": (2, 3)}, ("no batch",), "--input: There is no batch to run"),
        ({"x": (2, 3)}, ("--input", "b.npz"), "There are 2 batches to run"),
        ({"label": (2, 4)}, (), "'x' is missing"),
        ({"x": (3, 2)}, (), "'x' is of shape [3, 2]"),
        ({"x": (2, 3), "z": (1,)}, (), "'z' is not an input of the graph"),
        ({"x": (2, 3)}, ("nothing kept",), "no outputs that outlive a step"),
    ],
)
def test_what_cannot_be_run(
    model: onnx.ModelProto,
    tmp_path: Path,
    arrays: dict[str, tuple[int, ...]],
    more: tuple[str, ...],
    said: str,
) -> None:
    run = planned(tmp_path, *(() if "nothing kept" in more else ("--keep-outputs", "y")))
    batch: dict[str, Any] = {name: np.zeros(shape, np.float32) for name, shape in arrays.items()}
    np.savez(tmp_path / "batch.npz", **batch)
    if "no graph" in more:
        run = run[:1]
    given: list[str | Path] = [*run]
    if "no batch" not in more:
        given += ["--input", tmp_path / "batch.npz"]
    given += [word for word in more if "." in word or word.startswith("--")]
    done = arenaplan("run", *given, "-o", tmp_path / "out.npz")
    assert done.exit_code not in (Exit.OK, Exit.BUG)
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "out.npz").exists()


def skipping() -> TrainableGraph:
    """A value of a narrow input is added to what wider layers make of it."""
    s = Sketch("skipping")
    widths = (256, 512, 512, 512, 256)
    h = early = s.op("MatMul", [s.input("x", 32, 4), s.parameter("w", 4, 256)], "early")
    for k, (a, b) in enumerate(pairwise(widths)):
        h = s.op("Tanh", [s.op("MatMul", [h, s.parameter(f"w{k}", a, b)], f"h{k}")], f"a{k}")
    s.op("Add", [h, early], "y")
    return build_graph(s.name, s.operands, s.operations, loss=None, optimizer=None, outputs=["y"])


def test_steps_run_again_for_a_capacity(tmp_path: Path) -> None:
    path, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    path.write_bytes(documents.dump_graph(skipping()))
    assert arenaplan("plan", path, "-o", plan).exit_code == Exit.OK
    whole = load_plan(plan.read_bytes()).arena_bytes
    assert arenaplan("plan", path, "--capacity", str(whole - 28 * 1024), "-o", plan).exit_code == Exit.OK
    assert any(load_plan(plan.read_bytes()).program.runs)
    assert arenaplan("validate", path, plan).exit_code == Exit.OK


def test_run_writes_the_outputs(tmp_path: Path) -> None:
    model, plan = tmp_path / "model.onnx", tmp_path / "plan.json"
    onnx.save(perceptron(), model)
    assert arenaplan("plan", model, "--dim", "n=3", "-o", plan).exit_code == Exit.OK
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    np.savez(tmp_path / "batch.npz", x=x)
    choices = ("--graph", model, "--dim", "n=3", "--input", tmp_path / "batch.npz")
    done = arenaplan("run", plan, *choices, "-o", tmp_path / "out.npz")
    assert done.exit_code == Exit.OK, done.output
    (expected,) = ReferenceEvaluator(perceptron()).run(["y"], {"x": x})
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_allclose(written["y"], np.asarray(expected), rtol=1e-5)


# -------------------------------------------------------------------------------------------- sizes


@pytest.fixture
def sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(SEQUENCES))
    return path


def test_a_claim_that_is_not_true_is_wrong(sequences: Path, tmp_path: Path) -> None:
    """Proved for another graph, whose weight grows with the length."""
    arenaplan("plan", sequences, "--dim", "seq=5..6", "-o", "plan.json")
    other = json.loads(sequences.read_text(encoding="utf-8"))
    other["operands"][2]["shape"] = [4, 3]
    other["operations"][0]["inputs"] = ["x", "w"]
    other["operands"][0]["shape"] = ["batch", 6, 4]
    other["operands"][1]["shape"] = ["batch", 6, 3]
    del other["dims"]
    sequences.write_text(json.dumps(other), encoding="utf-8")
    result = arenaplan("validate", sequences, "plan.json", "--steps", "1")
    assert result.exit_code == Exit.WRONG
    assert "no symbolic dimension 'seq'" in result.stdout


def test_outputs_of_a_short_batch(sequences: Path, tmp_path: Path) -> None:
    """Labels that the file lacks are zeros, of as many examples as it has."""
    sequences.write_text(json.dumps(SEQUENCES | {"outputs": ["y"]}), encoding="utf-8")
    assert (
        arenaplan("plan", sequences, "--batch", "1..4", "--dim", "seq=2..9", "-o", "plan.json").exit_code
        == Exit.OK
    )
    np.savez(tmp_path / "batch.npz", x=np.ones((3, 5, 4), np.float32))
    result = arenaplan("run", "plan.json", "--graph", sequences, "--input", "batch.npz", "-o", "outputs.npz")
    assert result.exit_code == Exit.OK, result.output
    assert np.load(tmp_path / "outputs.npz")["y"].shape == (3, 5, 3)
    np.savez(tmp_path / "batch.npz", x=np.ones((5, 5, 4), np.float32))
    result = arenaplan("run", "plan.json", "--graph", sequences, "--input", "batch.npz", "-o", "outputs.npz")
    assert result.exit_code == Exit.USAGE
    assert "The batch is 5; the plan serves batch 1..4, seq 2..9." in result.output


# --------------------------------------------------------------------------------------- validation


ENTRIES = ("--entry", "train:batch=4", "--entry", "infer:batch=1", "--entry", "evaluate:batch=2")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("device") / "plan.json"
    assert arenaplan("plan", MNIST, *ENTRIES, "-o", path).exit_code == Exit.OK
    return path


def test_several_models(tmp_path: Path) -> None:
    models = [Path(shutil.copy(MNIST, tmp_path / f"{name}.json")) for name in ("a", "b")]
    entries = ("--entry", "a.train:batch=2", "--entry", "b.infer:batch=1")
    output = tmp_path / "plan.json"
    assert (
        arenaplan("plan", *models, "--share", *entries, "--tie", "a.*=b.*", "-o", output).exit_code == Exit.OK
    )
    result = arenaplan("validate", *reversed(models), output, "--steps", "2")
    assert result.exit_code == Exit.OK, result.output
    refused = arenaplan("validate", models[0], output)
    assert refused.exit_code == Exit.USAGE
    assert "Model 'b' is not there. Give each model of the plan by its name: a, b." in refused.output


def test_a_plan_in_which_a_weight_lies_elsewhere_is_not_arenaplan(device: Path, tmp_path: Path) -> None:
    deployment = documents.load_deployment(device.read_bytes())
    infer = deployment["infer"].plan
    row = next(row for row in deployment.persistent if row.name == "conv1.weight")
    offsets = [*infer.offsets]
    offsets[row.values[1]] = infer.arena_bytes
    sizes = (infer.arena_bytes + infer.program.values[row.values[1]].type.nbytes,)
    moved = with_digest(replace(infer, offsets=tuple(offsets), sizes=sizes))
    wrong = with_deployment_digest(with_plan(deployment, "infer", moved))
    (tmp_path / "wrong.json").write_bytes(documents.dump_deployment(wrong))
    result = arenaplan("validate", MNIST, tmp_path / "wrong.json")
    assert result.exit_code == Exit.WRONG
    assert "it was not run" in result.stdout
    assert (
        json.loads(arenaplan("validate", MNIST, tmp_path / "wrong.json", "--json").stdout)["identical"]
        is False
    )


@pytest.mark.parametrize(
    ("models", "more", "words"),
    [
        ((MNIST, EXAMPLES / "mobilenet_v2.json"), (), "Model 'mobilenet_v2' is not of the plan"),
        ((EXAMPLES / "mobilenet_v2.json",), (), "Entry point 'train': Plan and graph do not belong together"),
        ((EXAMPLES / "programs" / "momentum.json",), (), "Give the model that the plan was made from"),
        ((MNIST,), ("--server", "http://127.0.0.1:1", "--weights", "w.npz"), "A file of weights stays here."),
        ((MNIST,), ("--server", "http://127.0.0.1:1", "--kernels", "c"), "A service compiles no C."),
        ((MNIST,), ("--paging-file", "/tmp/none"), "leave the paging file out"),
    ],
)
def test_what_is_not_validated(
    models: tuple[Path, ...], more: tuple[str, ...], words: str, device: Path
) -> None:
    result = arenaplan("validate", *models, device, *more)
    assert result.exit_code == Exit.USAGE
    assert words in result.stderr
    assert result.stdout == ""


def test_a_paging_file_is_counted(tmp_path: Path) -> None:
    graph = chain((16,) * 7, batch=64)
    tiers = (Tier("sram", 20_000), Tier("flash", 2**20, 45_000_000, 20_000_000, 100_000))
    made = pipeline.plan(graph, PlanOptions(tiers=tiers))
    found = paging(made)
    assert found is not None
    (tmp_path / "graph.json").write_bytes(documents.dump_graph(graph))
    (tmp_path / "plan.json").write_bytes(documents.dump_plan(made))
    words = (
        "validate",
        tmp_path / "graph.json",
        tmp_path / "plan.json",
        "--steps",
        "2",
        "--paging-file",
        tmp_path / "paged",
    )
    done = arenaplan(*words)
    assert done.exit_code == Exit.OK
    assert f"Paging file: {2 * found.moved_in:,} bytes read, {2 * found.moved_out:,} written." in done.stdout
    done = arenaplan(*words, "--json")
    assert json.loads(done.stdout)["paged_in"] == 2 * found.moved_in
    assert not (tmp_path / "paged").exists()


# ----------------------------------------------------------------------------------------- accesses


def test_a_missing_write_is_named(tmp_path: Path) -> None:
    graph, plan, log = (tmp_path / name for name in ("graph.json", "plan.json", "log.jsonl"))
    net = chain((3, 2, 1), 2)
    graph.write_bytes(documents.dump_graph(net))
    plan.write_bytes(documents.dump_plan(pipeline.plan(net)))
    assert arenaplan("accesses", plan, "--record", graph, "-o", log).exit_code == Exit.OK
    lines = log.read_text(encoding="utf-8").splitlines()
    read = {line.partition('"space"')[2] for line in lines if '"access":"read"' in line}
    first = next(
        k for k, line in enumerate(lines) if '"write"' in line and line.partition('"space"')[2] in read
    )
    log.write_text("\n".join(lines[:first] + lines[first + 1 :]), encoding="utf-8")
    checked = arenaplan("accesses", plan, log)
    assert checked.exit_code == 1
    assert ": unwritten: " in checked.stdout.splitlines()[0]
    as_json = arenaplan("accesses", plan, log, "--json")
    assert as_json.exit_code == 1
    facts = json.loads(as_json.stdout)
    assert facts["right"] is False
    assert facts["faults"][0]["rule"] == "unwritten"
