"""`arenaplan run`: the outputs of a graph for a batch, in the planned arena."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner, Result

from service.cli.commands import app
from service.cli.console import Exit
from solver.documents import load_graph, load_plan
from solver.executor import Trainer, synthetic_batch
from tests.support.onnx_models import model_of, node

MNIST = Path(__file__).resolve().parents[4] / "examples" / "mnist.json"
RNG = np.random.default_rng(11)


def arenaplan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


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
