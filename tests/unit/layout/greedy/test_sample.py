"""Samples: small, from the crowded part, and a fair judge of orders."""

from __future__ import annotations

import numpy as np
import pytest

from solver.layout import Deadline, find_violations
from solver.layout.greedy.index import kernel
from solver.layout.greedy.large import LARGE
from solver.layout.greedy.placement import BY_SIZE, first_fit, greedy_portfolio, orders, place, place_suited
from solver.layout.greedy.sample import SAMPLE, Orders, ranked, sample
from solver.layout.model.instance import Instance, layout_of
from tests.support.shapes import SHAPES


@pytest.mark.parametrize("shape", ["any", "one length", "staircase", "mixed alignments", "pins", "nested"])
def test_a_sample_is_small_and_the_same_every_time(shape: str) -> None:
    instance = Instance.of(SHAPES[shape](20_000, 1))
    part, again = sample(instance), sample(instance)
    assert SAMPLE // 2 <= len(part) <= 2 * SAMPLE
    assert part.sections <= instance.sections
    assert np.array_equal(part.size, again.size)
    assert np.array_equal(part.start, again.start)


def test_a_sample_of_few_at_a_time_is_as_crowded_as_all() -> None:
    instance = Instance.of(SHAPES["any"](20_000, 1))
    assert sample(instance).load().max() == instance.load().max()


def test_all_of_a_small_problem_is_its_sample() -> None:
    instance = Instance.of(SHAPES["any"](200, 1))
    assert len(sample(instance)) == len(instance)


def _two(instance: Instance) -> Orders:
    by_name = orders(instance)
    return {name: (by_name[name], False) for name in ("size", "birth")}


def test_the_order_that_suits_the_sample_goes_first() -> None:
    module, instance = kernel(), Instance.of(SHAPES["one length"](20_000, 1))
    assert module is not None
    assert ranked(sample(instance), module, _two, Deadline()) == ["birth", "size"]


def test_after_the_deadline_orders_stay_as_they_are_listed() -> None:
    module, instance = kernel(), Instance.of(SHAPES["one length"](20_000, 1))
    assert module is not None
    assert ranked(sample(instance), module, _two, Deadline.after(-1.0)) == ["size", "birth"]


def test_one_attempt_is_as_good_as_the_first_ones_listed() -> None:
    """Which is what the sample is for."""
    instance = Instance.of(SHAPES["staircase"](LARGE, 1))
    bound = int(instance.load().max())
    found = greedy_portfolio(instance, bound, Deadline(), attempts=1)
    by_size = place(instance, orders(instance)["size"](), first_fit)
    assert by_size is not None
    assert found.layout.peak < int((by_size + instance.exact).max())


def test_what_suits_the_sample_gives_way_to_the_order_by_size_where_it_takes_too_long() -> None:
    """And the offsets are of one of the two, never half of each."""
    problem = SHAPES["any"](2 * LARGE, 1)
    instance = Instance.of(problem)
    in_time, late = (place_suited(instance, "birth, best_fit", d) for d in (Deadline(), Deadline.after(-1.0)))
    assert [name for _, name in (in_time, late)] == ["birth, best_fit", BY_SIZE]
    for offsets, _ in (in_time, late):
        assert not find_violations(problem, layout_of(instance, offsets))
