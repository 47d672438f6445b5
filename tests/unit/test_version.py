"""The version in the code is that of the distribution."""

from __future__ import annotations

import tomllib
from pathlib import Path

from solver.version import producer, version

ROOT = Path(__file__).resolve().parents[2]


def test_version_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert version() == project["version"]
    assert producer() == f"arenaplan {project['version']}"
