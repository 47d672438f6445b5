from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import find_violations
from solver.layout.bounds.max_load import max_load
from solver.layout.greedy.placement import place
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.reduce import peel, stretches
from tests.support.buffers import problem, random_problem


def test_stretches_end_where_nothing_crosses() -> None:
    instance = Instance.of(problem((1, 0, 2), (1, 1, 3), (1, 3, 4), (1, 5, 6)))
    assert [part.tolist() for part in stretches(instance, np.arange(4))] == [[2], [3], [0, 1]]
    assert stretches(instance, np.arange(0)) == []


def test_a_lone_buffer_is_peeled_and_a_full_step_is_not() -> None:
    core, peeled = peel(Instance.of(problem((8, 0, 1), (8, 0, 1), (3, 1, 2))), 16)
    assert core.tolist() == [0, 1] or (peeled.tolist(), core.tolist()) == ([1, 0, 2], [])
    assert 2 in peeled.tolist()


def test_nothing_is_peeled_that_may_not_fit() -> None:
    """5 + (5 - 1) + 5 = 14: below that, a neighbour in the middle leaves no room of 5 beside it."""
    p = Instance.of(problem((5, 0, 1), (5, 0, 1), (1, 0, 1), (1, 0, 1)))
    assert peel(p, 12)[1].size < 4
    assert 0 not in peel(p, 12)[1][-1:].tolist()


@pytest.mark.parametrize("seed", range(40))
def test_the_peeled_fit_last_whatever_the_core_does(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 30, 12, 12, (rng.choice((1, 4)),))
    instance = Instance.of(p)
    capacity = max_load(p).bytes + rng.choice((0, 5))
    core, peeled = peel(instance, capacity)
    assert sorted([*core.tolist(), *peeled.tolist()]) == list(range(30))
    order = core.tolist()
    rng.shuffle(order)
    placed, _ = place(instance.subset(np.array(order, dtype=np.int64)), np.arange(len(order)))
    core_peak = max((placed + instance.exact[order]).tolist(), default=0)
    offsets, _ = place(instance, np.array([*order, *peeled.tolist()], dtype=np.int64))
    made = layout_of(instance, offsets)
    assert find_violations(p, made) == ()
    assert made.peak <= max(capacity, core_peak)
