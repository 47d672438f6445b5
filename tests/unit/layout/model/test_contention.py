from __future__ import annotations

import random

import pytest

from solver.layout.model.contention import peak_load_seen
from solver.layout.model.instance import Instance
from solver.layout.model.problem import LayoutProblem
from tests.support.buffers import random_problem


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_largest_load_of_each_life(seed: int) -> None:
    instance = Instance.of(random_problem(random.Random(seed), 1 + 3 * seed, 20, 50))
    load = instance.load()
    spans = zip(instance.start.tolist(), instance.end.tolist(), strict=True)
    assert peak_load_seen(instance).tolist() == [load[start:end].max() for start, end in spans]


def test_nobody_sees_nothing() -> None:
    assert peak_load_seen(Instance.of(LayoutProblem(()))).tolist() == []
