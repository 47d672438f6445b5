"""What plans become on the command line that goes into a model: Circle's training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cli.console import Exit
from solver.documents import dump_plan, load_plan
from solver.executor import c_files, zip_archive
from solver.exporters.circle import with_training
from solver.graph import OptimizerSpec
from solver.importers.circle import CircleTraining, load_circle, weights_of
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions
from tests.support.circle_models import CircleFile, dense
from tests.support.commands import run as arenaplan
from tests.support.graphs import chain
from tests.support.onnx_models import perceptron


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.circle"
    path.write_bytes(dense())
    return path


def planned(model: Path, *choices: str) -> Path:
    path = model.with_name("plan.json")
    done = arenaplan("plan", model, "--batch", "6", *choices, "-o", path)
    assert done.exit_code == Exit.OK, done.output
    return path


def test_the_training_of_a_plan_goes_into_its_model(model: Path) -> None:
    plan = planned(model, "--loss", "mse", "--optimizer", "sgd", "--learning-rate", "0.5")
    out = model.with_name("trained.circle")
    done = arenaplan("export", plan, "--model", model, "-o", out)
    assert done.stdout == "trained.circle: SGD on mean-squared-error, batch 6, all weights\n"
    found = load_circle(out.read_bytes())
    assert found.training is not None
    assert dict(found.training.optimizer.attributes) == {"learning_rate": 0.5}
    assert found.graph.operands["x"].shape == (6, 4)
    # The new model says by itself what was said on the command line.
    again = out.with_name("again.json")
    arenaplan("plan", out, "-o", again)
    assert "Identical" in arenaplan("validate", out, again, "--steps", "1").output


def test_the_entry_point_that_trains_goes_into_its_model(model: Path) -> None:
    plan, out = model.with_name("device.json"), model.with_name("out.circle")
    entries = ("--entry", "train", "--entry", "infer:batch=1", "--entry", "evaluate")
    assert (
        arenaplan("plan", model, "--batch", "6", "--loss", "mse", *entries, "-o", plan).exit_code == Exit.OK
    )
    done = arenaplan("export", plan, "--model", model, "--entry-point", "train", "-o", out)
    assert "Adam on mean-squared-error, batch 6, all weights" in done.output
    for name in ("infer", "evaluate"):
        refused = arenaplan("export", plan, "--model", model, "--entry-point", name, "-o", out)
        assert refused.exit_code == Exit.USAGE
        assert "trains nothing" in refused.output
        assert "--entry-point train" in refused.output


def test_a_trainable_set_is_written_by_operators(model: Path) -> None:
    names = [name for name in load_circle(dense()).weights if name.startswith(("w1", "b1"))]
    plan = planned(model, "--trainable", ",".join(names))
    out = model.with_name("out.circle")
    facts = json.loads(arenaplan("export", plan, "--model", model, "-o", out, "--json").stdout)
    assert len(facts["operators"]) == 1
    assert set(load_circle(out.read_bytes()).graph.trainable) == set(names)


@pytest.mark.parametrize("some", [False, True])
def test_trained_weights_go_into_the_model(some: bool, model: Path) -> None:
    places = load_circle(dense()).weights
    values: dict[str, Any] = {n: v * 2 + 1 for n, v in weights_of(dense(), places).items()}
    if some:
        values = dict(list(values.items())[:1])
    np.savez(model.with_name("w.npz"), **values, step=np.array(3))
    out = model.with_name("out.circle")
    done = arenaplan(
        "export", planned(model), "--model", model, "--weights", model.with_name("w.npz"), "-o", out
    )
    assert f"{len(values)} of {len(places)} weights from w.npz" in done.output
    found = load_circle(out.read_bytes())
    for name, value in weights_of(out.read_bytes(), found.weights).items():
        np.testing.assert_array_equal(value, values.get(name, weights_of(dense(), places)[name]))


@pytest.mark.parametrize(
    ("loss", "attribute", "said"),
    [
        ("soft-cross-entropy", {"epsilon": 1e-7}, "epsilon 1e-07 of the cross entropy"),
        ("mse", {"reduction": "sum"}, "a sum over all elements"),
    ],
)
def test_a_loss_that_onert_takes_another_way(
    loss: str, attribute: dict[str, Any], said: str, model: Path
) -> None:
    document = model.with_name("graph.json")
    arenaplan("import", model, "--batch", "6", "--loss", loss, "-o", document)
    graph = json.loads(document.read_text())
    graph["operations"][-1].setdefault("attributes", {}).update(attribute)
    document.write_text(json.dumps(graph))
    arenaplan("plan", document, "-o", model.with_name("plan.json"))
    done = arenaplan("export", model.with_name("plan.json"), "--to", "circle", "--model", model)
    assert done.exit_code == Exit.USAGE
    assert said in done.output


def test_the_sum_of_squared_errors_is_written_as_onert_has_it(model: Path) -> None:
    training = CircleTraining(
        OptimizerSpec("SGD", {"learning_rate": 0.5}), "mean-squared-error", reduction="sum"
    )
    model.write_bytes(with_training(model.read_bytes(), training))
    out = model.with_name("out.circle")
    done = arenaplan("export", planned(model), "--model", model, "-o", out)
    assert done.exit_code == Exit.OK, done.output
    found = load_circle(out.read_bytes()).training
    assert found is not None
    assert found.reduction == "sum"


def test_a_plan_of_another_model(model: Path) -> None:
    other = model.with_name("other.tflite")
    file = CircleFile()
    file.operator("RELU", [file.input("x", (1, 4))], [out := file.tensor("out", (1, 4))])
    other.write_bytes(file.write(out, identifier=b"TFL3"))
    done = arenaplan("export", planned(model), "--model", other, "-o", model.with_name("out.circle"))
    assert done.exit_code == Exit.USAGE
    assert "Give the model that the plan was made from." in done.output


def test_weights_of_another_model(model: Path) -> None:
    weights = model.with_name("w.npz")
    for values, said in (({"u": np.zeros(3)}, "has no weight of the model"), ({"w0": np.zeros(3)}, "'w0'")):
        np.savez(weights, **values)  # type: ignore[arg-type]  # names, and not options
        out = model.with_name("out.circle")
        done = arenaplan("export", planned(model), "--model", model, "--weights", weights, "-o", out)
        assert (done.exit_code, said in done.output, out.exists()) == (Exit.USAGE, True, False)


def test_what_is_for_something_else_is_refused(model: Path) -> None:
    plan = planned(model)
    for arguments, said in (
        (("--to", "tflm"), "no longer written: --to c-training trains"),
        (("--to", "circle"), "Give --model model.circle"),
        (("--to", "circle", "--model", str(model), "--split"), "--split: This is for c-header"),
        (("--to", "c-header", "--model", str(model)), "--model: This is for circle"),
        (("--to", "elf"), "circle, c-training"),
    ):
        done = arenaplan("export", plan, *arguments)
        assert (done.exit_code, said in done.output) == (Exit.USAGE, True), done.output


@pytest.fixture
def for_c(tmp_path: Path) -> Path:
    path = tmp_path / "for_c.json"
    path.write_bytes(
        dump_plan(plan_requested(chain((8, 6, 4), 9), RequestedOptions(PlanOptions(target="c"))))
    )
    return path


def test_c_that_trains_is_a_directory_or_an_archive_of_the_same_files(for_c: Path, tmp_path: Path) -> None:
    folder, archive = tmp_path / "net", tmp_path / "net.zip"
    facts = json.loads(arenaplan("export", for_c, "--to", "c-training", "-o", folder, "--json").stdout)
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert files == c_files(load_plan(for_c.read_bytes()))
    assert facts["files"] == len(files)
    assert arenaplan("export", for_c, "--to", "c-training", "-o", archive).exit_code == Exit.OK
    assert archive.read_bytes() == zip_archive(c_files(load_plan(for_c.read_bytes())))
    blob = arenaplan("export", for_c, "--to", "c-training", "--weights", "blob", "-o", tmp_path / "blob")
    assert blob.exit_code == Exit.OK
    assert (tmp_path / "blob" / "net_weights.bin").stat().st_size == 84 + 4 * (8 * 6 + 6 + 6 * 4 + 4)


def test_c_that_trains_is_refused_by_name(for_c: Path, model: Path, tmp_path: Path) -> None:
    for plan, arguments, refusal in (
        (for_c, ("-o", tmp_path / "net.c"), "names one"),
        (for_c, (), "several files"),
        (for_c, ("--weights", "all", "-o", tmp_path / "net"), "Choose --weights embed"),
        (for_c, ("--prefix", "x", "-o", tmp_path / "net"), "--prefix: This is for c-header"),
        (planned(model), ("-o", tmp_path / "net"), "is for target 'reference'"),
    ):
        done = arenaplan("export", plan, "--to", "c-training", *arguments)
        assert (done.exit_code, refusal in " ".join(done.output.split())) == (Exit.USAGE, True), done.output
    assert not (tmp_path / "net").exists()


def test_first_values_of_a_model_with_open_dimensions_and_entry_points(tmp_path: Path) -> None:
    path, plan = tmp_path / "net.onnx", tmp_path / "plan.json"
    path.write_bytes(perceptron().SerializeToString())
    trained = ("--loss", "cross-entropy", "--optimizer", "sgd", "--target", "c", "-o", plan)
    one = (*trained, "--dim", "n=2")
    for options, choices in ((one, ("--dim", "n=2")), ((*one, "--entry", "train", "--entry", "infer"), ())):
        made = arenaplan("plan", path, *options)
        assert made.exit_code == Exit.OK, made.output
        export = ("export", plan, "--to", "c-training", "--model", path, "-o", tmp_path / "net")
        refused = arenaplan(*export)
        assert refused.exit_code == Exit.USAGE, refused.output
        done = arenaplan(*export, *(choices or ("--dim", "n=2", "--loss", "cross-entropy")))
        assert done.exit_code == Exit.OK, done.output
