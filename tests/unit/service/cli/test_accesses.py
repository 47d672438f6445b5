"""`arenaplan accesses`: a log is recorded, checked, and what is wrong is printed with its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from solver import documents, pipeline
from tests.support.graphs import chain
from tests.support.onnx_models import perceptron


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    graph = chain((3, 2, 1), 2)
    (tmp_path / "graph.json").write_bytes(documents.dump_graph(graph))
    (tmp_path / "plan.json").write_bytes(documents.dump_plan(pipeline.plan(graph)))
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    plan, rest = str(folder / "plan.json"), [str(folder / a) if "." in a else a for a in arguments]
    return CliRunner().invoke(app, ["accesses", plan, *rest])


def recorded(folder: Path) -> list[str]:
    assert run(folder, "--record", "graph.json", "-o", "log.jsonl").exit_code == 0
    return (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()


def test_what_is_recorded_is_right(folder: Path) -> None:
    lines = recorded(folder)
    assert json.loads(lines[0])["format"] == "arenaplan.accesses"
    checked = run(folder, "log.jsonl")
    assert checked.exit_code == 0
    assert checked.stdout == f"All {len(lines) - 1} accesses are as planned.\n"


def test_a_missing_write_is_named(folder: Path) -> None:
    lines = recorded(folder)
    read = {line.partition('"space"')[2] for line in lines if '"access":"read"' in line}
    first = next(
        k for k, line in enumerate(lines) if '"write"' in line and line.partition('"space"')[2] in read
    )
    (folder / "log.jsonl").write_text("\n".join(lines[:first] + lines[first + 1 :]), encoding="utf-8")
    checked = run(folder, "log.jsonl")
    assert checked.exit_code == 1
    assert ": unwritten: " in checked.stdout.splitlines()[0]
    as_json = run(folder, "log.jsonl", "--json")
    assert as_json.exit_code == 1
    facts = json.loads(as_json.stdout)
    assert facts["right"] is False
    assert facts["faults"][0]["rule"] == "unwritten"


def test_bad_input(folder: Path) -> None:
    (folder / "log.jsonl").write_text('{"step": 99}', encoding="utf-8")
    found = run(folder, "log.jsonl")
    assert found.exit_code == 2
    assert "#/0: Line 1 is of step 99, which the plan does not have." in found.stderr
    assert run(folder).exit_code == 2
    assert run(folder, "log.jsonl", "--record", "graph.json").exit_code == 2


def test_a_model_is_recorded_with_its_choices(tmp_path: Path) -> None:
    model, plan, log = (str(tmp_path / name) for name in ("model.onnx", "plan.json", "log.jsonl"))
    Path(model).write_bytes(perceptron().SerializeToString())
    choices = ("--loss", "mse", "--dim", "n=4")
    assert CliRunner().invoke(app, ["plan", model, *choices, "-o", plan]).exit_code == 0
    made = CliRunner().invoke(app, ["accesses", plan, "--record", model, *choices, "-o", log])
    assert made.exit_code == 0, made.output
    assert CliRunner().invoke(app, ["accesses", plan, log]).exit_code == 0
    refused = CliRunner().invoke(app, ["accesses", plan, log, *choices])
    assert (refused.exit_code, "is for --record" in refused.output) == (2, True)
