"""Bounds for every order, compared with all orders of tiny problems, each solved exactly for itself."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from solver.accounting import ScheduleProblem
from solver.schedules.order.cuts import least_peak
from solver.schedules.recompute.cut_costs import least_cost
from solver.schedules.recompute.simulate import replay
from tests.support.schedule_problems import before, exact, layered, mixed, problem

pytestmark = pytest.mark.fuzz

PROBLEMS = int(os.environ.get("ARENAPLAN_FUZZ") or 100)


def legal_orders(earlier: Sequence[frozenset[int]], order: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if len(order) == len(earlier):
        yield order
    for t, found in enumerate(earlier):
        if t not in order and found.issubset(order):
            yield from legal_orders(earlier, (*order, t))


def linked(count: int, seed: int) -> ScheduleProblem:
    """Most steps follow the one before them: what has to be held at one decides about the next."""
    rng = random.Random(seed)
    reads: list[set[int]] = [set()]
    for t in range(1, count):
        reads.append({t - 1} if rng.random() < 0.85 else set())
        reads[t].update(rng.sample(range(t), min(t, rng.randint(0, 2))))
    size, cost = ([rng.randint(1, 30) for _ in range(count)] for _ in range(2))
    again = [rng.random() < 0.9 for _ in range(count)]
    return problem([sorted(found) for found in reads], size, cost, kept=[count - 1], again=again)


KINDS: dict[str, Callable[[int, int], ScheduleProblem]] = {
    "layered": lambda count, seed: layered(count, seed, skip=0.4, once=0.3 * (seed % 2)),
    "mixed": mixed,
    "linked": lambda count, seed: linked(count + 2, seed),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_order_is_below_the_bounds_on_peak_and_cost(kind: str) -> None:
    tight = some = impossible = several = 0
    for seed in range(PROBLEMS // 2 if kind == "linked" else PROBLEMS):
        given = KINDS[kind](random.Random(seed).randint(5, 7), seed)
        earlier, same = before(given), tuple(range(len(given.steps)))
        orders = [given.in_order(order) for order in legal_orders(earlier)]
        load = replay(given, same)
        peak = min(max(replay(each, same)) for each in orders)
        assert least_peak(given, earlier, load) <= peak, seed
        for budget in (peak * 8 // 10, peak * 9 // 10, peak - 1):
            found = least_cost(given, earlier, budget, load)
            costs = [cost for each in orders if (cost := exact(each, budget)) is not None]
            if not costs:
                impossible += found.impossible
                continue
            assert not found.impossible, seed
            assert found.bound <= min(costs), seed
            some += 1
            several += len(found.steps) > 1
            tight += found.bound == min(costs)
    assert impossible
    assert several or kind != "linked"
    assert 8 * tight >= some > 0
