"""`arenaplan plan` tells a program from a graph by its format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from service.cli.console import Exit

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "programs" / "momentum.json"


def run(*arguments: str | Path, document: Any = None) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], input=json.dumps(document))


def test_a_program_is_planned_and_shown(tmp_path: Path) -> None:
    result = run("plan", EXAMPLE, "-o", tmp_path / "plan.json", "--json")
    assert result.exit_code == Exit.OK
    summary = json.loads(result.stdout)
    assert (summary["graph"], summary["target"], summary["steps"]) == ("linear with momentum", "program", 6)
    assert summary["arena_bytes"] == summary["lower_bound"]
    shown = json.loads(run("show", tmp_path / "plan.json", "--json").stdout)
    assert shown["recycling"]["kept"] == ["w", "loss", "w.momentum"]
    assert [step["freed"] for step in shown["recycling"]["steps"]] == [
        [], ["label"], [], ["x", "y"], ["dw"], [],
    ]  # fmt: skip
    assert run("show", tmp_path / "plan.json").exit_code == Exit.OK


@pytest.mark.parametrize("document", [[], 7, None, {"format": "arenaplan.programme"}, {"format": []}])
def test_anything_else_is_taken_for_a_graph(document: Any) -> None:
    result = run("plan", "-", document=document)
    assert result.exit_code == Exit.USAGE
    assert "arenaplan.graph" in result.stderr


def test_a_document_has_no_kernels_to_validate(tmp_path: Path) -> None:
    """The command says where there are some."""
    plan = tmp_path / "plan.json"
    assert run("plan", EXAMPLE, "-o", plan).exit_code == Exit.OK
    result = run("validate", EXAMPLE, plan)
    assert result.exit_code == Exit.USAGE
    assert "'momentum.json' is a program of explicit operations, whose kernels are not here" in result.stderr
    assert "arenaplan.validate(step, plan)" in result.stderr
