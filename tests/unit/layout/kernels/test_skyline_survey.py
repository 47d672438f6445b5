"""What the compiled search keeps of plateaus and parts is what a look from scratch would find."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest

from solver.compile import load
from solver.layout import LayoutProblem, Rules
from solver.layout.kernels.priorities import ORDERS
from solver.layout.kernels.skyline_kernel import race
from solver.layout.kernels.skyline_state import (
    CAPACITY,
    COUNT,
    FIRST,
    FULLS,
    HEAD,
    LAST,
    NEXT,
    NONE,
    ONE,
    PAUSED,
    PICK,
    RULES,
    RUNS,
    SOLE,
    SPAN,
    TWO,
    UNTIL,
    WORK_LIMIT,
    SearchState,
    allocate,
)
from solver.layout.model.instance import Instance
from tests.support.buffers import random_problem, solved
from tests.support.oracle import tiling

pytestmark = pytest.mark.skipif(not load(), reason="nothing compiles here")


def told(s: SearchState, left: int) -> tuple[float, ...]:
    """What is kept of a plateau, as far as it means anything."""
    plateau = int(s.stop[left]), float(s.key[left])
    decided = np.isfinite(s.key[left])
    picked = int(s.picks[left, PICK]), int(s.picks[left, SOLE])
    return (*plateau, *picked, int(s.waste[left])) if decided else plateau


def fresh_state(instance: Instance, capacity: int, rules: int, seed: int) -> SearchState:
    """A search for a layout of this height; `RUNS` has the seed, from which the way to choose follows."""
    by_start = instance.subset(np.argsort(instance.start, kind="stable"))
    limit = (capacity + by_start.size - by_start.exact) // by_start.unit
    never = np.array([0, 2**62])
    made = allocate(by_start, by_start.unit, limit, 10, 20 * len(by_start) + 1000, never, seed)
    made.counters[[CAPACITY, RULES, WORK_LIMIT, RUNS]] = int(limit.max()), rules, 2**62, seed
    return made


def parts(s: SearchState) -> list[int]:
    """The agenda."""
    found, part = [], int(s.counters[HEAD])
    while part != NONE:
        found.append(part)
        part = int(s.parts[part, NEXT])
    return found


def assert_kept_is_true(s: SearchState) -> int:
    """How many plateaus were fresh; each of them is looked at again."""
    from solver.layout.kernels.skyline_survey import look

    fresh = 0
    for part in parts(s):
        left, last = int(s.reaches[part, FIRST]), int(s.reaches[part, LAST])
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
    from solver.layout.kernels.skyline_table import state

    for part in parts(s):
        row, sums = s.reaches[part], s.sums[part]
        assert (row[COUNT], sums[ONE], sums[TWO]) == state(s, row[FIRST], row[LAST])


def stop_and_look(s: SearchState, every: int, most: int) -> int:
    """Runs to node after node, each time from the start, as a search that is stopped does not go on."""
    fresh, run = 0, int(s.counters[RUNS])
    rng = np.random.default_rng(run)
    ranks = np.stack([rng.permutation(len(s.rank)) for _ in range(ORDERS)]).astype(np.int16)
    for nodes in range(every, most, every):
        s.counters[[RUNS, UNTIL, FULLS]] = run, run + 1, 0
        if race(s, ranks, nodes, 1.0) != PAUSED or s.counters[FULLS]:
            break
        assert_hashes_are_true(s)
        fresh += assert_kept_is_true(s)
    s.counters[RUNS] = run
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
        (with_alignments, 110, 255 & ~SPAN, range(10), 1000),
        (with_pins, 110, 255 & ~SPAN, range(10), 500),
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
