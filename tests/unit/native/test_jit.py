"""Compiled functions: their arguments, when they are compiled again, and Python in their place."""

from __future__ import annotations

import itertools
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from solver.layout.model.instance import Integers
from solver.native import (
    addressed,
    compiled,
    compiling_after,
    deadline_of,
    inlined,
    may_compile,
    runs_compiled,
)

ROOT = Path(__file__).resolve().parents[3]

_KEPT = """
from typing import NamedTuple
import sys
import numpy as np
from solver.native import compiled, compiling_after, inlined

FACTOR = {factor}

class {name}(NamedTuple):
    {fields}

@inlined
def twice(x):
    {remark}
    return FACTOR * x

@compiled
def total(pair: {name}, more: float, flags) -> int:
    '''{words}'''
    found = 0
    for number in pair.one:
        found += twice(number)
    return found + pair.two + int(more * 2) + len(flags)

pair = {name}(one=np.arange(4), two={two})
with compiling_after(0):
    print(total(pair, 1.5, np.zeros((2, 3), np.uint8)), "numba" in sys.modules)
"""

_USUAL = {
    "factor": "2", "name": "Pair", "fields": "one: np.ndarray; two: int",
    "remark": "pass", "words": "", "two": "7",
}  # fmt: skip


def run_kept(place: Path, **changes: str) -> str:
    (place / "kept.py").write_text(_KEPT.format_map(_USUAL | changes), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(place)!r}); import kept"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": str(place / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kept_code_runs_without_numba_while_it_means_the_same(tmp_path: Path) -> None:
    assert run_kept(tmp_path) == "24 True\n"
    assert [path.name.split("-")[0] for path in (tmp_path / "cache").glob("*-*")] == ["kept.total"]
    assert run_kept(tmp_path) == "24 False\n"
    same = {
        "another class": {"name": "New"},
        "a comment": {"remark": "pass  # twice"},
        "a docstring": {"words": "?"},
    }
    assert {reason: run_kept(tmp_path, **changes) for reason, changes in same.items()} == dict.fromkeys(
        same, "24 False\n"
    )
    assert run_kept(tmp_path, factor="3") == "30 True\n", "a constant of an inlined part has changed"
    assert run_kept(tmp_path, two="7.0") == "24 True\n", "an argument has another type"
    assert run_kept(tmp_path, fields="two: int; one: np.ndarray") == "24 True\n", "fields have changed places"
    assert run_kept(tmp_path) == "24 False\n", "older code is still there"


class Pair(NamedTuple):
    numbers: Integers
    factor: int
    rows: np.ndarray[tuple[int, int], np.dtype[np.int16]]


def pair(factor: int) -> Pair:
    return Pair(np.arange(3), factor, np.arange(6, dtype=np.int16).reshape(2, 3))


@inlined
def _part(pair: Pair, i: int) -> int:
    return int(pair.numbers[i] * pair.factor + pair.rows[0, 0] + pair.rows[1, -3] - len(pair.rows))


@compiled
def _scaled(pair: Pair, row: Integers, most: float) -> bool:
    """Scales in place; returns whether all stayed below `most`."""
    below = True
    for i in range(len(row)):
        row[i] = _part(pair, i)
        below = below and row[i] < most
    return below


@compiled
def _filled(row: Integers) -> None:
    for i in range(len(row)):
        row[i] = 5


class TestCalls:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
        with compiling_after(0):
            yield

    def test_numbers_arrays_and_tuples(self) -> None:
        row = np.zeros(3, np.int64)
        assert _scaled(pair(4), row, 9.5) is True
        assert row.tolist() == [1, 5, 9]
        assert _scaled(pair(4), row, 9.0) is False
        assert _filled(row) is None
        assert row.tolist() == [5, 5, 5]

    def test_addresses_that_were_looked_up(self) -> None:
        row, twice = np.zeros(3, np.int64), pair(2)
        known, place = addressed(twice), addressed(row)
        assert _scaled(known, place, 100.0)
        twice.numbers[:] = 7
        assert _scaled(known, place, 100.0)
        assert row.tolist() == [15, 15, 15]

    def test_arguments_of_other_types_are_refused(self) -> None:
        row = np.zeros(3, np.int64)
        assert _scaled(pair(2), row, 100.0)
        with pytest.raises(TypeError, match=r"is int32\[1\], not int64\[1\]"):
            _scaled(pair(2), row.astype(np.int32), 100.0)
        with pytest.raises(TypeError, match=r"is int64\[2\], not int64\[1\]"):
            _scaled(pair(2), np.zeros((3, 1), np.int64), 100.0)
        with pytest.raises(TypeError, match=r"is int64\[2\], not int64\[1\]"):
            _scaled(pair(2), addressed(np.zeros((3, 1), np.int64)), 100.0)
        with pytest.raises(ValueError, match="is not C-contiguous"):
            _scaled(pair(2), np.zeros(6, np.int64)[::2], 100.0)

    def test_a_function_is_compiled_once_it_has_run_long_enough(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = itertools.count()  # each look at the clock, a second later
        monkeypatch.setattr("solver.native.time.perf_counter", lambda: next(seconds))
        added, row, compiled_calls = compiled(_added), np.ones(1, np.int64), []
        with compiling_after(3):
            for _ in range(5):
                assert added(row, 2) == 3
                compiled_calls.append(runs_compiled(added))
        assert compiled_calls == [False, False, False, True, True]

    @pytest.mark.parametrize("seconds", [0.1, 60.0])
    def test_nothing_is_compiled_within_a_short_deadline(self, seconds: float) -> None:
        added, row = compiled(_added), np.ones(1, np.int64)
        with deadline_of(seconds):
            assert not may_compile()
            assert added(row, 2) == 3
            with deadline_of(None):
                assert added(row, 2) == 3
            assert not runs_compiled(added)
        with deadline_of(seconds + 60):
            assert added(row, 2) == 3
            assert runs_compiled(added)
        kept = compiled(_added)
        with deadline_of(seconds):
            assert kept(row, 2) == 3
            assert runs_compiled(kept), "what is on disk is loaded"

    def test_a_function_that_runs_as_python_calls_others_as_python(self) -> None:
        row, total = np.ones(4, np.int64), compiled(_total)
        with compiling_after(math.inf):
            assert total(row) == 8
        assert not runs_compiled(total)
        assert not runs_compiled(_second)
        assert total(row) == 8
        assert runs_compiled(total)

    def test_python_takes_the_place_of_code_that_is_not_kept(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, unwarned: None
    ) -> None:
        added, other, row = compiled(_added), compiled(_other), np.ones(1, np.int64)
        monkeypatch.setitem(sys.modules, "solver.native.emit", None)  # importing it fails
        with caplog.at_level(logging.WARNING), compiling_after(0):
            assert may_compile()
            assert added(addressed(row), 2) == 3
            assert other(row) == 2
            assert not may_compile()
        assert not runs_compiled(added)
        (record,) = caplog.records
        assert record.message.startswith("Searches run without compiled code, which is slow: ")

    def test_numba_that_fails_is_one_warning(self, caplog: pytest.LogCaptureFixture, unwarned: None) -> None:
        """Numba's errors of types are none of the usual kinds."""
        with caplog.at_level(logging.WARNING), compiling_after(0):
            assert compiled(_beyond_numba)(3) == 6
        (record,) = caplog.records
        assert "_beyond_numba" in record.message or "nopython" in record.message


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not warned yet."""
    monkeypatch.setattr("solver.native._FAILED", [])


def _added(row: Integers, x: int) -> int:
    return int(row[0]) + x


def _other(row: Integers) -> int:
    return int(row[0]) + 1


@compiled
def _second(row: Integers) -> int:
    return int(row[1]) + 1


def _total(row: Integers) -> int:
    total = 0
    for _ in range(len(row)):
        total += _second(row)
    return total


def _beyond_numba(x: int) -> int:
    doubled: Callable[[int], int] = {"double": lambda y: 2 * y}["double"]
    return int(doubled(x))
