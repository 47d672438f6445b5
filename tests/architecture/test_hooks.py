"""Hooks for commits are local: they run the project's own tools and fetch nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture(scope="module")
def hooks(root: Path) -> list[dict[str, Any]]:
    configuration = yaml.safe_load((root / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repository["repo"] for repository in configuration["repos"]} == {"local"}
    return [hook for repository in configuration["repos"] for hook in repository["hooks"]]


def test_they_come_from_the_environment_of_the_project(hooks: list[dict[str, Any]]) -> None:
    assert {hook["language"] for hook in hooks} == {"system"}
    commands = {hook["entry"].split()[0] for hook in hooks}
    assert {name for name in commands if not name.startswith((".venv/bin/", "./run"))} == set()


def test_lint_runs_the_same_tools(root: Path, hooks: list[dict[str, Any]]) -> None:
    script = (root / "run").read_text(encoding="utf-8")
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert {"ruff", "mypy", "python", "shellcheck"} <= tools
    assert {tool for tool in tools - {"./run", "python"} if f"$venv/bin/{tool}" not in script} == set()
