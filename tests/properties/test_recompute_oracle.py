"""Schedules of tiny problems against the exact optimum: Dijkstra over what has run and what is in memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from solver.accounting import ScheduleProblem
from solver.layout import Deadline
from solver.schedules.order.cuts import least_peak
from solver.schedules.recompute.cut_costs import least_cost
from solver.schedules.recompute.dual import proved_cost
from solver.schedules.recompute.moments import Moments, fullest
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import replay
from solver.verify import added_up
from tests.support.schedule_problems import before, exact, layered, mixed, problem, program_of

pytestmark = pytest.mark.fuzz

PROBLEMS = int(os.environ.get("ARENAPLAN_FUZZ") or 40)


def test_bounds_are_never_above_the_optimum_and_plans_never_below() -> None:
    possible = tight = optimal = proved = 0
    for seed in range(PROBLEMS):
        rng = random.Random(seed)
        count = rng.randint(8, 11)
        found = layered(count, seed, skip=rng.choice((0.2, 0.5, 0.8)), once=rng.choice((0.0, 0.2, 0.5)))
        load = replay(found, tuple(range(count)))
        budget = int(max(load) * rng.uniform(0.8, 0.99))
        best, schedule = exact(found, budget), cheapest(found, budget)
        dense = Moments(found, budget, fullest(load, budget, count)).solve(1.0, Deadline())
        if best is None:
            assert not schedule.fits, seed
            continue
        possible += 1
        assert not schedule.impossible, seed
        assert not dense.infeasible, seed
        assert max(schedule.bound, dense.bound) <= best, seed
        if schedule.fits:
            assert schedule.extra >= best, seed
            assert max(replay(found, schedule.sequence)) <= budget, seed
        tight += max(schedule.bound, dense.bound) == best
        optimal += schedule.fits and schedule.extra == best
        tried = (fullest(load, budget, count), tuple(rng.sample(range(count), rng.randint(1, count))))
        for moments in tried:
            dual = proved_cost(program_of(found), found, budget, moments)
            if dual is not None:
                assert dual.nanoseconds <= best, seed
                assert added_up(program_of(found), dual, found.cost) == dual.nanoseconds, seed
                proved += dual.nanoseconds >= 0.8 * best
    assert 2 * tight >= possible
    assert proved >= possible // 2
    assert 2 * optimal >= possible


def test_what_exists_is_found_in_problems_of_every_kind() -> None:
    """Exits, values of the caller and steps that must not run again, budgets from tight to a byte too few."""
    possible = optimal = 0
    for seed in range(3 * PROBLEMS):
        rng = random.Random(seed)
        count = rng.randint(6, 9)
        found = mixed(count, seed)
        load = replay(found, tuple(range(count)))
        for budget in (max(load) * 9 // 10, max(load) - 1):
            best, schedule = exact(found, budget), cheapest(found, budget)
            dense = Moments(found, budget, fullest(load, budget, count)).solve(1.0, Deadline())
            if best is None:
                assert not schedule.fits, seed
                continue
            possible += 1
            assert not schedule.impossible, seed
            assert not dense.infeasible, seed
            assert max(schedule.bound, dense.bound) <= best <= schedule.extra, seed
            assert schedule.fits, seed
            assert max(replay(found, schedule.sequence)) == schedule.peak <= budget, seed
            optimal += schedule.extra == best
    assert possible >= PROBLEMS // 2
    assert 100 * optimal >= 97 * possible


# ------------------------------------------------------------------------------------------------ every order


ORDERED_PROBLEMS = int(os.environ.get("ARENAPLAN_FUZZ") or 100)


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
    for seed in range(ORDERED_PROBLEMS // 2 if kind == "linked" else ORDERED_PROBLEMS):
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
