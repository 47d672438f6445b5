"""Machine code of the search: kept, found again, called without numba, and no other than what numba runs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solver.layout import Deadline, SolveOptions
from solver.layout.exact.feasibility import FeasibilitySearch, Watch, compiled_search
from solver.layout.kernels import native
from solver.layout.kernels.native import MachineCode
from solver.layout.kernels.skyline_kernel import race
from solver.layout.kernels.skyline_state import (
    CAPACITY,
    NODES,
    RULES,
    WORK,
    WORK_LIMIT,
    SearchState,
    Short,
    allocate,
)
from solver.layout.model.instance import Instance
from solver.native import Compiled
from tests.support.oracle import tiling

pytestmark = pytest.mark.skipif(compiled_search() is None, reason="nothing compiles here")

ROOT = Path(__file__).resolve().parents[4]

_WITHOUT_NUMBA = """
import random, sys
from solver.layout import SolveOptions, solve
from tests.support.buffers import tight_problem
from tests.support.oracle import tiling
for problem in (tight_problem(random.Random(4)), tiling(random.Random(4), 200, 60, 60)):
    assert solve(problem, options=SolveOptions(fit=True)).layout is not None
from solver.layout.exact.feasibility import compiled_search
assert compiled_search() is not None
from solver.layout.ready import load_compiled
from solver.schedules.ready import load_schedules
assert load_compiled() and load_schedules()
print([name for name in ("numba", "solver.layout.kernels.emit") if name in sys.modules])
"""


def test_what_was_compiled_runs_without_numba() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_NUMBA], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def arguments(seed: int) -> tuple[SearchState, Short]:
    instance = Instance.of(tiling(random.Random(seed), 200, 40, 60))
    by_start = instance.subset(np.argsort(instance.start, kind="stable"))
    n = len(by_start)
    state = allocate(by_start, 1, np.full(n, 200), 10, 20 * n + 1000, np.array([0, 2**62]), seed)
    state.counters[[CAPACITY, WORK_LIMIT, RULES]] = 200, 300_000, 255
    ranks = np.stack(
        [np.random.default_rng((seed, k)).permutation(n) for k in range(8)], dtype=np.int16, casting="unsafe"
    )
    return state, ranks


def test_numba_runs_the_same_search() -> None:
    """What takes its place where machine code by itself cannot be had."""
    from solver.layout.kernels.emit import dispatcher

    bind = compiled_search()
    assert bind is not None
    assert isinstance(race, Compiled)
    for seed in range(6):
        one, other = arguments(seed), arguments(seed)
        assert bind(*one)(100, 1.3) == dispatcher(race)(*other, 100, 1.3)
        assert one[0].counters.tolist() == other[0].counters.tolist()
        assert one[0].rank.tolist() == other[0].rank.tolist()
        assert one[0].counters[NODES] > 0


def test_the_search_goes_on_where_it_was_paused() -> None:
    """Looks at the clock change nothing: a search that never came back would have done the same."""
    p, options = tiling(random.Random(3), 10**6, 90, 200), SolveOptions(threads=1)
    watched = FeasibilitySearch(Instance.of(p), options).decide(10**6, 6_000_000, Watch(Deadline(), options))
    both = SolveOptions(threads=2)
    beside = FeasibilitySearch(Instance.of(p), both).decide(10**6, 6_000_000, Watch(Deadline(), both))
    assert (watched.answer, watched.work) == (beside.answer, beside.work)


def test_what_is_kept_in_a_given_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    made = MachineCode((), b"not an object file")
    assert native.keep("search", "kinds", made)
    assert native.read("search", "kinds") == made
    assert native.read("search", "other kinds") is None
    assert native.read("another", "kinds") is None
    (file,) = (tmp_path / "given").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert native.read("search", "kinds") is None, "a damaged file is passed over"
    assert native.load("search", "kinds") is None


def test_a_place_that_cannot_be_written_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file / "below a file"))
    assert native.writable()
    assert native.keep("passed_over", "kinds", MachineCode((), b"code"))
    (kept,) = Path(native.__file__).with_name("__pycache__").glob("passed_over-*.machine")
    kept.unlink()


def test_an_image_is_made_for_any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder of an image is another machine than those it runs on."""
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    assert native.processor() == ("generic", "")
    monkeypatch.delenv("NUMBA_CPU_FEATURES")
    assert native.processor() == ("generic", "")
    monkeypatch.delenv("NUMBA_CPU_NAME")
    assert native.processor()[1] != ""


def test_code_that_needs_what_is_not_there_is_refused() -> None:
    with pytest.raises(RuntimeError, match="needs arenaplan_missing, which this process does not have"):
        native.link(MachineCode(("arenaplan_missing",), b""))


def test_arrays_in_pieces_are_refused() -> None:
    bind = compiled_search()
    assert bind is not None
    state, ranks = arguments(0)
    with pytest.raises(ValueError, match="does not lie in one piece"):
        bind(state, ranks[:, ::2])
    assert state.counters[WORK] == 0


@pytest.mark.skipif(shutil.which("ld") is None, reason="no linker here")
def test_a_shared_library_needs_neither_numba_nor_llvmlite(tmp_path: Path) -> None:
    """As in an image: compiled for any processor of the kind, linked, then run without the compiler."""
    shutil.copytree(ROOT / "solver", tmp_path / "solver", ignore=shutil.ignore_patterns("__pycache__"))
    make = """
import numpy as np
from solver.layout.greedy.in_time import time_kernel
assert time_kernel() is not None
from solver.native import keep_libraries
keep_libraries()
"""
    run = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None  # importing them fails
from solver.native import runs_compiled
from solver.layout.greedy.in_time import time_kernel
assert time_kernel() is not None
print(runs_compiled(time_kernel().place_in_time))
"""
    given = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PYTHONPATH": str(tmp_path)}
    for code, text in ((make, ""), (run, "True\n")):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=given, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, text), done.stderr
