"""The compiled search: as its source says, what it keeps, and how it goes back to causes of failures."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from solver.compile import load
from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan, Rules, SolveOptions
from solver.layout.exact.feasibility import Answer, Decision, FeasibilitySearch, Watch, bind
from solver.layout.kernels import skyline_kernel as kernel
from solver.layout.kernels.priorities import ORDERS, priorities
from solver.layout.kernels.skyline_kernel import SearchState, Short, allocate, kinds, prepare, race, stretch
from solver.layout.model.instance import Instance
from tests.support.buffers import best_peak, random_problem, solved
from tests.support.oracle import tiling

pytestmark = pytest.mark.skipif(not load(), reason="nothing compiles here")

ROOT = Path(__file__).resolve().parents[4]

_IN_PYTHON = """
import sys
from pathlib import Path
from solver.native import store
sys.modules["numba"] = None  # importing it fails
store.PACKAGE_CACHE = Path.home() / "empty"  # this tree may hold compiled code of other tests
from tests.unit.layout.kernels.test_kernels import answers
from solver.native import runs_compiled
from solver.layout.kernels.skyline_kernel import race
print(answers(), runs_compiled(race))
"""


def arguments(seed: int) -> tuple[SearchState, Short]:
    instance = Instance.of(tiling(random.Random(seed), 200, 40, 60))
    by_start = instance.subset(np.argsort(instance.start, kind="stable"))
    n = len(by_start)
    state = allocate(by_start, 1, np.full(n, 200), 10, 20 * n + 1000, np.array([0, 2**62]), seed)
    state.counters[[kernel.CAPACITY, kernel.WORK_LIMIT, kernel.RULES]] = 200, 30_000, 255
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
        trail = state.trail[: int(state.counters[kernel.TRAIL_COUNT])].tolist()
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
    assert all(counters[kernel.NODES] > 0 for _, counters, _, _ in expected)


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
    assert state.counters[kernel.WORK] == 0


# ---------------- What the compiled search keeps of plateaus and parts is what a look from scratch would find


def told(s: SearchState, left: int) -> tuple[float, ...]:
    """What is kept of a plateau, as far as it means anything."""
    plateau = int(s.stop[left]), float(s.key[left])
    decided = np.isfinite(s.key[left])
    picked = int(s.picks[left, kernel.PICK]), int(s.picks[left, kernel.SOLE])
    return (*plateau, *picked, int(s.waste[left])) if decided else plateau


def fresh_state(instance: Instance, capacity: int, rules: int, seed: int) -> SearchState:
    """A search for a layout of this height; `RUNS` has the seed, from which the way to choose follows."""
    by_start = instance.subset(np.argsort(instance.start, kind="stable"))
    limit = (capacity + by_start.size - by_start.exact) // by_start.unit
    never = np.array([0, 2**62])
    made = allocate(by_start, by_start.unit, limit, 10, 20 * len(by_start) + 1000, never, seed)
    made.counters[[kernel.CAPACITY, kernel.RULES, kernel.WORK_LIMIT, kernel.RUNS]] = (
        int(limit.max()),
        rules,
        2**62,
        seed,
    )
    return made


def parts(s: SearchState) -> list[int]:
    """The agenda."""
    found, part = [], int(s.counters[kernel.HEAD])
    while part != kernel.NONE:
        found.append(part)
        part = int(s.parts[part, kernel.NEXT])
    return found


def assert_kept_is_true(s: SearchState) -> int:
    """How many plateaus were fresh; each of them is looked at again."""
    from solver.layout.kernels.skyline_kernel import look

    fresh = 0
    for part in parts(s):
        left, last = int(s.reaches[part, kernel.FIRST]), int(s.reaches[part, kernel.LAST])
        first = left
        while left < last:
            if s.fresh[left]:
                kept = told(s, left)
                look(s, first, last, left)
                assert s.fresh[left]
                assert told(s, left) == kept
                fresh += 1
            left = next((t for t in range(left + 1, last) if s.skyline[t] != s.skyline[left]), last)
    return fresh


def assert_hashes_are_true(s: SearchState) -> None:
    from solver.layout.kernels.skyline_kernel import state

    for part in parts(s):
        row, sums = s.reaches[part], s.sums[part]
        assert (row[kernel.COUNT], sums[kernel.ONE], sums[kernel.TWO]) == state(
            s, row[kernel.FIRST], row[kernel.LAST]
        )


def stop_and_look(s: SearchState, every: int, most: int) -> int:
    """Runs to node after node, each time from the start, as a search that is stopped does not go on."""
    fresh, run = 0, int(s.counters[kernel.RUNS])
    rng = np.random.default_rng(run)
    ranks = np.stack([rng.permutation(len(s.rank)) for _ in range(ORDERS)]).astype(np.int16)
    for nodes in range(every, most, every):
        s.counters[[kernel.RUNS, kernel.UNTIL, kernel.FULLS]] = run, run + 1, 0
        if race(s, ranks, nodes, 1.0) != kernel.PAUSED or s.counters[kernel.FULLS]:
            break
        assert_hashes_are_true(s)
        fresh += assert_kept_is_true(s)
    s.counters[kernel.RUNS] = run
    return fresh


def near_and_far(s: SearchState) -> int:
    """Every one of the first nodes, then some deep ones."""
    return stop_and_look(s, 1, 80) + stop_and_look(s, 37, 1500)


def with_alignments(rng: random.Random) -> LayoutProblem:
    """Alignments that leave padding."""
    buffers = tiling(rng, 90, 40, 80).buffers
    return LayoutProblem(tuple(replace(b, alignment=rng.choice((1, 2, 8))) for b in buffers))


def with_pins(rng: random.Random) -> LayoutProblem:
    """A tenth is pinned where a layout has it, which fits below the largest load plus a fifth."""
    problem = tiling(rng, 90, 40, 80)
    offsets = solved(problem, solver="greedy").layout.offsets
    pinned = (
        replace(b, offset=offset) if rng.random() < 0.1 else b
        for b, offset in zip(problem.buffers, offsets, strict=True)
    )
    return LayoutProblem(tuple(pinned))


@pytest.mark.parametrize(
    ("make", "capacity", "rules", "seeds", "least"),
    [
        (lambda rng: random_problem(rng, 90, 30, 9), None, 255, range(0, 27, 3), 300),
        (lambda rng: tiling(rng, 90, 40, 80), None, 255, range(1, 27, 2), 300),
        (with_alignments, 110, 255 & ~kernel.SPAN, range(10), 1000),
        (with_pins, 110, 255 & ~kernel.SPAN, range(10), 500),
    ],
    ids=["any", "tilings", "alignments", "pins"],
)
def test_what_is_kept(
    make: Callable[[random.Random], LayoutProblem],
    capacity: int | None,
    rules: int,
    seeds: range,
    least: int,
) -> None:
    fresh = 0
    for seed in seeds:
        instance = Instance.of(make(random.Random(seed)))
        s = fresh_state(instance, capacity or int(instance.load().max()), rules, seed)
        fresh += near_and_far(s)
    assert fresh > least


@pytest.mark.parametrize("bit", range(len(fields(Rules)) - 3))
def test_what_is_kept_without_a_rule(bit: int) -> None:
    fresh = 0
    for seed in range(6):
        instance = Instance.of(tiling(random.Random(seed), 90, 40, 80))
        s = fresh_state(instance, int(instance.load().max()), 255 & ~(1 << bit), seed)
        fresh += stop_and_look(s, 1, 200)
    assert fresh > 100


# ------------------------- Going back to what caused a failure, and promoting kinds that were placed too late


#: One run, so that what two searches have to look at can be compared.
ONE_RUN = Rules(restarts=False, transposition=False)


def decide(problem: LayoutProblem, capacity: int, rules: Rules, guide: list[int] | None = None) -> Decision:
    options = SolveOptions(threads=1, rules=rules)
    search = FeasibilitySearch(Instance.of(problem), options)
    offsets = None if guide is None else np.array(guide, dtype=np.int64)
    return search.decide(capacity, 10**8, Watch(Deadline(), options), offsets)


def promoting_state(instance: Instance) -> SearchState:
    made = allocate(instance, 1, np.full(len(instance), 10**6), 4, 100, np.array([0, 2**62]), 1)
    made.counters[[kernel.SEED, kernel.RULES, kernel.GUIDED]] = (1, kernel.PROMOTION, 1)
    return made


def test_a_search_that_goes_back_to_the_cause_looks_at_far_less() -> None:
    """One depth-first run for each tiling, without a table that would save part of it, too."""
    spent = {True: 0, False: 0}
    for seed in range(30):
        p = tiling(random.Random(seed), 40, 40, 60)
        for jumps in spent:
            decision = decide(p, 40, replace(ONE_RUN, jumps=jumps))
            assert decision.answer is Answer.YES
            spent[jumps] += decision.work
    assert spent[True] < spent[False] / 2


@pytest.mark.parametrize("jumps", [True, False])
@pytest.mark.parametrize("promotion", [True, False])
def test_neither_changes_what_fits(jumps: bool, promotion: bool) -> None:
    rules = Rules(jumps=jumps, promotion=promotion)
    for seed in range(60):
        rng = random.Random(seed)
        p = random_problem(rng, rng.randint(1, 7), 9, 9, rng.choice(((1,), (4,), (1, 2, 8))))
        best, guide = best_peak(p), [0] * len(p.buffers)
        assert decide(p, best, rules, guide).answer is Answer.YES
        assert decide(p, best - 1, rules, guide).answer is Answer.NO


def test_bits_of_a_stretch_are_those_of_its_sections() -> None:
    """Problems with more sections than bits share them among neighbours."""
    for sections in (1, 5, kernel.STRETCHES, 3 * kernel.STRETCHES + 1):
        instance = Instance.of(
            LayoutProblem(tuple(Buffer(str(t), 1, Lifespan(t, t + 2)) for t in range(sections)))
        )
        s, rng = promoting_state(instance), random.Random(sections)
        assert s.bit.min() == 0
        assert s.bit.max() < kernel.STRETCHES
        bits = 1 << s.bit.astype(np.int64)
        for _ in range(50):
            start = rng.randrange(instance.sections)
            end = rng.randint(start + 1, instance.sections)
            assert stretch(s, start, end) == np.bitwise_or.reduce(bits[start:end])


def test_the_more_active_a_kind_the_earlier_it_is_tried() -> None:
    instance = Instance.of(random_problem(random.Random(7), 40, 6, 3, (1,)))
    kind = kinds(instance)
    ranks = np.vstack((*priorities(instance, kind), np.zeros(len(instance)))).astype(np.int16)
    passive, active = promoting_state(instance), promoting_state(instance)
    active.activity[kind[0]] = 5
    earlier = [0, 0]
    for run in range(0, 2 * kernel.ROUND, 2):
        for s in (passive, active):
            with np.errstate(over="ignore"):  # of hashes
                prepare(s, ranks, run)
        places = [int((s.rank < s.rank[0]).sum()) for s in (passive, active)]
        earlier = [total + place for total, place in zip(earlier, places, strict=True)]
        kept = [np.argsort(s.rank[kind != kind[0]], kind="stable").tolist() for s in (passive, active)]
        assert kept[0] == kept[1], "the others keep their order"
    assert earlier[1] < earlier[0] / 2
