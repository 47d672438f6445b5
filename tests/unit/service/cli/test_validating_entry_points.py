"""`arenaplan validate` with plans that have entry points: every program in one arena, in a random order."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from service.cli.console import Exit
from solver.documents import dump_deployment, load_deployment, load_report
from solver.plan import with_deployment_digest, with_digest
from tests.support.commands import run
from tests.support.deployments import with_plan

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
MNIST = EXAMPLES / "mnist.json"
ENTRIES = ("--entry", "train:batch=4", "--entry", "infer:batch=1", "--entry", "evaluate:batch=2")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planned") / "plan.json"
    assert run("plan", MNIST, *ENTRIES, "-o", path).exit_code == Exit.OK
    return path


def test_entry_points_agree_bit_for_bit(planned: Path) -> None:
    result = run("validate", MNIST, planned, "--steps", "2")
    assert result.exit_code == Exit.OK, result.output
    assert "agree bit for bit after each of 6 runs of 3 entry points in" in result.stdout
    assert "entry point" in result.stdout
    report = load_report(run("validate", MNIST, planned, "--steps", "1", "--json").stdout.encode())
    assert report.identical
    assert sorted(step.entry for step in report.steps) == ["evaluate", "infer", "train"]
    assert {step.entry: step.loss is None for step in report.steps}["infer"]
    other = load_report(run("validate", MNIST, planned, "--seed", "4", "--json").stdout.encode())
    order = [step.entry for step in other.steps]
    assert sorted(order) == sorted(["evaluate", "infer", "train"] * 5) != order


def test_a_model_may_have_another_name(planned: Path, tmp_path: Path) -> None:
    shutil.copy(MNIST, tmp_path / "renamed.json")
    assert run("validate", tmp_path / "renamed.json", planned, "--steps", "1").exit_code == Exit.OK


def test_several_models(tmp_path: Path) -> None:
    models = [Path(shutil.copy(MNIST, tmp_path / f"{name}.json")) for name in ("a", "b")]
    entries = ("--entry", "a.train:batch=2", "--entry", "b.infer:batch=1")
    output = tmp_path / "plan.json"
    assert run("plan", *models, "--share", *entries, "--tie", "a.*=b.*", "-o", output).exit_code == Exit.OK
    result = run("validate", *reversed(models), output, "--steps", "2")
    assert result.exit_code == Exit.OK, result.output
    refused = run("validate", models[0], output)
    assert refused.exit_code == Exit.USAGE
    assert "Model 'b' is not there. Give each model of the plan by its name: a, b." in refused.output


def test_a_plan_in_which_a_weight_lies_elsewhere_is_not_run(planned: Path, tmp_path: Path) -> None:
    deployment = load_deployment(planned.read_bytes())
    infer = deployment["infer"].plan
    row = next(row for row in deployment.persistent if row.name == "conv1.weight")
    offsets = [*infer.offsets]
    offsets[row.values[1]] = infer.arena_bytes
    sizes = (infer.arena_bytes + infer.program.values[row.values[1]].type.nbytes,)
    moved = with_digest(replace(infer, offsets=tuple(offsets), sizes=sizes))
    wrong = with_deployment_digest(with_plan(deployment, "infer", moved))
    (tmp_path / "wrong.json").write_bytes(dump_deployment(wrong))
    result = run("validate", MNIST, tmp_path / "wrong.json")
    assert result.exit_code == Exit.WRONG
    assert "it was not run" in result.stdout
    assert json.loads(run("validate", MNIST, tmp_path / "wrong.json", "--json").stdout)["identical"] is False


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
def test_what_is_refused(models: tuple[Path, ...], more: tuple[str, ...], words: str, planned: Path) -> None:
    result = run("validate", *models, planned, *more)
    assert result.exit_code == Exit.USAGE
    assert words in result.stderr
    assert result.stdout == ""


def test_explicit_operations_have_no_kernels_here(tmp_path: Path) -> None:
    program = EXAMPLES / "programs" / "momentum.json"
    entries = ("--entry", "mnist.infer:batch=1", "--entry", "momentum.run")
    assert run("plan", MNIST, program, "--share", *entries, "-o", tmp_path / "plan.json").exit_code == Exit.OK
    result = run("validate", MNIST, program, tmp_path / "plan.json")
    assert result.exit_code == Exit.USAGE
    assert "Entry point 'momentum.run' runs explicit operations" in result.stderr


def test_a_plan_of_one_graph_takes_one_model(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run("plan", MNIST, "--batch", "2", "-o", plan).exit_code == Exit.OK
    result = run("validate", MNIST, MNIST, plan)
    assert result.exit_code == Exit.USAGE
    assert "The plan is of one graph, 'mnist', and there are 2 models." in result.stderr
