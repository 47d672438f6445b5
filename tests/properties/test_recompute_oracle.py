"""Schedules of tiny problems against the exact optimum: Dijkstra over what has run and what is in memory."""

from __future__ import annotations

import os
import random

import pytest

from solver.layout import Deadline
from solver.schedules.recompute.dual import proved_cost
from solver.schedules.recompute.moments import Moments, fullest
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import replay
from solver.verify import added_up
from tests.support.schedule_problems import exact, layered, mixed, program_of

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
