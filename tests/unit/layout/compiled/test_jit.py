"""What is kept of compiled code holds for one state of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from solver.layout.compiled import jit

LAYOUT = Path(jit.__file__).parents[1]

PRINT_STAMP = """
import sys; sys.path.insert(0, '.')
from solver.layout.compiled.stamp import stamp
print(stamp())
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(LAYOUT.parent, tmp_path / "solver", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def stamp(root: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", PRINT_STAMP], cwd=root, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("module", "counts"),
    [
        ("compiled/skyline_kernel", True),
        ("compiled/skyline_state", True),
        ("compiled/priorities", True),
        ("model/instance", True),
        ("check/sweep", True),
        ("portfolio", False),
    ],
)
def test_sources_of_constants_count_and_others_do_not(copied: Path, module: str, counts: bool) -> None:
    before = stamp(copied)
    source = copied / "solver" / "layout" / f"{module}.py"
    source.write_text(source.read_text(encoding="utf-8") + "\nCHANGED = 1\n", encoding="utf-8")
    assert (stamp(copied) != before) is counts


def test_compiled_functions_name_what_they_use() -> None:
    """The stamp follows `from solver.layout.room.x import`; nothing compiled reaches constants otherwise."""
    for path in LAYOUT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "from solver.layout.compiled.jit import" in text:
            assert not re.search(r"^import solver|^from solver(\.layout(\.\w+)?)? import", text, re.MULTILINE)


def test_what_is_not_kept_is_compiled_although_other_code_was_loaded() -> None:
    """Loading leaves the compiler unready; a function that is not compiled yet makes it ready."""
    from solver.layout.exact.feasibility import compiled_search

    assert compiled_search() is not None

    def total(numbers: np.ndarray) -> int:
        found = 0
        for number in numbers:
            found += number
        return found

    assert numba.njit(total)(np.arange(5)) == 10


_SUM = """
from typing import NamedTuple
from solver.layout.compiled.jit import compiled

class {name}(NamedTuple):
    one: int
    two: int

@compiled
def total(pair):
    return pair.one + pair.two

print(total({name}(3, 4)))
"""


def test_what_is_kept_of_a_type_that_has_another_name_now_is_compiled_anew(tmp_path: Path) -> None:
    """As after an update in place; compiled code would be given up for good otherwise."""
    for name in ("Old", "New"):
        (tmp_path / "kept.py").write_text(_SUM.format(name=name), encoding="utf-8")
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kept"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=LAYOUT.parents[1],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert list(tmp_path.rglob("*.nbi"))
