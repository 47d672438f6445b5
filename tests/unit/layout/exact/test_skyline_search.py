"""The exact search by itself: runs, budgets, memory, and that no rule changes an answer."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from solver.layout import LayoutProblem, max_load
from solver.layout.exact import skyline_search as module
from solver.layout.exact.skyline_search import Answer, Budget, Placed, SkylineSearch
from solver.layout.model.instance import Instance
from tests.support.buffers import best_peak, countdown, layout, problem, random_problem, tight_problem

PLENTY = 10**9


def run(p: LayoutProblem, capacity: int, rank: list[int] | None = None) -> tuple[Answer, dict[int, int]]:
    search = SkylineSearch(Instance.of(p), capacity)
    answer, placed = search.run(rank or list(range(len(p.buffers))), PLENTY, Budget(PLENTY))
    return answer, dict(unlinked(placed))


def unlinked(placed: Placed) -> Iterator[tuple[int, int]]:
    while placed is not None:
        i, offset, placed = placed
        yield i, offset


def test_all_buffers_are_placed_on_floors() -> None:
    p = problem((4, 0, 2), (4, 1, 3), (4, 2, 4))
    answer, offsets = run(p, 8)
    assert answer is Answer.YES
    assert sorted(offsets) == [0, 1, 2]
    assert set(offsets.values()) == {0, 4}


def test_a_capacity_below_the_load_is_refused_at_once() -> None:
    assert run(problem((4, 0, 2), (4, 1, 3)), 7) == (Answer.NO, {})


def test_nothing_to_place() -> None:
    assert run(LayoutProblem(()), 0) == (Answer.YES, {})


@pytest.mark.parametrize("seed", range(60))
def test_answers_on_both_sides_of_the_optimum(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, rng.randint(2, 6), 6, rng.choice((3, 8)), (rng.choice((1, 4)),))
    optimum = best_peak(p)
    assert run(p, optimum)[0] is Answer.YES
    assert run(p, optimum - 1)[0] is Answer.NO


@pytest.mark.parametrize("seed", range(40))
def test_no_priority_and_no_memory_changes_an_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    p = tight_problem(rng)
    if len(p.buffers) > 15:
        p = LayoutProblem(p.buffers[:15])
    bound = max_load(p).bytes
    expected = run(p, bound)[0]
    ranks = list(range(len(p.buffers)))
    for _ in range(3):
        rng.shuffle(ranks)
        assert run(p, bound, ranks)[0] is expected
    monkeypatch.setattr(module, "MEMORY_LIMIT", 0)
    assert run(p, bound)[0] is expected


@pytest.mark.parametrize("seed", range(20))
def test_offsets_found_are_a_layout_within_the_capacity(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 14, 10, 12, (rng.choice((1, 8)),))
    for capacity in (max_load(p).bytes, max_load(p).bytes + 3):
        answer, offsets = run(p, capacity)
        if answer is Answer.YES:
            made = layout(p, *(offsets[i] for i in range(14)))
            assert made.peak <= capacity


def test_runs_share_what_was_refuted() -> None:
    p = next(q for q in map(tight_problem, map(random.Random, range(500))) if _refuted_above_one_node(q))
    search, rank = SkylineSearch(Instance.of(p), max_load(p).bytes), list(range(len(p.buffers)))
    first, second = Budget(PLENTY), Budget(PLENTY)
    assert search.run(rank, PLENTY, first)[0] is Answer.NO
    assert search.run(rank, PLENTY, second)[0] is Answer.NO
    assert second.work > first.work


def _refuted_above_one_node(p: LayoutProblem) -> bool:
    if len(p.buffers) > 20:
        return False
    search = SkylineSearch(Instance.of(p), max_load(p).bytes)
    budget = Budget(PLENTY)
    answer, _ = search.run(list(range(len(p.buffers))), PLENTY, budget)
    return answer is Answer.NO and PLENTY - budget.work > 100


def test_a_run_ends_at_its_nodes_and_the_budget_at_its_work() -> None:
    p = problem(*[(2, i, i + 3) for i in range(20)])
    search = SkylineSearch(Instance.of(p), 6)
    budget = Budget(PLENTY)
    assert search.run(list(range(20)), 2, budget) == (Answer.UNKNOWN, None)
    assert not budget.spent
    small = Budget(10)
    assert search.run(list(range(20)), PLENTY, small) == (Answer.UNKNOWN, None)
    assert small.spent
    assert not small.cut


def test_the_deadline_is_polled_as_work_is_spent() -> None:
    budget = Budget(PLENTY, countdown(1))
    assert budget.spend(module.POLL)
    assert not budget.spend(module.POLL)
    assert budget.cut
    assert budget.spent
    assert not budget.spend(1)


def test_small_expenses_do_not_ask_for_the_time() -> None:
    budget = Budget(module.POLL - 1, countdown(0))
    assert all(budget.spend(1) for _ in range(100))
