"""An order for what will run again: legal, the same each time, and cheaper than the order with least over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from solver.accounting import ScheduleProblem
from solver.layout import Deadline
from solver.schedules.order.search import best_order
from solver.schedules.recompute.joint import order_to_repeat
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import replay
from tests.support.schedule_problems import layered


def before(given: ScheduleProblem) -> list[frozenset[int]]:
    """The steps whose values each step reads: step t defines value t."""
    return [frozenset(reads) for reads in given.reads]


def legal(order: Sequence[int], earlier: list[frozenset[int]]) -> bool:
    place = {t: k for k, t in enumerate(order)}
    return sorted(order) == list(range(len(order))) and all(
        place[s] < place[t] for t, found in enumerate(earlier) for s in found
    )


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
