"""The README names every setting, every command and every target of `./run`."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from service.cli.commands import app
from service.settings import Settings
from solver.plan import PlanOptions


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text()


def test_settings(readme: str) -> None:
    wanted = {f"ARENAPLAN_{name.upper()}" for name in Settings.model_fields}
    assert wanted - set(re.findall(r"ARENAPLAN_[A-Z_]+", readme)) == set()


def test_no_setting_is_made_up(root: Path, readme: str) -> None:
    """Beside the service's settings there are those of `./run`."""
    known = {f"ARENAPLAN_{name.upper()}" for name in Settings.model_fields}
    of_run = set(re.findall(r"ARENAPLAN_[A-Z]+", (root / "run").read_text()))
    of_compose = set(re.findall(r"ARENAPLAN_[A-Z_]+", (root / "deploy/compose.yaml").read_text()))
    assert set(re.findall(r"ARENAPLAN_[A-Z_]*[A-Z]", readme)) - known - of_run - of_compose == set()


def test_commands(readme: str) -> None:
    commands = vars(get_command(app))["commands"]
    assert {name for name in commands if f"arenaplan {name}" not in readme} == set()


def test_plan_options(readme: str) -> None:
    rows = set(re.findall(r"^\| `([a-z_]+)`", readme, re.MULTILINE))
    assert {field.name for field in fields(PlanOptions)} - rows == set()


def test_run(root: Path, readme: str) -> None:
    usage = (root / "run").read_text().split("TEXT")[1]
    targets = re.findall(r"^  ([a-z]+) ", usage, re.MULTILINE)
    assert {name for name in targets if f"./run {name}" not in readme} == set()


def test_files_that_are_named_exist(root: Path) -> None:
    """In solver/README.md, relative to it or to the project."""
    named = set(re.findall(r"`((?:\w+/)+\w+(?:\.py|\.json)?)`", (root / "solver/README.md").read_text()))
    assert "training/derive.py" in named
    assert {
        name for name in named if not any((base / name).exists() for base in (root, root / "solver"))
    } == set()


def test_links_lead_somewhere(root: Path) -> None:
    pages = [path for path in root.rglob("*.md") if not any(part.startswith(".") for part in path.parts)]
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
