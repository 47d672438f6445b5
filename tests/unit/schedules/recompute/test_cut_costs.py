"""The cost of a budget in every order: by hand, and where it proves the order of the search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.gallery import GALLERY
from solver.accounting import ScheduleProblem, roofline, schedule_problem
from solver.layout import Deadline
from solver.passes import Order
from solver.program import dependencies, loads
from solver.schedules.recompute.cut_costs import CostInEveryOrder, least_cost
from solver.schedules.recompute.joint import order_to_repeat
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import replay
from solver.training import derive
from tests.support.schedule_problems import layered, problem


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
