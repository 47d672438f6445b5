"""The compiled search does what its source says, and goes on where it was paused."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solver.compile import load
from solver.layout import Deadline, SolveOptions
from solver.layout.exact.feasibility import FeasibilitySearch, Watch, bind
from solver.layout.kernels.skyline_state import (
    CAPACITY,
    NODES,
    RULES,
    TRAIL_COUNT,
    WORK,
    WORK_LIMIT,
    SearchState,
    Short,
    allocate,
)
from solver.layout.model.instance import Instance
from tests.support.oracle import tiling

pytestmark = pytest.mark.skipif(not load(), reason="nothing compiles here")

ROOT = Path(__file__).resolve().parents[4]

_IN_PYTHON = """
import sys
from pathlib import Path
from solver.native import store
sys.modules["numba"] = None  # importing it fails
store.PACKAGE_CACHE = Path.home() / "empty"  # this tree may hold compiled code of other tests
from tests.unit.layout.kernels.test_skyline_kernel import answers
from solver.native import runs_compiled
from solver.layout.kernels.skyline_kernel import race
print(answers(), runs_compiled(race))
"""


def arguments(seed: int) -> tuple[SearchState, Short]:
    instance = Instance.of(tiling(random.Random(seed), 200, 40, 60))
    by_start = instance.subset(np.argsort(instance.start, kind="stable"))
    n = len(by_start)
    state = allocate(by_start, 1, np.full(n, 200), 10, 20 * n + 1000, np.array([0, 2**62]), seed)
    state.counters[[CAPACITY, WORK_LIMIT, RULES]] = 200, 30_000, 255
    ranks = np.stack(
        [np.random.default_rng((seed, k)).permutation(n) for k in range(8)], dtype=np.int16, casting="unsafe"
    )
    return state, ranks


def answers() -> list[tuple[int, list[int], list[int], list[list[int]]]]:
    """Answer, counters, ranks and trail of six searches."""
    made = []
    for seed in range(6):
        state, ranks = arguments(seed)
        answer = bind(state, ranks)(100, 1.3)
        trail = state.trail[: int(state.counters[TRAIL_COUNT])].tolist()
        made.append((answer, state.counters.tolist(), state.rank.tolist(), trail))
    return made


def test_machine_code_does_what_the_source_says(tmp_path: Path) -> None:
    """Where nothing compiles, Python runs the same search, to the node."""
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", _IN_PYTHON],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = answers()
    assert done.stdout == f"{expected} False\n", done.stderr
    assert all(counters[NODES] > 0 for _, counters, _, _ in expected)


def test_the_search_goes_on_where_it_was_paused() -> None:
    """Looks at the clock change nothing: a search that never came back would have done the same."""
    p, options = tiling(random.Random(3), 10**6, 90, 200), SolveOptions(threads=1)
    watched = FeasibilitySearch(Instance.of(p), options).decide(10**6, 6_000_000, Watch(Deadline(), options))
    both = SolveOptions(threads=2)
    beside = FeasibilitySearch(Instance.of(p), both).decide(10**6, 6_000_000, Watch(Deadline(), both))
    assert (watched.answer, watched.work) == (beside.answer, beside.work)


def test_arrays_that_are_not_contiguous_are_refused() -> None:
    state, ranks = arguments(0)
    with pytest.raises(ValueError, match="is not C-contiguous"):
        bind(state, ranks[:, ::2])(100, 1.3)
    assert state.counters[WORK] == 0
