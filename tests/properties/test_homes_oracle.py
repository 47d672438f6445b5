"""Homes against brute force and against the greedy planners of other systems, whatever the problem."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.accounting import HomeItem, HomeProblem, added_up_homes
from solver.layout import Deadline, Lifespan
from solver.schedules.homes.refine import Housed, Unhoused, housed
from tests.support.home_peers import PEERS, Placed
from tests.support.homes import laid_out, least_nanoseconds, tiny_problem

SEEDS = st.integers(0, 2**40)


@given(SEEDS, st.booleans())
def test_no_choice_of_homes_with_layouts_takes_less_time(seed: int, tight: bool) -> None:
    problem = tiny_problem(random.Random(seed), tight=tight)
    least = least_nanoseconds(problem, layouts=True)
    result = housed(problem, [1] * len(problem.items), laid_out(problem), Deadline())
    if least is None:
        assert isinstance(result, Unhoused)
        return
    assert isinstance(result, Housed)
    assert problem.nanoseconds(result.homes) == least
    bound = result.certificate
    assert added_up_homes(problem, bound.rows, bound.denominator) == bound.nanoseconds
    assert bound.nanoseconds <= result.bound <= least


def larger_problem(chance: random.Random) -> HomeProblem:
    """Ten to fifty items of many sizes, some of them weights, in memories that just hold them."""
    levels, items = chance.randrange(6, 30), []
    memories = chance.choice((2, 3))
    for _ in range(chance.randrange(10, 50)):
        start = chance.randrange(levels)
        span = Lifespan(start, min(levels, start + chance.randrange(1, 8)))
        if chance.random() < 0.2:
            span = Lifespan(0, levels)
        size = chance.choice((chance.randrange(1, 200), 1 << chance.randrange(8)))
        accesses = chance.randrange(1, 6)
        items.append(HomeItem(size, (span,), tuple(accesses * size * 5**k for k in range(memories))))
    load = max(
        sum(i.size for i in items if i.spans[0].start <= level < i.spans[0].end) for level in range(levels)
    )
    shares = [chance.uniform(0.05, 0.6) for _ in range(memories - 1)]
    rest = max(0.0, 1 - sum(shares)) * chance.uniform(1.0, 1.6) + 0.1
    return HomeProblem(tuple(items), tuple(max(1, round(load * share)) for share in (*shares, rest)))


@given(SEEDS)
def test_greedy_planners_of_other_systems_are_never_faster_and_never_fit_alone(seed: int) -> None:
    problem = larger_problem(random.Random(seed))
    result = housed(problem, [1] * len(problem.items), laid_out(problem), Deadline())
    for name, peer in PEERS.items():
        theirs = peer(problem)
        if theirs is None:
            continue
        check_layout(problem, theirs)
        assert isinstance(result, Housed), name
        assert problem.nanoseconds(result.homes) <= problem.nanoseconds([k for k, _ in theirs]), name


def check_layout(problem: HomeProblem, placed: Placed) -> None:
    """What a peer says it has placed lies in its memory, and apart."""
    assert placed is not None
    for i, (item, (k, offset)) in enumerate(zip(problem.items, placed, strict=True)):
        assert offset + item.size <= problem.capacities[k]
        for other, (other_k, other_offset) in zip(problem.items[:i], placed[:i], strict=True):
            if other_k == k and item.spans[0].overlaps(other.spans[0]):
                assert offset + item.size <= other_offset or other_offset + other.size <= offset


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_fills_the_fast_memory_first(name: str) -> None:
    items = tuple(HomeItem(size, (Lifespan(0, 1),), (size, 9 * size)) for size in (4, 3, 2))
    assert PEERS[name](HomeProblem(items, (6, 8))) == [(0, 0), (1, 0), (0, 4)]
    assert PEERS[name](HomeProblem(items, (3, 3))) is None
