from __future__ import annotations

import pytest

from solver.layout import Buffer, Lifespan, Problem, Proof, Status, find_violations, max_load, solve
from tests.support.buffers import problem
from tests.support.training_shaped import training_shaped


def offsets(p: Problem, solver: str) -> tuple[int, ...]:
    outcome = solve(p, solver=solver)
    assert outcome.layout is not None
    assert outcome.solver == solver
    return outcome.layout.offsets


def test_bump_never_reuses() -> None:
    p = problem((5, 0, 1), (6, 1, 2), (7, 2, 3), alignment=8)
    assert offsets(p, "bump") == (0, 8, 16)
    assert solve(p, solver="bump").status is Status.FEASIBLE


def test_bump_goes_above_what_is_pinned() -> None:
    p = Problem((Buffer("a", 5, Lifespan(0, 1), 4), Buffer("b", 5, Lifespan(0, 1), 4, 8)))
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


@pytest.mark.parametrize("solver", ["bump", "first-fit", "wic"])
@pytest.mark.parametrize("seed", range(3))
def test_all_are_valid_and_above_the_bound(solver: str, seed: int) -> None:
    p = training_shaped(seed, buffers=120)
    outcome = solve(p, solver=solver)
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert outcome.layout.peak >= max_load(p).bytes
