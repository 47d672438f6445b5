"""Homes against brute force: the least time of accesses, its bound, and layouts that fit."""

from __future__ import annotations

import random

import pytest

from solver.accounting import HomeItem, HomeProblem, added_up_homes
from solver.layout import Deadline, Layout, Lifespan
from solver.program import HomeRow
from solver.schedules.homes.refine import Housed, Unhoused, housed, in_banks
from solver.schedules.homes.relaxation import Rows, relaxed
from solver.schedules.homes.search import chosen_homes
from tests.support.homes import laid_out, least_nanoseconds, tiny_problem


@pytest.mark.parametrize("seed", range(200))
def test_homes_take_the_least_time_within_the_loads(seed: int) -> None:
    problem = tiny_problem(random.Random(seed))
    rows = Rows(problem)
    relaxation = relaxed(problem, rows, Deadline())
    least = least_nanoseconds(problem, layouts=False)
    homes = chosen_homes(problem, rows, relaxation, Deadline())
    assert (least is None) == homes.impossible
    if least is None or homes.homes is None:
        assert least is None
        assert homes.homes is None
        return
    assert problem.nanoseconds(homes.homes) == least == homes.bound
    bound = relaxation.bound
    assert bound.nanoseconds <= least
    assert added_up_homes(problem, bound.rows, bound.denominator) == bound.nanoseconds


@pytest.mark.parametrize("seed", range(60))
def test_any_multipliers_prove_a_bound(seed: int) -> None:
    chance = random.Random(seed)
    problem = tiny_problem(chance)
    least = least_nanoseconds(problem, layouts=False)
    if least is None:
        return
    levels = [span.start for item in problem.items for span in item.spans]
    for _ in range(20):
        rows = [
            HomeRow(chance.randrange(len(problem.capacities)), chance.choice(levels), chance.randrange(30))
            for _ in range(chance.randrange(6))
        ]
        assert added_up_homes(problem, rows, chance.randrange(1, 9)) <= least


def test_multipliers_that_prove_nothing_are_refused() -> None:
    problem = HomeProblem((HomeItem(4, (Lifespan(0, 1),), (1, 2)),), (4, 4))
    with pytest.raises(ValueError, match="multiplier -1"):
        added_up_homes(problem, [HomeRow(0, 0, -1)], 1)
    with pytest.raises(ValueError, match="memory 2"):
        added_up_homes(problem, [HomeRow(2, 0, 1)], 1)
    with pytest.raises(ValueError, match="denominator"):
        added_up_homes(problem, [], 0)


@pytest.mark.parametrize("seed", range(150))
def test_homes_with_layouts_are_those_of_brute_force(seed: int) -> None:
    problem = tiny_problem(random.Random(seed), tight=True)
    least = least_nanoseconds(problem, layouts=True)
    result = housed(problem, [1] * len(problem.items), laid_out(problem), Deadline())
    if least is None:
        assert isinstance(result, Unhoused)
        return
    assert isinstance(result, Housed)
    assert problem.nanoseconds(result.homes) == least
    assert result.bound <= least
    assert result.certificate.nanoseconds <= result.bound
    for k, outcome in enumerate(result.outcomes):
        assert outcome.layout is not None
        assert outcome.layout.peak <= problem.capacities[k]


def test_items_that_have_no_layout_together_are_kept_apart() -> None:
    """At most 20 bytes are live at once, and no layout has fewer than 21: one item goes to slower memory."""
    spans = ((1, 0, 5), (8, 0, 2), (5, 1, 4), (7, 3, 8), (6, 3, 6), (5, 5, 8), (2, 6, 9))
    items = tuple(HomeItem(size, (Lifespan(a, b),), (size, 3 * size)) for size, a, b in spans)
    for most in range(8, 22):
        problem = HomeProblem(items, (most, 100))
        result = housed(problem, [1] * len(items), laid_out(problem), Deadline())
        assert isinstance(result, Housed)
        assert problem.nanoseconds(result.homes) == least_nanoseconds(problem, layouts=True)


def test_lent_bytes_are_others_meanwhile() -> None:
    weight = HomeItem(8, (Lifespan(0, 2), Lifespan(4, 6)), (1, 10))
    other = HomeItem(8, (Lifespan(2, 4),), (1, 10))
    problem = HomeProblem((weight, other), (8, 100))
    rows = Rows(problem)
    homes = chosen_homes(problem, rows, relaxed(problem, rows, Deadline()), Deadline())
    assert homes.homes == (0, 0)


def test_banks_are_filled_in_order_at_the_lowest_offset() -> None:
    items = tuple(HomeItem(size, (Lifespan(0, 2),), (1, 2)) for size in (4, 5, 3))
    problem = HomeProblem(items, (9, 8))
    assert in_banks(problem, (4, 4, 4), (0, 1, 2), [(0, 1)] * 3) == (
        (0, 0, 1),
        (Layout((0, 4), 9), Layout((0,), 3)),
    )
    assert in_banks(problem, (1, 1, 1), (0, 1, 2), [(1,)] * 3) is None
