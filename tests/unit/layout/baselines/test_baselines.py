from __future__ import annotations

import random

import pytest

from solver.layout import (
    Buffer,
    Deadline,
    LayoutProblem,
    LayoutSolver,
    Lifespan,
    Proof,
    Status,
    find_violations,
    solve,
)
from solver.layout.baselines import (
    ANSWERED,
    BASELINES,
    BestFit,
    ExecutorchGreedy,
    NntrainerV1,
    NntrainerV3,
    Skyline,
    TflmGreedy,
)
from tests.support.buffers import problem, random_problem, solved
from tests.support.training_shaped import training_shaped


def offsets(p: LayoutProblem, solver: str) -> tuple[int, ...]:
    outcome = solved(p, solver=solver)
    assert outcome.solver == solver
    return outcome.layout.offsets


def test_bump_never_reuses() -> None:
    p = problem((5, 0, 1), (6, 1, 2), (7, 2, 3), alignment=8)
    assert offsets(p, "bump") == (0, 8, 16)
    assert solve(p, solver="bump").status is Status.FEASIBLE


def test_bump_goes_above_what_is_pinned() -> None:
    p = LayoutProblem((Buffer("a", 5, Lifespan(0, 1), 4), Buffer("b", 5, Lifespan(0, 1), 4, 8)))
    assert offsets(p, "bump") == (16, 8)


def test_first_fit_keeps_the_order_of_requests() -> None:
    p = problem((2, 0, 3), (8, 0, 2), (4, 0, 5), (8, 3, 5), (9, 3, 5))
    assert offsets(p, "first-fit") == (0, 2, 10, 0, 14)


def test_wic_goes_by_size_and_keeps_the_order_of_requests_among_equals() -> None:
    p = problem((4, 0, 9), (8, 0, 2), (4, 1, 9), (8, 5, 9), (6, 2, 5))
    assert offsets(p, "wic") == (8, 0, 12, 0, 0)


def test_wic_meets_the_bound_where_first_fit_in_request_order_does_not() -> None:
    p = problem((2, 0, 1), (2, 0, 9), (4, 1, 9))
    peaks = {
        name: max(o + b.size for o, b in zip(offsets(p, name), p.buffers, strict=True))
        for name in ("wic", "first-fit")
    }
    assert peaks == {"wic": 6, "first-fit": 8}
    assert solve(p, solver="wic").proof is Proof.MAX_LOAD


def placed(solver: LayoutSolver, p: LayoutProblem) -> tuple[int, ...]:
    outcome = solver.solve(p, Deadline())
    assert outcome.layout is not None
    assert outcome.solver == solver.name
    assert find_violations(p, outcome.layout) == ()
    assert outcome.layout.peak >= outcome.lower_bound
    return outcome.layout.offsets


@pytest.mark.parametrize("solver", BASELINES, ids=lambda solver: solver.name)
@pytest.mark.parametrize("seed", range(3))
def test_all_are_valid_and_above_the_bound(solver: LayoutSolver, seed: int) -> None:
    placed(solver, training_shaped(seed, buffers=120))


@pytest.mark.parametrize("solver", BASELINES, ids=lambda solver: solver.name)
def test_pins_and_mixed_alignments_are_kept(solver: LayoutSolver) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        p = random_problem(rng, 20, 10, 30, (1, 4, 16))
        pinned = Buffer("pinned", 8, Lifespan(2, 8), 4, 4 * rng.randrange(10))
        placed(solver, LayoutProblem((*p.buffers, pinned)))


@pytest.mark.parametrize("solver", BASELINES, ids=lambda solver: solver.name)
def test_nothing_to_place(solver: LayoutSolver) -> None:
    assert placed(solver, LayoutProblem(())) == ()


@pytest.mark.parametrize("solver", [NntrainerV1(), ExecutorchGreedy(), Skyline()], ids=lambda s: s.name)
def test_a_passed_deadline_leaves_a_layout_of_few_buffers_and_none_of_many(solver: LayoutSolver) -> None:
    few, many = ([(1, k, k + 1) for k in range(count)] for count in (ANSWERED, ANSWERED + 1))
    answered, outcome = (solver.solve(problem(*rows), Deadline.after(0)) for rows in (few, many))
    assert (answered.status, answered.deterministic) == (Status.OPTIMAL, True)
    assert (outcome.status, outcome.layout, outcome.deterministic) == (Status.UNKNOWN, None, False)


def test_v1_reuses_a_buried_slot_only_for_the_same_size() -> None:
    """The first dies below the second; only one of its own size may take its place."""
    smaller = problem((6, 0, 2), (5, 1, 9), (4, 3, 9))
    same = problem((6, 0, 2), (5, 1, 9), (6, 3, 9))
    assert placed(NntrainerV1(), smaller) == (0, 6, 11)
    assert placed(NntrainerV1(), same) == (0, 6, 0)


def test_v1_pops_what_expired_at_the_top() -> None:
    assert placed(NntrainerV1(), problem((6, 0, 9), (5, 1, 2), (4, 3, 9))) == (0, 6, 6)


def test_v3_takes_the_first_gap_by_birth() -> None:
    assert placed(NntrainerV3(), problem((4, 3, 9), (5, 1, 9), (6, 0, 2))) == (0, 6, 0)


def test_tflm_takes_later_requests_first_among_equals() -> None:
    assert placed(TflmGreedy(), problem((4, 0, 9), (8, 0, 9), (4, 0, 9))) == (12, 0, 8)


def test_best_fit_takes_the_tightest_gap() -> None:
    """The dead leave gaps of 4 and 3; the newborn of 3 takes the tighter, higher one."""
    p = problem((4, 0, 3), (2, 1, 9), (3, 2, 3), (2, 2, 9), (3, 5, 9))
    assert placed(BestFit(), p) == (0, 4, 6, 9, 6)


def test_executorch_shares_the_first_object_that_is_free() -> None:
    """b shares a's object after it; c lives with both but fits above neither, d fits above b."""
    p = problem((10, 0, 2), (6, 2, 5), (8, 1, 4), (4, 2, 3))
    assert placed(ExecutorchGreedy(), p) == (0, 0, 10, 6)
