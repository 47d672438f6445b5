"""Another order of the same steps: legal, never worse, and the best one where that is known."""

from __future__ import annotations

from itertools import permutations

import pytest

from solver.accounting import ScheduleProblem, order_bound
from solver.layout import Deadline
from solver.schedules.order.search import best_order
from solver.schedules.recompute.simulate import replay
from tests.support.schedule_problems import layered, problem


def before(given: ScheduleProblem) -> list[frozenset[int]]:
    """For each step, the steps that must have written the values that it reads."""
    writer = {v: t for t, written in enumerate(given.writes) for v in written}
    return [frozenset(writer[v] for v in reads) for reads in given.reads]


def legal(order: tuple[int, ...], earlier: list[frozenset[int]]) -> bool:
    place = {t: k for k, t in enumerate(order)}
    return sorted(order) == list(range(len(order))) and all(
        place[s] < place[t] for t, found in enumerate(earlier) for s in found
    )


def branches() -> ScheduleProblem:
    """a -> large -> small, twice, both large ones first in the given order."""
    reads = [[], [0], [0], [1], [2], [3, 4]]
    return problem(reads, size=[1, 50, 50, 1, 1, 1], cost=[1] * 6, kept=[5])


def test_one_branch_after_the_other() -> None:
    given = branches()
    found = best_order(given, before(given))
    assert (found.given_peak, found.peak) == (101, 52)
    assert legal(found.order, before(given))
    assert max(replay(given, found.order)) == found.peak
    assert found.complete


def test_where_the_bound_is_met_nothing_is_tried() -> None:
    chain = problem([[], [0], [1], [2]], size=[3, 4, 5, 1], cost=[1] * 4, kept=[3])
    found = best_order(chain, before(chain))
    assert found.order == (0, 1, 2, 3)
    assert found.peak == found.given_peak == found.bound == order_bound(chain).bytes


@pytest.mark.parametrize("seed", range(12))
def test_against_all_orders_of_tiny_problems(seed: int) -> None:
    given = layered(7, seed, width=2.5, skip=0.2)
    earlier = before(given)
    least = min(max(replay(given, order)) for order in permutations(range(7)) if legal(order, earlier))
    found = best_order(given, earlier, turns=20_000)
    assert found.peak == max(replay(given, found.order)) == least
    assert found.bound <= least


@pytest.mark.parametrize("seed", range(3))
def test_larger_problems_get_better_and_the_same_each_time(seed: int) -> None:
    given = layered(120, seed, width=5, skip=0.2)
    found = best_order(given, before(given), turns=40_000)
    assert legal(found.order, before(given))
    assert found.peak == max(replay(given, found.order)) < found.given_peak
    assert found == best_order(given, before(given), turns=40_000)


@pytest.mark.parametrize("seed", range(3))
def test_with_a_budget_less_is_over_it(seed: int) -> None:
    given = layered(120, seed, width=5, skip=0.2)
    earlier = before(given)
    lowest = best_order(given, earlier, turns=40_000)
    budget = lowest.peak * 9 // 10
    found = best_order(given, earlier, budget=budget, turns=40_000)
    assert legal(found.order, earlier)

    def over(order: tuple[int, ...]) -> int:
        return sum(max(0, load - budget) for load in replay(given, order))

    assert over(found.order) < over(lowest.order)


def test_an_order_is_no_lower_than_its_budget_needs() -> None:
    given = branches()
    assert best_order(given, before(given), budget=101).order == tuple(range(6))
    assert best_order(given, before(given), budget=60).peak == 52


def test_a_deadline_that_has_passed_leaves_the_lists() -> None:
    given = layered(60, 1, width=4, skip=0.2)
    found = best_order(given, before(given), Deadline(at=0.0))
    assert not found.complete
    assert legal(found.order, before(given))
    assert found.peak <= found.given_peak


def test_nothing_and_one_step() -> None:
    nothing = problem([], size=[], cost=[])
    assert best_order(nothing, []).order == ()
    one = problem([[]], size=[5], cost=[1], kept=[0])
    assert best_order(one, [frozenset()]).peak == 5
