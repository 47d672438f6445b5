"""The public names of each package are pinned: a name cannot appear, move or vanish unnoticed.

After a change that is meant, `python tests/architecture/test_public_names.py` writes the pin again.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIN = Path(__file__).with_name("public_names.json")


def packages() -> list[str]:
    """Dotted names of all packages, and of the modules of the core that are entry points themselves."""
    found = (
        path.parent.relative_to(ROOT)
        for top in ("arenaplan", "clients", "service", "solver")
        for path in sorted((ROOT / top).rglob("__init__.py"))
    )
    reports = (path.stem for path in sorted((ROOT / "solver/reports").glob("[!_]*.py")))
    modules = ["solver.errors", "solver.placement", *(f"solver.reports.{name}" for name in reports)]
    return [*(".".join(path.parts) for path in found), *modules]


def offered(package: str) -> list[str]:
    return sorted(getattr(importlib.import_module(package), "__all__", []))


def test_pin() -> None:
    assert {package: offered(package) for package in packages()} == json.loads(
        PIN.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("package", packages())
def test_every_offered_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in offered(package) if not hasattr(module, name)] == []


if __name__ == "__main__":
    PIN.write_text(
        json.dumps({package: offered(package) for package in packages()}, indent=2) + "\n", encoding="utf-8"
    )
