"""The examples for builds: a CMake project that plans and compiles, a GitHub action, a budget file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.server import PATIENCE, ROOT

BUILDS = ROOT / "examples" / "builds"


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def run(*command: str | Path, folder: Path, code: int = 0) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(
    not all(map(shutil.which, ("cmake", "gcc", "make"))), reason="CMake, make or gcc is not installed"
)
def test_cmake(tmp_path: Path) -> None:
    project = shutil.copytree(BUILDS / "cmake", tmp_path / "examples" / "builds" / "cmake")
    shutil.copy(ROOT / "examples" / "mnist.json", tmp_path / "examples")
    build = tmp_path / "build"
    run("cmake", "-G", "Unix Makefiles", "-S", project, "-B", build, folder=tmp_path)
    run("cmake", "--build", build, folder=tmp_path)
    lines = run(build / "digits", folder=tmp_path).splitlines()
    size, steps = lines[0].split(" bytes, ")
    assert int(size) > 1_000_000
    assert int(steps.split()[0]) >= len(lines) - 1  # views have nothing to do
    assert lines[1].startswith("conv1:forward x0=")
    assert "Planning" not in run("cmake", "--build", build, folder=tmp_path)  # nothing has changed


def workflow(name: str) -> Any:
    return yaml.load((BUILDS / "github-action" / name).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)


def test_the_action_runs(tmp_path: Path) -> None:
    """Its script, as a runner calls it: a summary, a report, and the exit code."""
    action = workflow("action.yml")
    (step,) = action["runs"]["steps"]
    assert action["outputs"]["passed"]["value"] == f"${{{{ steps.{step['id']}.outputs.passed }}}}"
    (tmp_path / "budgets.toml").write_text(
        f'[[budget]]\nmodel = "{ROOT / "examples/mnist.json"}"\nmax_arena = 3\n', encoding="utf-8"
    )
    given = {"BUDGETS": "budgets.toml", "REPORT": action["inputs"]["report"]["default"]}
    given |= {"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "output"}
    assert set(step["env"]) == {"BUDGETS", "REPORT"}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env=environment() | given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "❌" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "output").read_text(encoding="utf-8") == "passed=false\n"
    assert "<failure" in (tmp_path / "arenaplan.xml").read_text(encoding="utf-8")


def test_the_workflow_uses_the_action() -> None:
    steps = workflow("memory.yml")["jobs"]["budgets"]["steps"]
    used = [step["uses"] for step in steps if "uses" in step]
    assert "./examples/builds/github-action" in used


def test_the_budgets_are_kept(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "service.cli", "budget", "check", BUILDS / "budgets.toml")
    assert run(*command, folder=tmp_path).splitlines()[-1] == "2 of 2 keep their budgets"
