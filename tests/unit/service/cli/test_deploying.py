"""`arenaplan plan` with entry points, and with several models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from service.cli.console import Exit
from solver.documents import dump_deployment, load_deployment, load_planned

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
MNIST = EXAMPLES / "mnist.json"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_entry_points_of_one_model(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    entries = ("--entry", "train", "--entry", "infer:batch=1", "--entry", "evaluate:batch=64")
    result = run("plan", MNIST, "--batch", "32", *entries, "--json", "-o", output)
    assert result.exit_code == Exit.OK, result.output
    summary = json.loads(result.stdout)
    assert [entry["name"] for entry in summary["entry_points"]] == ["train", "infer", "evaluate"]
    assert [entry["batch"] for entry in summary["entry_points"]] == [32, 1, 64]
    assert summary["arena_bytes"] == summary["lower_bound"] == 21_613_184
    deployment = load_planned(output.read_bytes())
    assert dump_deployment(load_deployment(output.read_bytes()), indent=2) + b"\n" == output.read_bytes()
    assert deployment.digest == summary["digest"]


def test_the_table_of_entry_points(tmp_path: Path) -> None:
    result = run("plan", MNIST, "--entry", "train", "--entry", "infer", "-o", tmp_path / "plan.json")
    assert "nothing smaller exists" in result.stdout
    assert "evaluate" not in result.stdout


def test_several_models_share_an_arena(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    shutil.copy(MNIST, other)
    refused = run("plan", MNIST, other)
    assert refused.exit_code == Exit.USAGE
    assert "--share" in refused.output
    result = run("plan", MNIST, other, "--share", "--tie", "mnist.*=other.*", "-o", "-")
    deployment = load_deployment(result.stdout.encode())
    assert [entry_point.name for entry_point in deployment.entry_points] == ["mnist", "other"]
    parameters = [row.name for row in deployment.persistent if "@" not in row.name]
    assert {name.partition(".")[0] for name in parameters} == {"mnist"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((MNIST, "--entry", "fit"), "is no entry point"),
        ((MNIST, "--entry", "infer", "--entry", "infer:batch=1"), "Two entry points are called 'infer'"),
        ((MNIST, "--entry", "other.infer"), "which is not there"),
        ((MNIST, "--tie", "a"), "ties nothing"),
        ((MNIST, MNIST, "--share"), "Two models are called 'mnist'"),
        ((MNIST, "--entry", "train", "--rewrite"), "take no rewrite"),
        ((EXAMPLES / "programs" / "momentum.json", "--entry", "train"), "run as it is"),
    ],
)
def test_what_is_refused(arguments: tuple[str | Path, ...], words: str, tmp_path: Path) -> None:
    result = run("plan", *arguments, "-o", tmp_path / "plan.json")
    assert result.exit_code == Exit.USAGE
    assert words in " ".join(result.output.split())
    assert not (tmp_path / "plan.json").exists()
