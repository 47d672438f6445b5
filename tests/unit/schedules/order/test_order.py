"""Another order of the same steps, and bounds for every order."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest

from solver.accounting import ScheduleProblem, order_bound
from solver.layout import Deadline
from solver.schedules.order.cuts import Cuts, least_peak
from solver.schedules.order.search import Orders, best_order
from solver.schedules.recompute.simulate import replay
from tests.support.schedule_problems import layered, legal, problem


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


# ------------------ Another order of the same steps: legal, never worse, and the best one where that is known


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
