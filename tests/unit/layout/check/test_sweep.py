from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from solver.layout import Layout, LayoutProblem, find_violations, solve
from solver.layout.check import rules as check_module
from solver.layout.check.sweep import disjoint
from tests.support.buffers import problem, random_problem
from tests.support.training_shaped import training_columns


def fast(p: LayoutProblem, offsets: list[int]) -> bool:
    start = np.array([b.lifespan.start for b in p.buffers])
    end = np.array([b.lifespan.end for b in p.buffers])
    bottom = np.array(offsets)
    return disjoint(start, end, bottom, bottom + np.array([b.size for b in p.buffers]))


def test_agrees_with_the_slow_sweep_on_random_offsets() -> None:
    verdicts = set()
    for seed in range(1500):
        rng = random.Random(seed)
        p = random_problem(rng, rng.randint(1, 9), 12, 6)
        offsets = [rng.randrange(60) for _ in p.buffers]
        peak = max(o + b.size for o, b in zip(offsets, p.buffers, strict=True))
        sound = find_violations(p, Layout(tuple(offsets), peak)) == ()
        assert fast(p, offsets) is sound
        verdicts.add(sound)
    assert verdicts == {True, False}


def test_a_long_buffer_over_several_short_ones_is_found() -> None:
    """Comparing neighbours in the order of offsets misses this one."""
    assert not fast(problem((100, 10, 31), (50, 0, 3), (90, 5, 31)), [50, 0, 50])
    assert not fast(problem((100, 0, 9), (5, 0, 1), (5, 2, 9)), [0, 100, 40])


def test_touching_is_not_overlapping() -> None:
    assert fast(problem((4, 0, 2), (4, 0, 2), (8, 2, 3)), [0, 4, 0])


def test_huge() -> None:
    assert fast(problem((2**62, 0, 2), (2**61, 0, 2)), [0, 2**62])
    assert not fast(problem((2**62, 0, 2), (2**61, 0, 2)), [0, 2**62 - 1])


@pytest.mark.parametrize("buffers", [30, 300, 4800])
@pytest.mark.parametrize("damage", ["none", "overlap", "alignment", "peak", "offset", "capacity"])
def test_the_answer_through_columns_is_that_of_the_slow_check(damage: str, buffers: int) -> None:
    """The slow check names what the columns only notice."""
    columns = training_columns(3, buffers=buffers)
    p = columns.problem()
    tops = np.cumsum(columns.size).tolist()
    offsets = [top - size for top, size in zip(tops, columns.size.tolist(), strict=True)]
    peak = tops[-1]
    match damage:
        case "overlap":
            at = next(i for i in range(1, len(offsets)) if columns.start[i] == columns.start[i - 1])
            offsets[at] -= 64
        case "alignment":
            offsets[-1] += 1
            peak += 1
        case "peak":
            peak += 64
        case "offset":
            offsets[0] = -64
        case "capacity":
            p = LayoutProblem(p.buffers, peak - 1)
    layout = Layout(tuple(offsets), peak)
    assert check_module.known_sound(p, layout) is (damage == "none")
    found = find_violations(p, layout, limit=1)
    assert [v.rule for v in found] == ([] if damage == "none" else [damage])


@pytest.mark.parametrize("many", [False, True])
def test_many_pairs_are_swept_and_those_of_few_buffers_checked_slowly(
    monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    p = training_columns(3, buffers=check_module.SWEPT_FROM + 800 if many else 200).problem()
    layout = solve(p, solver="greedy").layout
    assert layout is not None
    monkeypatch.setattr(check_module, "PAIRS", 0)
    assert check_module.known_sound(p, layout) is many
    assert find_violations(p, layout) == ()
    monkeypatch.setitem(__import__("sys").modules, "solver.layout.check.sweep", None)
    assert not check_module.known_sound(p, layout)
    assert find_violations(p, layout) == ()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_pairs_are_found_however_many_are_looked_at_at_once(
    monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    monkeypatch.setattr(check_module, "PAIRS_AT_ONCE", at_once)
    rng = random.Random(seed)
    p = random_problem(rng, 12, 9, 9)
    offsets = tuple(rng.randrange(40) for _ in p.buffers)
    layout = Layout(offsets, max(o + b.size for o, b in zip(offsets, p.buffers, strict=True)))
    overlaps = [
        (a.id, b.id)
        for (a, low), (b, other) in combinations(zip(p.buffers, offsets, strict=True), 2)
        if a.lifespan.overlaps(b.lifespan) and low < other + b.size and other < low + a.size
    ]
    assert check_module.known_sound(p, layout) is not bool(overlaps)
    assert {frozenset(v.buffers) for v in find_violations(p, layout)} == set(map(frozenset, overlaps))
