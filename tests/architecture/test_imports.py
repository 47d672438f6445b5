"""Tests which modules an import really loads, which the import contracts cannot see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def loaded(root: Path, module: str) -> set[str]:
    """Top-level modules in a fresh interpreter after importing `module`."""
    script = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    return set(run.stdout.split())


@pytest.mark.parametrize("module", ["service.http.app", "service.cli.commands", "solver.verify"])
def test_ortools_is_loaded_only_when_it_solves(root: Path, module: str) -> None:
    assert "ortools" not in loaded(root, module)


def test_clients_load_neither_the_core_nor_a_server(root: Path) -> None:
    heavy = {"solver", "service", "numpy", "ortools", "fastapi", "starlette", "uvicorn"}
    assert loaded(root, "clients") & heavy == set()


def test_core_loads_no_web_library(root: Path) -> None:
    web = {"fastapi", "starlette", "uvicorn", "httpx", "typer", "rich", "structlog"}
    assert loaded(root, "solver.pipeline") & web == set()
