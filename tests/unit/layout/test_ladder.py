"""What the ladder spends."""

from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Deadline, SolveOptions, max_load
from solver.layout import ladder as module
from solver.layout.decider import Answer, Decider, Decision, Watch
from solver.layout.instance import Instance, layout_of
from solver.layout.ladder import Ladder
from tests.support.oracle import tiling

WORK = 10**7


def spent(monkeypatch: pytest.MonkeyPatch, work: int | None, large: int) -> tuple[int, int]:
    """Work asked for until the ladder gave up, where no question is ever answered; and the buffers."""
    asked: list[int] = []

    def decide(_self: Decider, _capacity: int, work: int, watch: Watch, _guide: object = None) -> Decision:
        asked.append(work)
        watch.cut = work > WORK
        return Decision(Answer.UNKNOWN, None, work)

    monkeypatch.setattr(Decider, "decide", decide)
    monkeypatch.setattr(module, "LARGE", large)
    problem = tiling(random.Random(1), 1000, 30, 60)
    instance, options = Instance.of(problem), SolveOptions(work=work)
    stacked = layout_of(instance, np.cumsum(instance.size) - instance.size)
    watch = Watch(Deadline(), options)
    Ladder(instance, stacked, max_load(problem).bytes, watch, lambda _layout, _proved: None).climb()
    return sum(asked), len(instance)


def test_a_small_problem_gets_all_of_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent(monkeypatch, WORK, 1000)[0] == WORK


def test_a_large_problem_gets_one_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, buffers = spent(monkeypatch, WORK, 10)
    assert asked == buffers**2


def test_without_a_limit_a_large_problem_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent(monkeypatch, None, 10)[0] > WORK
