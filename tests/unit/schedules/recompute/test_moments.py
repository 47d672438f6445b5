"""The relaxation: which moments, what it bounds, what it says of budgets that nothing keeps."""

from __future__ import annotations

import math

import pytest

from solver.layout import Deadline
from solver.schedules.recompute.moments import Moments, fullest
from solver.schedules.recompute.simulate import Simulator, replay
from tests.support.schedule_problems import exact, layered, problem

LONG = Deadline()


def test_the_fullest_step_of_each_stretch_over_the_budget() -> None:
    load = (1, 5, 7, 2, 9, 8, 1, 6)
    assert fullest(load, 4, 12) == (1, 2, 4, 5, 7)
    assert fullest(load, 4, 2) == (2, 4)
    assert fullest(load, 4, 1) == (4,)
    assert fullest(load, 9, 3) == ()


def test_a_chain_is_solved_by_one_moment() -> None:
    found = problem([[], [0], [1], [2], [0, 3]], size=[10, 1, 30, 1, 1], cost=[7, 1, 1, 1, 1])
    model = Moments(found, 40, [2])
    relaxed = model.solve(1.0, LONG)
    assert (relaxed.bound, relaxed.dropped) == (7, ((0, 2),))
    assert not relaxed.infeasible
    assert not relaxed.cut
    simulator = Simulator(found)
    numbers = model.numbers(relaxed, simulator.start())
    assert simulator.sequence(numbers) == (0, 1, 2, 3, 0, 4)
    assert relaxed.repeated == ((0, 2),)
    assert model.sequence(relaxed) == (0, 1, 2, 3, 0, 4)


@pytest.mark.parametrize("seed", range(8))
def test_a_solution_is_a_schedule_of_its_own_cost(seed: int) -> None:
    """In every solution each reader finds its values; only the bytes may be too many."""
    found = layered(40, seed, width=4.0)
    load = replay(found, tuple(range(40)))
    budget = max(load) * 85 // 100
    model = Moments(found, budget, fullest(load, budget, 5))
    relaxed = model.solve(1.0, LONG)
    if relaxed.dropped is None:
        assert relaxed.infeasible
        return
    sequence = model.sequence(relaxed)
    replayed, at = replay(found, sequence), {t: e for e, t in reversed(tuple(enumerate(sequence)))}
    assert [t for e, t in enumerate(sequence) if at[t] == e] == list(range(40))
    cost = sum(found.cost[p] for p, _ in relaxed.repeated)
    assert relaxed.bound <= sum(found.cost[t] for t in sequence) - sum(found.cost) <= cost
    assert all(replayed[at[t]] <= budget for t in model.moments)


def test_a_budget_below_what_a_moment_touches_is_infeasible() -> None:
    found = problem([[], [0], [1]], size=[10, 10, 10], cost=[1, 1, 1])
    assert Moments(found, 19, [1]).solve(1.0, LONG).infeasible
    assert not Moments(found, 20, [1]).solve(1.0, LONG).infeasible


def test_less_room_costs_no_less() -> None:
    found = layered(20, 3)
    peak = max(replay(found, tuple(range(20))))
    budget = peak * 9 // 10
    moments = fullest(replay(found, tuple(range(20))), budget, 4)
    free = Moments(found, budget, moments).solve(1.0, LONG)
    tight = Moments(found, budget, moments, dict.fromkeys(moments, 5)).solve(1.0, LONG)
    assert tight.infeasible or tight.bound >= free.bound


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_cheaper_than_the_bound(seed: int) -> None:
    found = layered(9, seed)
    peak = max(replay(found, tuple(range(9))))
    for share in (0.8, 0.9, 0.97):
        budget = math.floor(peak * share)
        best = exact(found, budget)
        load = replay(found, tuple(range(9)))
        relaxed = Moments(found, budget, fullest(load, budget, 30)).solve(1.0, LONG)
        if relaxed.infeasible:
            assert best is None
        elif best is not None:
            assert relaxed.bound <= best


def test_a_deadline_stops_it() -> None:
    found = layered(60, 1, width=6.0)
    load = replay(found, tuple(range(60)))
    budget = max(load) * 7 // 10
    relaxed = Moments(found, budget, fullest(load, budget, 40)).solve(1e9, Deadline(at=0.0))
    assert relaxed.cut or relaxed.dropped is not None or relaxed.infeasible
