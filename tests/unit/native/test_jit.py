"""What is kept of compiled code holds for one state of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from solver.layout.kernels import jit
from solver.layout.model.instance import Integers

LAYOUT = Path(jit.__file__).parents[1]

PRINT_STAMP = """
import sys; sys.path.insert(0, '.')
from solver.layout.kernels.stamp import stamp
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
        if re.search(r"^@(compiled|inlined)$", text, re.MULTILINE):
            assert not re.search(r"^import solver|^from solver(\.layout(\.\w+)?)? import", text, re.MULTILINE)


_KEPT = """
from typing import NamedTuple
import numpy as np
from solver.native import {imports}
import sys

class {name}(NamedTuple):
    one: np.ndarray
    two: int

@inlined
def twice(x):
    return 2 * x

@compiled
def total(pair: {name}, more: float, flags) -> int:
    found = 0
    for number in pair.one:
        found += twice(number)
    return found + pair.two + int(more * 2) + len(flags)

print(total({name}(np.arange(4), {two}), 1.5, np.zeros((2, 3), np.uint8)), "numba" in sys.modules)
"""


def run_kept(place: Path, name: str = "Pair", two: str = "7") -> str:
    text = _KEPT.format(name=name, two=two, imports="compiled, inlined")
    (place / "kept.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(place)!r}); import kept"],
        cwd=LAYOUT.parents[1],
        env={**os.environ, "NUMBA_CACHE_DIR": str(place / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_kept_runs_without_numba(tmp_path: Path) -> None:
    assert run_kept(tmp_path) == "24 True\n"
    assert [path.name.split("-")[0] for path in (tmp_path / "cache").iterdir()] == ["kept.total"]
    assert run_kept(tmp_path) == "24 False\n"


def test_what_is_kept_for_arguments_of_other_types_is_compiled_anew(tmp_path: Path) -> None:
    assert run_kept(tmp_path) == "24 True\n"
    assert run_kept(tmp_path, two="7.0") == "24 True\n"


def test_what_is_kept_of_a_type_that_has_another_name_now_still_runs(tmp_path: Path) -> None:
    """As after an update in place: code is called with numbers and knows no types of Python's."""
    assert run_kept(tmp_path, name="Old") == "24 True\n"
    assert run_kept(tmp_path, name="New") == "24 False\n"


class Pair(NamedTuple):
    numbers: Integers
    factor: int


@jit.inlined
def _part(x: int) -> int:
    return x + 1


@jit.compiled
def _scaled(pair: Pair, row: Integers, most: float) -> bool:
    """Scales in place; whether all stayed below `most`."""
    below = True
    for i in range(len(row)):
        row[i] = _part(pair.numbers[i] * pair.factor)
        below = below and row[i] < most
    return below


@jit.compiled
def _filled(row: Integers) -> None:
    for i in range(len(row)):
        row[i] = 5


class TestCalls:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def test_numbers_arrays_and_tuples(self) -> None:
        row, numbers = np.zeros(3, np.int64), np.arange(3)
        assert _scaled(Pair(numbers, 4), row, 9.5) is True
        assert row.tolist() == [1, 5, 9]
        assert _scaled(Pair(numbers, 4), row, 9.0) is False
        assert _filled(row) is None
        assert row.tolist() == [5, 5, 5]

    def test_addresses_that_were_looked_up(self) -> None:
        row, numbers = np.zeros(3, np.int64), np.arange(3)
        pair, known = jit.addressed(Pair(numbers, 2)), jit.addressed(row)
        assert _scaled(pair, known, 100.0)
        numbers[:] = 7
        assert _scaled(pair, known, 100.0)
        assert row.tolist() == [15, 15, 15]

    def test_arguments_of_other_types_are_refused(self) -> None:
        row, pair = np.zeros(3, np.int64), Pair(np.arange(3), 2)
        assert _scaled(pair, row, 100.0)
        with pytest.raises(TypeError, match=r"is int32\[1\], not int64\[1\]"):
            _scaled(pair, row.astype(np.int32), 100.0)
        with pytest.raises(TypeError, match=r"is int64\[2\], not int64\[1\]"):
            _scaled(pair, np.zeros((3, 1), np.int64), 100.0)
        with pytest.raises(TypeError, match="compiled for"):
            _scaled(pair, jit.addressed(np.zeros((3, 1), np.int64)), 100.0)
        with pytest.raises(ValueError, match="does not lie in one piece"):
            _scaled(pair, np.zeros(6, np.int64)[::2], 100.0)

    def test_nothing_is_compiled_where_only_what_is_kept_may_run(self) -> None:
        @jit.compiled
        def fresh(x: int) -> int:
            return x

        with jit.only_kept(), pytest.raises(RuntimeError, match="fresh was not compiled before"):
            fresh(1)
        assert not jit.runs_compiled(fresh)
        assert fresh(1) == 1
        assert jit.runs_compiled(fresh)

    def test_plain_functions_run_as_python_where_nothing_compiles(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[object] = []
        monkeypatch.setattr(jit, "warn_uncompiled", said.append)

        def added(row: Integers, x: int) -> int:
            return int(row[0]) + x

        one = jit.compiled(added, plain=True)
        with jit.only_kept():
            assert one(jit.addressed(np.ones(1, np.int64)), 2) == 3
        assert not jit.runs_compiled(one)
        assert [str(reason).endswith("added was not compiled before") for reason in said] == [True]
