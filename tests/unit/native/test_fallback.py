"""Where nothing compiles, or compiled code can be kept nowhere, in a process of its own: one note."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

_SOLVE = """
import logging, random
logging.basicConfig(format="%(name)s: %(message)s")
from solver.layout import Status, solve
from tests.support.buffers import tight_problem
from tests.support.training_shaped import training_shaped
tight = tight_problem(random.Random(4))
for problem in (tight, training_shaped(20, buffers=60), training_shaped(1, buffers=300)):
    for solver in ("portfolio", "greedy"):
        print(solve(problem, solver=solver).status is not Status.UNKNOWN)
large = training_shaped(1, buffers=4200)
print(solve(large, solver="first-fit").layout is not None)
"""


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """The sources without compiled code, and a file where it would be kept: not even root can write there."""
    shutil.copytree(ROOT / "solver", tmp_path / "solver", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / "support", tmp_path / "tests" / "support")
    (tmp_path / "solver" / "native" / "__pycache__").touch()
    return tmp_path


def run(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _SOLVE],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_place_for_compiled_code_that_cannot_be_written(unwritable: Path) -> None:
    nowhere = str(unwritable / "solver" / "native" / "__pycache__" / "below a file")
    done = run(unwritable, HOME=nowhere, XDG_CACHE_HOME=nowhere, NUMBA_CACHE_DIR=nowhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 7
    (warning,) = done.stderr.strip().splitlines()
    assert warning == (
        "solver.native: No directory is writable, so each process compiles anew: set NUMBA_CACHE_DIR."
    )


def test_a_filled_cache_is_read_where_the_first_place_cannot_be_written() -> None:
    done = run(ROOT, NUMBA_CACHE_DIR=str(ROOT / "pyproject.toml" / "below a file"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 7
    assert done.stderr == ""


def test_without_numba(unwritable: Path) -> None:
    (unwritable / "numba.py").write_text("raise ImportError('there is no numba here')\n", encoding="utf-8")
    done = run(unwritable, HOME=str(unwritable / "home"), XDG_CACHE_HOME="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 7
    assert done.stderr.strip().endswith("which is slow: there is no numba here")
    assert done.stderr.count("\n") == 1
