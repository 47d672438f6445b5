"""Fixtures of several architecture tests: the tree, the tracked files, the built wheel."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def tracked(root: Path) -> tuple[Path, ...]:
    """Tracked files that exist, relative to the root."""
    if not (root / ".git").exists():
        pytest.skip("which files belong to the project is known in a git work tree only")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True, encoding="utf-8"
    )
    return tuple(Path(name) for name in listing.stdout.split("\0") if name and (root / name).is_file())


@pytest.fixture(scope="session")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as the image's builder stage makes it: by the locked backend, no network, no isolation."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built
