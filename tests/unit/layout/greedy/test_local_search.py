from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan, find_violations, max_load
from solver.layout.greedy.local_search import LocalSearch, improve
from solver.layout.greedy.placement import greedy_portfolio, place
from solver.layout.model.instance import Instance, layout_of
from tests.support.buffers import countdown, random_problem, solved, tight_problem
from tests.support.training_shaped import training_shaped


def test_it_never_makes_things_worse_and_repeats_itself() -> None:
    p = tight_problem(random.Random(4))
    instance, bound = Instance.of(p), max_load(p).bytes
    start = greedy_portfolio(instance, 2**63, Deadline()).layout
    once = improve(instance, start, bound, 3000, Deadline())
    assert once == improve(instance, start, bound, 3000, Deadline())
    assert bound <= once.layout.peak <= start.peak
    assert find_violations(p, once.layout) == ()


def test_it_reaches_the_bound_from_a_poor_start() -> None:
    p = training_shaped(29, buffers=150)
    instance, bound = Instance.of(p), max_load(p).bytes
    start = layout_of(instance, place(instance, np.arange(len(instance)))[0])
    result = improve(instance, start, bound, 40_000, Deadline())
    assert start.peak > result.layout.peak
    assert not result.cut


def test_at_the_bound_no_work_is_done() -> None:
    p = training_shaped(1, buffers=60)
    outcome = solved(p)
    result = improve(Instance.of(p), outcome.layout, outcome.lower_bound, 10**9, Deadline())
    assert result.layout is outcome.layout


def test_an_expired_deadline_returns_the_start() -> None:
    p = tight_problem(random.Random(4))
    start = greedy_portfolio(Instance.of(p), 2**63, Deadline()).layout
    result = improve(Instance.of(p), start, 0, 10**9, Deadline.after(0))
    assert (result.layout, result.cut) == (start, True)


@pytest.mark.parametrize("seed", range(12))
def test_pins_and_mixed_alignment_are_kept(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 20, 10, 30, (1, 4, 16))
    p = LayoutProblem((*p.buffers, Buffer("pinned", 8, Lifespan(2, 8), 4, 4 * rng.randrange(10))))
    outcome = LocalSearch(work=2000).solve(p, Deadline())
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert outcome.layout.peak <= greedy_portfolio(Instance.of(p), 0, Deadline()).layout.peak


def test_a_deadline_that_cuts_in_keeps_what_was_found() -> None:
    p = tight_problem(random.Random(4))
    start = greedy_portfolio(Instance.of(p), 2**63, Deadline()).layout
    result = improve(Instance.of(p), start, 0, 10**9, countdown(50))
    assert result.cut
    assert result.layout.peak <= start.peak
    assert find_violations(p, result.layout) == ()


def test_too_little_work_for_one_pass_changes_nothing() -> None:
    p = training_shaped(1, buffers=200)
    start = greedy_portfolio(Instance.of(p), 2**63, Deadline()).layout
    result = improve(Instance.of(p), start, 0, len(p.buffers) - 1, Deadline())
    assert (result.layout, result.cut) == (start, False)
