from __future__ import annotations

import os
import random
from itertools import combinations_with_replacement

import pytest

from solver.layout import (
    Buffer,
    Deadline,
    LayoutProblem,
    Lifespan,
    Proof,
    Status,
    find_violations,
    max_load,
    solve,
)
from solver.layout.exact.branch_and_bound import BranchAndBound, fits, tighten
from solver.layout.exact.skyline_search import Answer, Budget
from solver.layout.greedy.placement import greedy_portfolio
from solver.layout.model.instance import Instance, layout_of
from tests.support.buffers import best_peak, problem, random_problem, tight_problem, varied
from tests.support.training_shaped import training_shaped

CASES = int(os.environ.get("ARENAPLAN_FUZZ") or 150)


def _above_bound(rng: random.Random, wanted: int) -> list[LayoutProblem]:
    """Problems whose optimum lies above the max-load bound, the first by chance, most by mutation."""
    found: list[LayoutProblem] = []
    while len(found) < wanted:
        mutate = found and rng.random() < 0.8
        candidate = varied(rng, rng.choice(found[-100:])) if mutate else tight_problem(rng)
        if len(candidate.buffers) <= 16:
            outcome = solve(candidate, solver="branch-and-bound")
            assert outcome.status is Status.OPTIMAL
            if outcome.proof is Proof.SOLVER:
                found.append(candidate)
    return found


def test_fits_answers_both_ways_with_exact_bounds() -> None:
    instance = Instance.of(problem((4, 0, 2), (4, 1, 3), (4, 2, 4)))
    answer, offsets = fits(instance, 8, Budget(1000))
    assert answer is Answer.YES
    assert offsets is not None
    assert layout_of(instance, offsets).peak <= 8
    assert fits(instance, 7, Budget(1000)) == (Answer.NO, None)


def test_without_budget_nothing_is_claimed() -> None:
    (hard,) = _above_bound(random.Random(1), 1)
    bound = max_load(hard).bytes
    assert fits(Instance.of(hard), bound, Budget(1)) == (Answer.UNKNOWN, None)
    assert fits(Instance.of(hard), bound, Budget(10**6)) == (Answer.NO, None)


def test_an_expired_deadline_claims_nothing() -> None:
    p = training_shaped(20, buffers=150)  # one that the greedy portfolio leaves above the bound
    solver = BranchAndBound()
    greedy = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    outcome = solver.solve(p, Deadline.after(0), greedy)
    assert greedy.peak > outcome.lower_bound
    assert outcome.layout == greedy
    assert outcome.proof is None
    assert not outcome.deterministic


def test_tightening_lowers_the_peak_or_raises_the_bound() -> None:
    (hard,) = _above_bound(random.Random(2), 1)
    instance, bound = Instance.of(hard), max_load(hard).bytes
    start = greedy_portfolio(instance, bound, Deadline()).layout
    result = tighten(instance, start, bound, Budget(10**6))
    assert result.layout.peak == result.proved > bound


@pytest.mark.parametrize(
    "buffers",
    [
        (Buffer("a", 4, Lifespan(0, 2), 1, 8), Buffer("b", 4, Lifespan(0, 2))),
        (Buffer("a", 3, Lifespan(0, 2), 4), Buffer("b", 6, Lifespan(0, 2), 8)),
    ],
    ids=["pin", "mixed alignment"],
)
def test_what_is_not_supported_is_unknown(buffers: tuple[Buffer, ...]) -> None:
    outcome = solve(LayoutProblem(buffers), solver="branch-and-bound")
    assert (outcome.status, outcome.layout, outcome.proof) == (Status.UNKNOWN, None, None)


def test_alignment_that_divides_every_size_is_supported() -> None:
    mixed = (Buffer("a", 16, Lifespan(0, 2), 4), Buffer("b", 32, Lifespan(0, 2), 16))
    assert solve(LayoutProblem(mixed), solver="branch-and-bound").status is Status.OPTIMAL


@pytest.mark.parametrize("seed", range(CASES))
def test_optimum_agrees_with_trying_every_order(seed: int) -> None:
    rng = random.Random(seed)
    alignment = rng.choice((1, 1, 4, 8))
    p = random_problem(rng, rng.randint(1, 6), rng.randint(2, 7), rng.choice((3, 10)), (alignment,))
    outcome = solve(p, solver="branch-and-bound")
    assert outcome.status is Status.OPTIMAL
    assert outcome.layout is not None
    assert outcome.layout.peak == best_peak(p)


def test_optima_above_the_bound_agree_with_cp_sat() -> None:
    """The refuting side: here every answer rests on exhausted searches, not on the max-load bound."""
    for p in _above_bound(random.Random(3), CASES // 3):
        mine, other = solve(p, solver="branch-and-bound"), solve(p, solver="cp-sat")
        assert mine.layout is not None
        assert other.layout is not None
        assert (mine.proof, other.proof) == (Proof.SOLVER, Proof.SOLVER)
        assert mine.layout.peak == other.layout.peak == mine.lower_bound == other.lower_bound
        assert mine.lower_bound > max_load(p).bytes


def test_padding_at_the_top_is_used_exactly() -> None:
    """Both orders take 32 bytes below; only the one that leaves 3 on top reaches 19."""
    outcome = solve(problem((16, 0, 1), (3, 0, 1), alignment=16), solver="branch-and-bound")
    assert outcome.layout is not None
    assert (outcome.layout.peak, outcome.proof) == (19, Proof.MAX_LOAD)


@pytest.mark.parametrize("seed", [0, 1, 29])
def test_training_shaped_problems_reach_the_bound(seed: int) -> None:
    p = training_shaped(seed, buffers=150)
    outcome = solve(p, solver="branch-and-bound")
    assert outcome.proof is Proof.MAX_LOAD
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()


SPANS = [(start, end) for start in range(3) for end in range(start + 1, 4)]


@pytest.mark.parametrize(("count", "largest"), [(1, 3), (2, 3), (3, 3), (4, 2)])
def test_every_tiny_problem_is_solved_to_the_optimum(count: int, largest: int) -> None:
    kinds = [(size, start, end) for size in range(1, largest + 1) for start, end in SPANS]
    for rows in combinations_with_replacement(kinds, count):
        p = problem(*rows)
        outcome = solve(p, solver="branch-and-bound")
        assert outcome.layout is not None
        assert outcome.status is Status.OPTIMAL, rows
        assert outcome.layout.peak == best_peak(p), rows
