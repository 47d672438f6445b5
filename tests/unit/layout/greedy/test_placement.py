from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from solver.layout import Buffer, Deadline, Layout, LayoutProblem, Lifespan, find_violations
from solver.layout.bounds.max_load import max_load
from solver.layout.greedy.placement import (
    BEST_FIT_ORDERS,
    FIRST_FIT_ORDERS,
    LARGE_ORDERS,
    NEITHER_LEADS,
    SIZE_LEADS,
    SLACK_LEADS,
    best_fit,
    first_fit,
    greedy_portfolio,
    orders,
    place,
    place_until,
)
from solver.layout.greedy.skyline import RULES, lowest_plateau
from solver.layout.model.instance import FREE, Instance, layout_of
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import problem, random_problem
from tests.support.training_shaped import training_shaped

#: a at 0, b above it, c above both; when b has gone, a gap of 4 is left between a and c.
HOLES = problem((2, 0, 9), (4, 0, 3), (2, 0, 9), (3, 0, 3), (2, 0, 9), (3, 5, 9))


def test_first_fit_takes_the_lowest_gap_and_best_fit_the_tightest() -> None:
    instance = Instance.of(HOLES)
    order = np.arange(6)
    first, best = place(instance, order, first_fit), place(instance, order, best_fit)
    assert first is not None
    assert best is not None
    assert first.tolist() == [0, 2, 6, 8, 11, 2]
    assert best.tolist() == [0, 2, 6, 8, 11, 8]


def test_fits_choose_among_gaps() -> None:
    room = np.array([3, 9, 5, MAX_BYTES - 20])
    assert [first_fit(room, 4), best_fit(room, 4)] == [1, 2]
    assert [first_fit(room, 10), best_fit(room, 10)] == [3, 3]


def test_placing_stops_at_the_limit_and_says_how_far_it_got() -> None:
    instance = Instance.of(problem((4, 0, 1), (4, 0, 1), (4, 0, 1)))
    offsets, placed = place_until(instance, np.array([2, 0, 1]), first_fit, limit=11)
    assert placed == 2
    assert offsets.tolist() == [4, FREE, 0]
    assert place(instance, np.arange(3), first_fit, limit=11) is None
    assert place(instance, np.arange(3), first_fit, limit=12) is not None


def test_pins_are_respected_wherever_they_stand_in_the_order() -> None:
    p = LayoutProblem((Buffer("a", 6, Lifespan(0, 2)), Buffer("b", 4, Lifespan(1, 3), 1, 4)))
    offsets = place(Instance.of(p), np.arange(2), first_fit)
    assert offsets is not None
    assert offsets.tolist() == [8, 4]


def test_alignment_is_respected_when_it_differs() -> None:
    p = LayoutProblem(tuple(Buffer(str(a), 5, Lifespan(0, 1), a) for a in (1, 8, 64, 2)))
    offsets = place(Instance.of(p), np.arange(4), first_fit)
    assert offsets is not None
    assert offsets.tolist() == [0, 8, 64, 14]


def test_orders_are_permutations() -> None:
    instance = Instance.of(training_shaped(1, buffers=60))
    found = {name: order() for name, order in orders(instance).items()}
    assert {*LARGE_ORDERS, *FIRST_FIT_ORDERS, *BEST_FIT_ORDERS} <= set(found)
    for order in found.values():
        assert sorted(order.tolist()) == list(range(len(instance)))
    assert instance.size[found["size"]].tolist() == sorted(instance.size.tolist(), reverse=True)
    contention = [int(instance.load()[s:e].max()) for s, e in zip(instance.start, instance.end, strict=True)]
    assert [contention[i] for i in found["contention-size"]] == sorted(contention, reverse=True)


#: What an order sorts by, then what breaks ties, from (size, start, end, largest load, conflicts).
KEYS: dict[str, Callable[[int, int, int, int, int], tuple[float, float]]] = {
    "size": lambda z, s, e, load, met: (-z, s - e),
    "area": lambda z, s, e, load, met: (-z * (e - s), -z),
    "lifetime": lambda z, s, e, load, met: (s - e, -z),
    "size-root-lifetime": lambda z, s, e, load, met: (-z * math.sqrt(e - s), -z),
    "size-fourth-root-lifetime": lambda z, s, e, load, met: (-z * math.sqrt(math.sqrt(e - s)), -z),
    "contention-size": lambda z, s, e, load, met: (-load, -z),
    "contention-area": lambda z, s, e, load, met: (-load, -z * (e - s)),
    "degree": lambda z, s, e, load, met: (-met, -z),
    "start-size": lambda z, s, e, load, met: (s, -z),
    "start-lifetime": lambda z, s, e, load, met: (s, s - e),
    "end-size": lambda z, s, e, load, met: (-e, -z),
    "degree-size": lambda z, s, e, load, met: (-met * z, s - e),
    "birth": lambda z, s, e, load, met: (s, e),
    "death": lambda z, s, e, load, met: (-e, -s),
    "end": lambda z, s, e, load, met: (e, s),
    "listed": lambda z, s, e, load, met: (0, 0),
}


def test_the_order_by_magnitude_takes_powers_of_four_together_and_long_lives_first() -> None:
    instance = Instance.of(random_problem(random.Random(5), 60, 4, 3000))
    columns = zip(instance.size.tolist(), instance.start.tolist(), instance.end.tolist(), strict=True)
    rows = [(-(size.bit_length() // 2), start - end) for size, start, end in columns]
    assert len({magnitude for magnitude, _ in rows}) > 3
    assert len(set(rows)) < len(rows)
    found = orders(instance)["magnitude-lifetime"]().tolist()
    assert found == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize(
    ("name", "weight"),
    [("size-slack", SIZE_LEADS), ("size-and-slack", NEITHER_LEADS), ("slack-size", SLACK_LEADS)],
)
def test_an_order_by_slack_weighs_it_in_sizes_of_the_largest_buffer(name: str, weight: float) -> None:
    """Slack is what is free below the largest load throughout a life."""
    instance = Instance.of(random_problem(random.Random(5), 60, 12, 7))
    load, sizes = instance.load(), instance.size.tolist()
    lives = zip(instance.start.tolist(), instance.end.tolist(), strict=True)
    slack = [int(load.max() - load[start:end].max()) for start, end in lives]
    unit = weight * max(sizes) / max(slack)
    rows = [(slack[i] * unit - size, -size) for i, size in enumerate(sizes)]
    assert len(set(slack)) > 3
    assert orders(instance)[name]().tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize("name", KEYS)
def test_an_order_sorts_by_two_keys_and_then_as_the_problem_does(name: str) -> None:
    """Few different sizes and steps, so that there are ties."""
    instance = Instance.of(random_problem(random.Random(5), 60, 5, 4))
    columns = (instance.size.tolist(), instance.start.tolist(), instance.end.tolist())
    load, met = instance.load(), instance.degree().tolist()
    rows = [
        KEYS[name](z, s, e, int(load[s:e].max()), met[i])
        for i, (z, s, e) in enumerate(zip(*columns, strict=True))
    ]
    assert len(set(rows)) < len(rows)
    assert orders(instance)[name]().tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize(
    ("rule", "rows", "lowest"),
    [
        ("lifetime", [(1, 0, 2), (3, 0, 2)], 1),  # equally long: the larger one
        ("lifetime", [(4, 0, 1), (2, 0, 2), (1, 1, 2)], 1),
        ("area", [(4, 0, 1), (2, 0, 2), (1, 1, 2)], 1),  # of equal area: the longer one
        ("area", [(2, 0, 2), (5, 0, 1), (1, 1, 2)], 1),
        ("size", [(2, 0, 1), (2, 0, 2), (1, 1, 2)], 1),  # equally large: the longer one
        ("size", [(2, 0, 2), (4, 0, 1), (1, 1, 2)], 1),
    ],
)
def test_the_skyline_takes_the_best_by_two_keys_first(
    rule: str, rows: list[tuple[int, int, int]], lowest: int
) -> None:
    """The first two compete for the ground."""
    offsets = lowest_plateau(Instance.of(problem(*rows)), rule, MAX_BYTES)
    assert offsets is not None
    assert offsets[lowest] == 0
    assert offsets[1 - lowest] > 0


@pytest.mark.parametrize("rule", RULES)
def test_the_skyline_without_a_deadline_is_never_cut(rule: str) -> None:
    instance = Instance.of(training_shaped(5, buffers=80))
    offsets = lowest_plateau(instance, rule, MAX_BYTES)
    assert offsets is not None
    assert offsets.tolist() == np.array(lowest_plateau(instance, rule, MAX_BYTES, Deadline())).tolist()
    assert lowest_plateau(instance, rule, MAX_BYTES, Deadline.after(0)) is None


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(10))
def test_the_skyline_makes_valid_layouts(rule: str, seed: int) -> None:
    p = random_problem(random.Random(seed), 30, 20, 40, (8,))
    instance = Instance.of(p)
    offsets = lowest_plateau(instance, rule, MAX_BYTES)
    assert offsets is not None
    made = layout_of(instance, offsets)
    assert find_violations(p, made) == ()
    assert lowest_plateau(instance, rule, made.peak - 1) is None


def test_the_skyline_fills_the_niche_first() -> None:
    """The niche [1, 2) between two towers takes what fits inside before anything wide goes on top."""
    p = problem((6, 0, 2), (6, 4, 6), (3, 1, 5), (3, 2, 4))
    offsets = lowest_plateau(Instance.of(p), "lifetime", MAX_BYTES)
    assert offsets is not None
    assert offsets[3] in (0, 3)
    assert layout_of(Instance.of(p), offsets).peak == 9


def test_the_portfolio_stops_at_the_bound_and_reports_the_order() -> None:
    p = problem((4, 0, 3), (3, 0, 3))
    result = greedy_portfolio(Instance.of(p), 7, Deadline())
    assert (result.layout.peak, result.order, result.cut) == (7, "size, first_fit", False)


def test_an_expired_deadline_still_gives_one_layout() -> None:
    p = training_shaped(29, buffers=150)
    result = greedy_portfolio(Instance.of(p), 0, Deadline.after(0))
    assert result.cut
    assert result.order == "size, first_fit"
    assert find_violations(p, result.layout) == ()


@pytest.mark.parametrize("seed", range(25))
def test_portfolios_with_pins_and_mixed_alignment_are_valid(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 25, 12, 40, (1, 4, 16))
    pinned = Buffer("pinned", 8, Lifespan(3, 9), 4, 4 * rng.randrange(20))
    p = LayoutProblem((*p.buffers, pinned))
    bound = max_load(p).bytes
    made = greedy_portfolio(Instance.of(p), bound, Deadline()).layout
    assert find_violations(p, made) == ()
    assert made.peak >= bound


def test_huge_sizes() -> None:
    p = problem((2**62, 0, 2), (2**61, 1, 3), (2**60, 2, 4))
    assert greedy_portfolio(Instance.of(p), max_load(p).bytes, Deadline()).layout == Layout(
        (0, 2**62, 0), 2**62 + 2**61
    )
