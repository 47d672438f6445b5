"""Bounds for every order: by hand, against all orders of small problems, and never below the simple one."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest

from solver.accounting import ScheduleProblem, order_bound
from solver.layout import Deadline
from solver.schedules.order.cuts import Cuts, least_peak
from solver.schedules.order.search import Orders, best_order
from tests.support.schedule_problems import layered, problem


def before(given: ScheduleProblem) -> list[frozenset[int]]:
    """The steps whose values each step reads: step t defines value t."""
    return [frozenset(reads) for reads in given.reads]


def load(given: ScheduleProblem, earlier: list[frozenset[int]], order: tuple[int, ...]) -> list[int]:
    """The bytes live at each step, by step."""
    found = Orders(given, earlier).loads(order)
    return [int(found[order.index(t)]) for t in range(len(order))]


def orders(earlier: list[frozenset[int]]) -> list[tuple[int, ...]]:
    return [
        order
        for order in permutations(range(len(earlier)))
        if all(order.index(s) < order.index(t) for t, found in enumerate(earlier) for s in found)
    ]


def test_what_a_branch_leaves_least_of_waits_for_the_other() -> None:
    """While s3 runs, v0 is there for s1; where s1 stands in front of s3, v1 waits beside it, or v2."""
    reads = [[], [0], [1], [0], [3], [2, 4]]
    given = problem(reads, size=[9, 7, 5, 20, 4, 1], cost=[1] * 6, kept=[5])
    assert Cuts(given, before(given)).bytes_at(3, Deadline()) == 9 + 20  # v0 is there for s1 anyway
    done = [*before(given)]
    done[3] |= {1}
    cuts = Cuts(given, done)
    assert cuts.bytes_at(3, Deadline()) == 9 + 20 + 5
    assert cuts.bytes_at(4, Deadline()) == 20 + 4 + 5


def test_all_branches_begin_with_one_value() -> None:
    """Each branch shrinks what it gets from a wide one; its end, or the wide value, waits for the other."""
    reads = [[], [0], [0], [1], [2], [3, 4]]
    given = problem(reads, size=[10, 50, 50, 8, 8, 1], cost=[1] * 6, kept=[5])
    earlier = before(given)
    assert order_bound(given).bytes == 60
    assert least_peak(given, earlier, load(given, earlier, tuple(range(6)))) == 66
    assert min(max(load(given, earlier, order)) for order in orders(earlier)) == 68


@pytest.mark.parametrize("seed", range(30))
def test_no_order_is_below_its_cut_at_any_step(seed: int) -> None:
    """With a value of the caller, a step that must follow another without reading, and values that share."""
    rng = random.Random(seed)
    given = layered(7, seed, width=2.5, skip=0.3)
    earlier = before(given)
    later = rng.randrange(3, 7)
    earlier[later] |= {rng.randrange(later)}
    given = replace(
        given,
        values=(*given.values, "fed"),
        size=(*given.size, rng.randint(1, 100)),
        fed=(*given.fed, True),
        kept=(*given.kept, rng.random() < 0.3),
        maker=(*given.maker, -1),
        together=(*given.together, 7),
        reads=tuple((*reads, 7) if rng.random() < 0.3 else reads for reads in given.reads),
        scratch=tuple(rng.randint(0, 30) for _ in range(7)),
        fixed=rng.randint(0, 50),
    )
    cuts = Cuts(given, earlier)
    at = [cuts.bytes_at(t, Deadline()) for t in range(7)]
    apart = replace(given, together=(0, 0, *given.together[2:]))
    less = [Cuts(apart, earlier).bytes_at(t, Deadline()) for t in range(7)]
    assert all(a >= b for a, b in zip(at, less, strict=True))
    found = [load(given, earlier, order) for order in orders(earlier)]
    for t in range(7):
        assert at[t] <= min(each[t] for each in found)
    assert order_bound(given).bytes <= least_peak(given, earlier, found[0]) <= min(map(max, found))


def test_branching_graphs_are_nearly_solved() -> None:
    given = layered(250, 1, width=8, skip=0.2)
    found = best_order(given, before(given), turns=200_000)
    assert order_bound(given).bytes < 0.8 * found.bound
    assert found.bound <= found.peak <= 1.05 * found.bound


def test_a_deadline_that_has_passed_leaves_the_simple_bound() -> None:
    given = layered(60, 1, width=4, skip=0.2)
    earlier = before(given)
    load_ = load(given, earlier, tuple(range(60)))
    assert least_peak(given, earlier, load_, Deadline(at=0.0)) == order_bound(given).bytes
