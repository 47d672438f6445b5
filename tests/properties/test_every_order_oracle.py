"""What holds for every order, against all orders of tiny problems: each solved exactly for itself."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from itertools import permutations

import pytest

from solver.schedules import ScheduleProblem
from solver.schedules.cut_costs import least_cost
from solver.schedules.cuts import least_peak
from solver.schedules.simulate import replay
from tests.support.schedule_problems import exact, in_order, layered

pytestmark = pytest.mark.fuzz

PROBLEMS = int(os.environ.get("ARENAPLAN_FUZZ") or 60)


def legal_orders(given: ScheduleProblem) -> list[tuple[int, ...]]:
    steps = range(len(given.steps))
    return [
        order
        for order in permutations(steps)
        if all(order.index(v) < order.index(t) for t in steps for v in given.reads[t])
    ]


def test_no_order_is_below_the_bounds_on_peak_and_cost() -> None:
    tight = some = impossible = 0
    for seed in range(PROBLEMS):
        rng = random.Random(seed)
        count = rng.randint(5, 7)
        skip, once = rng.choice((0.2, 0.5, 0.8)), rng.choice((0.0, 0.3))
        given = replace(layered(count, seed, skip=skip, once=once), fixed=rng.choice((0, 7)))
        earlier = [frozenset(reads) for reads in given.reads]
        load = replay(given, tuple(range(count)))
        orders = [in_order(given, order) for order in legal_orders(given)]
        peak = min(max(replay(each, tuple(range(count)))) for each in orders)
        assert least_peak(given, earlier, load) <= peak, seed
        for share in (0.9, 0.97):
            budget = int(peak * share)
            found = least_cost(given, earlier, budget, load)
            costs = [cost for each in orders if (cost := exact(each, budget)) is not None]
            if not costs:
                impossible += found.impossible
                continue
            assert not found.impossible, seed
            assert found.bound <= min(costs), seed
            some += 1
            tight += found.bound == min(costs)
    assert impossible
    assert 4 * tight >= some > 0
