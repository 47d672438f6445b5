"""Tests which modules an import really loads, which the import contracts cannot see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import imports_by_name

MODULES = {"solver.plan", "solver.exporters", "solver.exporters.html"}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('import_module("solver.exporters.html")', ["solver.exporters.html"]),
        ('import_module("solver.exporters.html:dump_report")', ["solver.exporters.html"]),
        ('TABLE = {"solver.plan": "Plan PlanView"}', ["solver.plan"]),
        ('import_module("numpy")', []),
        ('print("solver.plan is a package")', []),
        ('log = logger("solver.plan.plan")', []),  # the module itself
    ],
)
def test_strings_that_name_a_module_are_imports(source: str, named: list[str]) -> None:
    modules = {*MODULES, "solver.plan.plan"}
    assert [name for name, _ in imports_by_name("solver.plan.plan", source, modules)] == named


def test_registries_are_read(root: Path) -> None:
    """`./run lint` adds them to the graph of imports; this is one that it must not miss."""
    source = (root / "solver/exporters/registry.py").read_text(encoding="utf-8")
    names = {name for name, _ in imports_by_name("solver.exporters.registry", source, MODULES)}
    assert names == {"solver.exporters.html"}


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
