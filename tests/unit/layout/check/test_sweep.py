from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Layout, LayoutProblem, find_violations
from solver.layout.check import rules as check_module
from solver.layout.check.rules import COLUMNS_FROM, PAIRS
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


@pytest.mark.parametrize("buffers", [300, COLUMNS_FROM + 800])
@pytest.mark.parametrize("damage", ["none", "overlap", "alignment", "peak", "offset", "capacity"])
def test_the_answer_through_columns_is_that_of_the_slow_check(damage: str, buffers: int) -> None:
    """The slow check names what the columns only notice: of few buffers all pairs, of many a sweep."""
    columns = training_columns(3, buffers=buffers)
    p = columns.problem()
    assert 1 < len(p.buffers) <= PAIRS or len(p.buffers) >= COLUMNS_FROM
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


def test_without_numba_the_slow_check_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "solver.layout.check.sweep", None)
    columns = training_columns(3, buffers=COLUMNS_FROM + 800)
    p = columns.problem()
    tops = np.cumsum(columns.size).tolist()
    layout = Layout(tuple(t - z for t, z in zip(tops, columns.size.tolist(), strict=True)), tops[-1])
    assert not check_module.known_sound(p, layout)
    assert find_violations(p, layout) == ()
