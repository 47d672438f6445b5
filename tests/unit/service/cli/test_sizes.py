"""Ranges of sizes on the command line: one plan, the largest size, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from service.cli.console import Exit
from solver.documents import dump_graph, load_plan
from solver.plan import SizeRange
from tests.support.commands import run
from tests.support.graphs import chain
from tests.support.onnx_models import perceptron
from tests.support.sizes import SEQUENCES


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(SEQUENCES))
    return path


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ONNX model whose batch is open."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.onnx"
    path.write_bytes(perceptron().SerializeToString())
    return path


def ranges(path: Path) -> tuple[SizeRange, ...]:
    sizes = load_plan(path.read_bytes()).planned_sizes
    return () if sizes is None else sizes.ranges


def test_one_plan_for_a_range_is_shown_and_validated(graph: Path, tmp_path: Path) -> None:
    assert run("plan", graph, "--batch", "1..4", "--dim", "seq=2..6", "-o", "plan.json").exit_code == Exit.OK
    assert ranges(tmp_path / "plan.json") == (SizeRange("batch", 1, 4), SizeRange("seq", 2, 6))
    assert "batch 1..4, seq 2..6: 20 in one arena, all of them proved" in run("show", "plan.json").stdout
    result = run("validate", graph, "plan.json", "--steps", "3")
    assert result.exit_code == Exit.OK, result.output
    assert "Identical" in result.stdout
    assert "batch 4, seq 6" in result.stdout
    report = json.loads(run("validate", graph, "plan.json", "--steps", "2", "--json").stdout)
    assert len({step["size"] for step in report["steps"]}) == 3


def test_one_size_of_a_dimension(graph: Path, tmp_path: Path) -> None:
    assert run("plan", graph, "--dim", "seq=9", "-o", "plan.json").exit_code == Exit.OK
    assert ranges(tmp_path / "plan.json") == (SizeRange("seq", 9, 9),)
    assert run("validate", graph, "plan.json", "--steps", "1").exit_code == Exit.OK


def test_a_model_of_another_tool(model: Path, tmp_path: Path) -> None:
    choices = ("--loss", "mse", "--dim", "n=1..5")
    assert run("plan", model, *choices, "-o", "plan.json").exit_code == Exit.OK
    assert ranges(tmp_path / "plan.json") == (SizeRange("n", 1, 5),)
    assert run("validate", model, "plan.json", *choices, "--steps", "2").exit_code == Exit.OK
    assert run("plan", model, "--loss", "mse", "--batch", "2..5", "-o", "plan.json").exit_code == Exit.OK
    assert ranges(tmp_path / "plan.json") == (SizeRange("batch", 2, 5),)
    assert run("validate", model, "plan.json", "--loss", "mse", "--steps", "2").exit_code == Exit.OK


def test_a_claim_that_is_not_true_is_wrong(graph: Path, tmp_path: Path) -> None:
    """Proved for another graph, whose weight grows with the length."""
    run("plan", graph, "--dim", "seq=5..6", "-o", "plan.json")
    other = json.loads(graph.read_text(encoding="utf-8"))
    other["operands"][2]["shape"] = [4, 3]
    other["operations"][0]["inputs"] = ["x", "w"]
    other["operands"][0]["shape"] = ["batch", 6, 4]
    other["operands"][1]["shape"] = ["batch", 6, 3]
    del other["dims"]
    graph.write_text(json.dumps(other), encoding="utf-8")
    result = run("validate", graph, "plan.json", "--steps", "1")
    assert result.exit_code == Exit.WRONG
    assert "no symbolic dimension 'seq'" in result.stdout


def test_the_largest_batch_with_its_plan(graph: Path, tmp_path: Path) -> None:
    result = run("explain", graph, "--capacity", "4kB", "--largest", "batch", "-o", "plan.json")
    assert result.exit_code == Exit.OK, result.output
    plan = load_plan((tmp_path / "plan.json").read_bytes())
    assert plan.arena_bytes <= 4_000
    assert f"the largest batch is {plan.options.batch}, in {plan.arena_bytes:,}" in result.stdout
    assert "No larger one fits" in result.stdout
    assert run("validate", graph, "plan.json", "--steps", "1").exit_code == Exit.OK
    asked = ("explain", graph, "--capacity", "4kB", "--largest", "batch", "--json", "--keep-training")
    facts = json.loads(run(*asked).stdout)
    assert (facts["largest"], facts["exact"]) == (plan.options.batch, True)


def test_the_largest_length_and_what_makes_the_next_one_fit(graph: Path, tmp_path: Path) -> None:
    result = run("explain", graph, "--capacity", "4kB", "--largest", "seq", "-o", "plan.json")
    assert result.exit_code == Exit.OK, result.output
    (most,) = ranges(tmp_path / "plan.json")
    assert f"the largest seq is {most.most}" in result.stdout
    commands = [line.strip() for line in result.stdout.splitlines() if line.startswith("   arenaplan plan")]
    assert commands
    for command in commands:
        assert f"seq={most.most + 1}" in command
        assert run(*shlex.split(command)[1:]).exit_code == Exit.OK, command


def test_the_largest_batch_of_a_model(model: Path) -> None:
    choices = ("--loss", "mse", "--capacity", "20kB", "--keep-training", "--json")
    facts = json.loads(run("explain", model, *choices, "--largest", "batch").stdout)
    assert facts["largest"] > 1
    assert facts["exact"]


def test_a_capacity_that_not_even_one_fits(graph: Path) -> None:
    result = run("explain", graph, "--capacity", "100B", "--largest", "batch", "--keep-training")
    assert result.exit_code == Exit.TOO_LARGE
    assert "not even a batch of 1 fits" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("plan graph.json --batch 1..x", "or a range as 1..32"),
        ("plan graph.json --dim seq=4..1", "--dim: The range seq 4..1 is upside down."),
        ("plan graph.json --dim seq", "--dim: The dimension is 'seq'. Give a name and a size"),
        ("plan graph.json --dim seq=1..2 --dim seq=3", "'seq' is given twice"),
        ("plan graph.json --dim width=1..2", "no shape of 'sequences' names it"),
        ("plan fixed.json --batch 1..2", "no shape"),
        ("plan graph.json --batch 1..2 --target onert", "set up for one size"),
        ("plan graph.json --batch 1..2 --entry train", "Each entry point is of one size"),
        (
            "plan graph.json --batch 1..2 --plans 2 -o plans",
            "plan each part of a range by itself, as --batch 1..7",
        ),
        ("explain graph.json --capacity 1MB -o plan.json", "Add --largest batch"),
        ("explain graph.json --capacity 1MB --largest width", "no symbolic dimension 'width'"),
        ("explain graph.json --capacity 1MB --largest batch --server http://x", "Leave out --server."),
    ],
)
def test_what_is_refused(graph: Path, tmp_path: Path, words: str, message: str) -> None:
    (tmp_path / "fixed.json").write_bytes(dump_graph(chain()))
    result = run(*words.split())
    assert result.exit_code == Exit.USAGE, result.output
    assert message in result.output
    assert not (tmp_path / "plans").exists()


def test_outputs_of_a_short_batch(graph: Path, tmp_path: Path) -> None:
    """Labels that the file lacks are zeros, of as many examples as it has."""
    graph.write_text(json.dumps(SEQUENCES | {"outputs": ["y"]}), encoding="utf-8")
    assert run("plan", graph, "--batch", "1..4", "--dim", "seq=2..9", "-o", "plan.json").exit_code == Exit.OK
    np.savez(tmp_path / "batch.npz", x=np.ones((3, 5, 4), np.float32))
    result = run("run", "plan.json", "--graph", graph, "--input", "batch.npz", "-o", "outputs.npz")
    assert result.exit_code == Exit.OK, result.output
    assert np.load(tmp_path / "outputs.npz")["y"].shape == (3, 5, 3)
    np.savez(tmp_path / "batch.npz", x=np.ones((5, 5, 4), np.float32))
    result = run("run", "plan.json", "--graph", graph, "--input", "batch.npz", "-o", "outputs.npz")
    assert result.exit_code == Exit.USAGE
    assert "The batch is 5; the plan serves batch 1..4, seq 2..9." in result.output


def test_a_model_goes_to_no_service_with_a_range(model: Path) -> None:
    result = run(
        "plan", model, "--loss", "mse", "--batch", "1..4", "--server", "http://127.0.0.1:1", "-o", "p"
    )
    assert result.exit_code == Exit.USAGE
    assert "Leave out --server" in result.output
