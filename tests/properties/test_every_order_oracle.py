"""What holds for every order, against all orders of tiny problems: each solved exactly for itself."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import permutations

import pytest

from solver.schedules.cut_costs import least_cost
from solver.schedules.cuts import least_peak
from solver.schedules.simulate import replay
from tests.support.schedule_problems import before, exact, layered, mixed

pytestmark = pytest.mark.fuzz

PROBLEMS = int(os.environ.get("ARENAPLAN_FUZZ") or 100)


def legal_orders(earlier: Sequence[frozenset[int]]) -> Iterator[tuple[int, ...]]:
    for order in permutations(range(len(earlier))):
        place = {t: k for k, t in enumerate(order)}
        if all(place[s] < place[t] for t, found in enumerate(earlier) for s in found):
            yield order


@pytest.mark.parametrize("kind", ["layered", "mixed"])
def test_no_order_is_below_the_bounds_on_peak_and_cost(kind: str) -> None:
    tight = some = impossible = 0
    for seed in range(PROBLEMS):
        rng = random.Random(seed)
        count = rng.randint(5, 7)
        once = rng.choice((0.0, 0.3))
        given = mixed(count, seed) if kind == "mixed" else layered(count, seed, skip=0.4, once=once)
        earlier, same = before(given), tuple(range(count))
        orders = [given.in_order(order) for order in legal_orders(earlier)]
        load = replay(given, same)
        peak = min(max(replay(each, same)) for each in orders)
        assert least_peak(given, earlier, load) <= peak, seed
        for budget in (peak * 9 // 10, peak - 1):
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
    assert 8 * tight >= some > 0
