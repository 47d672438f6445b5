"""Repair in windows of time: lower, never wrong, and no more than was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from solver.layout import Deadline, Layout, SolveOptions, find_violations, max_load
from solver.layout.bounds.max_load import pinned_top
from solver.layout.exact import windows
from solver.layout.exact.feasibility import Watch
from solver.layout.exact.windows import Repaired, repair
from solver.layout.greedy.placement import place_once
from solver.layout.model.instance import Instance, layout_of
from tests.support.buffers import problem
from tests.support.shapes import SHAPES

WORK = 3_000_000


def repaired(shape: str, work: int = WORK, seed: int = 1) -> tuple[Layout, Repaired, int]:
    """The greedy layout, what became of it, and the bound."""
    p = SHAPES[shape](1500, seed)
    instance, bound = Instance.of(p), max(max_load(p).bytes, pinned_top(p))
    greedy = layout_of(instance, place_once(instance, np.argsort(-instance.size, kind="stable"), Deadline()))
    heard: list[Layout] = []
    result = repair(instance, greedy, bound, work, Watch(Deadline(), SolveOptions()), heard.append)
    assert find_violations(p, result.layout) == ()
    assert result.layout in (heard[-1:] or [greedy])
    assert [news.peak for news in heard] == sorted({news.peak for news in heard}, reverse=True)
    return greedy, result, bound


@pytest.mark.parametrize("shape", ["each meets two", "four lanes", "any", "mixed alignments", "pins"])
def test_most_of_what_is_too_high_comes_down(shape: str) -> None:
    greedy, result, bound = repaired(shape)
    high, low = greedy.peak - bound, result.layout.peak - bound
    assert 4 * low <= high


@pytest.mark.parametrize("shape", ["any", "mixed alignments"])
def test_the_same_problem_gives_the_same_layout(shape: str) -> None:
    assert repaired(shape)[1] == repaired(shape)[1]


def test_no_more_work_than_was_asked_for() -> None:
    greedy, result, _ = repaired("any", work=0)
    assert result == Repaired(greedy, 0)
    assert repaired("mixed alignments", work=300_000)[1].work <= 600_000


def test_what_stays_too_high_gets_more_work_however_few_bytes_there_are() -> None:
    p = problem(*((1 + k % 7, k, k + 5) for k in range(200)))
    instance, efforts = Instance.of(p), list[int]()
    stacked = layout_of(instance, place_once(instance, np.arange(200), Deadline()))

    def ask(*asked: object) -> tuple[None, int]:
        efforts.append(int(str(asked[-1])))
        return None, efforts[-1]

    watch = Watch(Deadline(), SolveOptions())
    result = repair(instance, stacked, max_load(p).bytes - 9, 50_000_000, watch, ask=ask)
    assert result.layout == stacked
    assert max(efforts) >= 8 * min(efforts)


def test_a_layout_at_the_bound_is_left_alone() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    best = Layout((0, 4), 8)
    watch = Watch(Deadline(), SolveOptions())
    assert repair(Instance.of(p), best, 8, WORK, watch) == Repaired(best, 0)


def test_windows_of_more_than_can_be_searched_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "SEARCHABLE", 0)
    monkeypatch.setattr(windows, "first_fit_windows", lambda *_: None)
    greedy, result, _ = repaired("any", work=300_000)
    assert result.layout == greedy
    assert result.work >= 300_000


def test_a_deadline_that_has_passed_changes_nothing() -> None:
    p = SHAPES["any"](500, 1)
    instance = Instance.of(p)
    stacked = layout_of(instance, np.cumsum(instance.size) - instance.size)
    result = repair(instance, stacked, 1, WORK, Watch(Deadline.after(0), SolveOptions()))
    assert result == Repaired(stacked, 0)
