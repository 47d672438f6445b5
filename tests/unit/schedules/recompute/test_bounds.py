"""Which costs a budget has in every order, and orders for steps that will run again."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from examples.gallery import GALLERY
from solver.accounting import ScheduleProblem, roofline, schedule_problem
from solver.layout import Deadline
from solver.passes import Order
from solver.program import dependencies, loads
from solver.schedules.order.search import best_order
from solver.schedules.recompute.cut_costs import CostInEveryOrder, least_cost
from solver.schedules.recompute.joint import order_to_repeat
from solver.schedules.recompute.moments import Moments, fullest
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import Simulator, replay
from solver.training import derive
from tests.support.schedule_problems import exact, layered, legal, problem


def before(given: ScheduleProblem) -> list[frozenset[int]]:
    """The steps whose values each step reads: step t defines value t."""
    return [frozenset(reads) for reads in given.reads]


def least(given: ScheduleProblem, budget: int) -> CostInEveryOrder:
    return least_cost(given, before(given), budget, replay(given, tuple(range(len(given.steps)))))


def waiting(**changes: object) -> ScheduleProblem:
    """v0 and v1 wait for s4 while s2 needs room; s2 reads v0 or not, but no order has it behind s4."""
    found = problem([[], [0], [0], [2], [0, 1, 3]], size=[10, 10, 30, 1, 1], cost=[9, 5, 1, 1, 1], kept=[4])
    return replace(found, **changes)  # type: ignore[arg-type]  # fields of a dataclass


def test_what_fits_costs_nothing() -> None:
    assert least(waiting(), 50) == CostInEveryOrder()


def test_another_order_saves_a_repetition() -> None:
    """s1 may run behind s2: only in the given order does v1 have to be made again."""
    given = waiting()
    assert cheapest(given, 41).extra == 5
    assert least(given, 41) == CostInEveryOrder()


def test_what_stands_in_front_of_the_moment_in_every_order_is_made_again() -> None:
    given = waiting()
    earlier = [*before(given)]
    earlier[2] |= {1}
    load = replay(given, (0, 1, 2, 3, 4))
    assert least_cost(given, earlier, 45, load) == CostInEveryOrder(5, (3,))
    assert least_cost(given, earlier, 39, load) == CostInEveryOrder(steps=(2,), impossible=True)


@pytest.mark.parametrize("until", [2, -1])
def test_what_must_not_run_again_by_then_waits(until: int) -> None:
    """s1 may run again only in front of s2, or not at all."""
    given = waiting()
    given = replace(given, until=(given.until[0], until, *given.until[2:]))
    if until < 0:
        given = replace(given, maker=(given.maker[0], -1, *given.maker[2:]))
    earlier = [*before(given)]
    earlier[2] |= {1}
    assert least_cost(given, earlier, 45, replay(given, (0, 1, 2, 3, 4))).impossible


def test_values_that_may_share_bytes_count_once() -> None:
    given = waiting(together=(0, 0, 2, 3, 4))
    earlier = [*before(given)]
    earlier[2] |= {1}
    assert least_cost(given, earlier, 45, replay(given, (0, 1, 2, 3, 4))) == CostInEveryOrder()


def test_two_moments_prove_what_neither_does() -> None:
    """v0 has no room while s2 runs, nor v1 while s3 does: it is made again for s4, and v0 for s3."""
    given = problem([[], [0], [1], [0, 2], [1, 3]], size=[20, 30, 20, 10, 20], cost=[1, 2, 4, 4, 3], kept=[4])
    assert least(given, 60) == CostInEveryOrder(3, (2, 3))
    assert cheapest(given, 60).extra == 3
    assert least(given, 70) == CostInEveryOrder(2, (3,))


@pytest.mark.parametrize(("share", "moments"), [(80, 1), (60, 3)])
def test_the_given_order_of_a_transformer_is_proved_to_be_the_cheapest(share: int, moments: int) -> None:
    program = Order().run(derive(GALLERY["transformer"].model().graph))
    given = schedule_problem(program, roofline(program))
    load = loads(program)[0]
    budget = max(load) * share // 100
    found = least_cost(given, list(dependencies(program.touches())), budget, load)
    assert len(found.steps) == moments
    assert found.bound == cheapest(given, budget).extra > 0


def test_an_order_is_proved_to_be_the_cheapest_of_all_orders() -> None:
    given = layered(250, 3, width=250**0.5 / 2, skip=0.2)
    budget = max(replay(given, tuple(range(250)))) * 4 // 5
    bound = least(given, budget).bound
    order = order_to_repeat(given, before(given), budget, least=bound).order
    found = cheapest(given.in_order(order), budget)
    assert found.fits
    assert found.extra == bound > 0


def test_the_same_each_time_and_nothing_behind_a_deadline() -> None:
    given = layered(100, 1, width=5)
    load = replay(given, tuple(range(100)))
    budget = max(load) * 7 // 10
    assert least(given, budget) == least(given, budget) != CostInEveryOrder()
    assert least_cost(given, before(given), budget, load, Deadline(at=0.0)) == CostInEveryOrder()


# ------------------ The relaxation: which moments, what it bounds, what it says of budgets that nothing keeps


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


# ---- An order for what will run again: legal, the same each time, and cheaper than the order with least over


def peak(given: ScheduleProblem) -> int:
    return max(replay(given, tuple(range(len(given.steps)))))


def test_the_order_is_legal_its_peak_exact_and_both_the_same_each_time() -> None:
    given = layered(40, 2, width=4, skip=0.2)
    budget = best_order(given, before(given)).peak * 9 // 10
    found = order_to_repeat(given, before(given), budget)
    assert legal(found.order, before(given))
    assert found.peak == max(replay(given, found.order))
    assert found == order_to_repeat(given, before(given), budget)


def test_less_than_any_search_finds_in_the_order_with_least_over() -> None:
    given = layered(100, 6, width=5, skip=0.2)
    budget = peak(given) * 7 // 10
    alone = cheapest(given.in_order(best_order(given, before(given), budget=budget).order), budget)
    found = cheapest(given.in_order(order_to_repeat(given, before(given), budget).order), budget)
    assert found.fits
    assert found.extra < alone.extra


def test_an_order_that_fits_is_not_changed() -> None:
    given = layered(30, 1)
    assert order_to_repeat(given, before(given), peak(given)).order == tuple(range(30))


def test_steps_that_update_what_others_read_stay_behind_them() -> None:
    """Dependencies that are not reads hold as well."""
    given = layered(40, 2, width=4, skip=0.2)
    late = [*before(given)]
    late[20] |= frozenset(range(15))
    until = tuple(min(each, 20) if t < 15 and each >= 0 else each for t, each in enumerate(given.until))
    found = order_to_repeat(replace(given, until=until), late, peak(given) * 7 // 10)
    assert legal(found.order, late)


def test_a_deadline_that_has_passed_leaves_the_lists() -> None:
    given = layered(60, 1, width=4, skip=0.2)
    found = order_to_repeat(given, before(given), peak(given) // 2, Deadline(at=0.0))
    assert not found.complete
    assert legal(found.order, before(given))
