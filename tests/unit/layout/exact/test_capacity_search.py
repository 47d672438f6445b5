"""What the capacity search spends."""

from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Deadline, SolveOptions, max_load
from solver.layout.exact import capacity_search as module
from solver.layout.exact.capacity_search import CapacitySearch
from solver.layout.exact.feasibility import Answer, Decision, FeasibilitySearch, Watch
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.options import USUAL, USUAL_WORK, Rules, Usual
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import problem
from tests.support.oracle import tiling

WORK = 10**7


def spent(monkeypatch: pytest.MonkeyPatch, work: int | Usual | None, large: int) -> tuple[int, int]:
    """Work asked for until the search gave up, where no question is ever answered; and the buffers."""
    asked: list[int] = []

    def decide(
        _self: FeasibilitySearch, _capacity: int, work: int, watch: Watch, _guide: object = None
    ) -> Decision:
        asked.append(work)
        watch.cut = work > WORK
        return Decision(Answer.UNKNOWN, None, work)

    monkeypatch.setattr(FeasibilitySearch, "decide", decide)
    monkeypatch.setattr(module, "LARGE", large)
    tiled = tiling(random.Random(1), 1000, 30, 60)
    instance, options = Instance.of(tiled), SolveOptions(work=work)
    stacked = layout_of(instance, np.cumsum(instance.size) - instance.size)
    watch = Watch(Deadline(), options)
    CapacitySearch(instance, stacked, max_load(tiled).bytes, watch, lambda _layout, _proved: None).tighten()
    return sum(asked), len(instance)


def test_a_small_problem_gets_all_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent(monkeypatch, WORK, 1000)[0] == WORK


def test_a_large_problem_gets_one_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, buffers = spent(monkeypatch, USUAL, 10)
    assert asked == buffers**2


def test_a_large_problem_gets_all_of_the_work_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent(monkeypatch, WORK, 10)[0] == WORK


def test_without_a_limit_a_large_problem_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent(monkeypatch, None, 10)[0] > WORK


def made(monkeypatch: pytest.MonkeyPatch, **limits: int) -> list[int]:
    """Buffers of each search that is made for three that fit at once, and thirty that are never settled."""
    found: list[int] = []
    small: list[FeasibilitySearch] = []
    begin, settled = FeasibilitySearch.__init__, FeasibilitySearch.decide

    def begun(self: FeasibilitySearch, instance: Instance, options: SolveOptions) -> None:
        found.append(len(instance))
        small.extend([self] * (len(instance) == 3))
        begin(self, instance, options)

    def decide(
        self: FeasibilitySearch, capacity: int, work: int, watch: Watch, guide: Integers | None = None
    ) -> Decision:
        if self in small:
            return settled(self, capacity, work, watch, guide)
        return Decision(Answer.UNKNOWN, None, work)

    monkeypatch.setattr(FeasibilitySearch, "__init__", begun)
    monkeypatch.setattr(FeasibilitySearch, "decide", decide)
    for name, limit in limits.items():
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, limit)
    thirty = [(6, 2 * i, 2 * i + 3) for i in range(30)]
    instance = Instance.of(problem(*thirty, *[(5, 70, 72)] * 3))
    stacked = layout_of(instance, np.cumsum(instance.size) - instance.size)
    options = SolveOptions(work=WORK, rules=Rules(peel=False))
    watch = Watch(Deadline(), options)
    CapacitySearch(instance, stacked, 15, watch, lambda _layout, _proved: None).tighten()
    return found


def test_more_than_can_be_searched_at_once_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(monkeypatch, SEARCHED_AT_ONCE=30) == [3, 30]
    monkeypatch.undo()
    assert made(monkeypatch, SEARCHED_AT_ONCE=29) == []


def test_of_thousands_of_buffers_the_last_search_alone_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(monkeypatch, MANY=29) == [3, 30, 3]


def above(
    bound: int, gap: int, capacity: int, monkeypatch: pytest.MonkeyPatch, work: int | Usual = USUAL
) -> int:
    """Work asked for where the bound is so far below the incumbent, and no question is answered."""
    asked: list[int] = []

    def decide(
        _self: FeasibilitySearch, _capacity: int, work: int, _watch: Watch, _guide: object = None
    ) -> Decision:
        asked.append(work)
        return Decision(Answer.UNKNOWN, None, work)

    monkeypatch.setattr(FeasibilitySearch, "decide", decide)
    half = problem((bound // 2, 0, 2), (bound // 2 + gap - 1, 1, 3), (1, 0, 3))
    instance, watch = Instance.of(half), Watch(Deadline(), SolveOptions(work=work))
    layout = layout_of(instance, np.array([1, bound // 2 + 1, 0]))
    assert layout.peak == bound + gap
    CapacitySearch(instance, layout, bound, watch, lambda _layout, _proved: None, capacity).tighten()
    return sum(asked)


def test_a_millionth_is_worth_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert above(10**9, 900, MAX_BYTES, monkeypatch) == module.NEGLIGIBLE_WORK
    assert above(10**9, 900, 10**9 + 900, monkeypatch) == module.NEGLIGIBLE_WORK


def test_above_the_capacity_nothing_is_negligible(monkeypatch: pytest.MonkeyPatch) -> None:
    assert above(10**9, 900, 10**9 + 899, monkeypatch) == USUAL_WORK


def test_more_than_a_millionth_gets_all_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert above(10**9, 1001, MAX_BYTES, monkeypatch) == USUAL_WORK


def test_work_that_is_asked_for_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert above(10**9, 900, MAX_BYTES, monkeypatch, work=10**10) == 10**10
    assert above(10**9, 900, MAX_BYTES, monkeypatch, work=USUAL_WORK) == USUAL_WORK


@pytest.mark.parametrize(("goal", "share"), [(False, 1 / 2), (True, 15 / 16)])
def test_the_lowest_capacity_gets_most_of_the_work_and_no_guide(
    goal: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[tuple[int, bool], int] = {}

    def decide(
        _self: FeasibilitySearch, capacity: int, work: int, _watch: Watch, guide: object = None
    ) -> Decision:
        key = (capacity, guide is not None)
        asked[key] = asked.get(key, 0) + work
        return Decision(Answer.UNKNOWN, None, work)

    monkeypatch.setattr(FeasibilitySearch, "decide", decide)
    tiled = tiling(random.Random(1), 1000, 30, 60)
    instance, bound = Instance.of(tiled), max_load(tiled).bytes
    stacked = layout_of(instance, np.cumsum(instance.size) - instance.size)
    watch = Watch(Deadline(), SolveOptions(work=100 * WORK))
    search = CapacitySearch(instance, stacked, bound, watch, lambda _layout, _proved: None)
    search.probe(bound * goal)
    search.tighten(bound * goal)
    assert min(asked) == (bound, False)
    assert (bound, True) not in asked
    # All but what the budget has cut off at the end.
    assert asked[bound, False] >= 0.95 * share * sum(asked.values())
    assert len(asked) > 5
