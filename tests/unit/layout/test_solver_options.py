"""Options of the solvers behind the portfolio: each is honoured, or refused by name."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest

from solver.layout import (
    Buffer,
    Deadline,
    LayoutProblem,
    LayoutSolver,
    Lifespan,
    Progress,
    Proof,
    Rules,
    SolveOptions,
    Status,
    find_violations,
    max_load,
    solve,
)
from solver.layout.exact.capacity_search import BranchAndBound
from solver.layout.greedy.local_search import LocalSearch
from solver.layout.model.options import USUAL_WORK
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import best_peak, countdown, random_problem
from tests.support.oracle import sample
from tests.support.training_shaped import training_shaped

RULES = [field.name for field in fields(Rules)]
ABOVE = next(p for p in map(sample, range(100)) if 9 < len(p.buffers) < 14 and solve(p).proof is Proof.SOLVER)


@pytest.mark.parametrize("rule", RULES)
def test_branch_and_bound_finds_the_optimum_without_any_one_rule(rule: str) -> None:
    options = SolveOptions(rules=replace(Rules(), **{rule: False}))
    for seed in range(15):
        p = random_problem(random.Random(seed), 6, 6, 9, (1, 4)[seed % 2 :][:1])
        outcome = solve(p, solver="branch-and-bound", options=options)
        assert outcome.layout is not None
        assert (outcome.status, outcome.layout.peak) == (Status.OPTIMAL, best_peak(p)), seed
    refuted = solve(ABOVE, solver="branch-and-bound", options=options)
    assert refuted.lower_bound == solve(ABOVE).lower_bound > max_load(ABOVE).bytes


def test_branch_and_bound_spends_the_work_it_is_given() -> None:
    poor = solve(ABOVE, solver="branch-and-bound", options=SolveOptions(work=3))
    assert poor.status is Status.FEASIBLE
    assert poor.deterministic


@pytest.mark.parametrize("work", [600_000_000, USUAL_WORK, 40_000_000])
def test_work_that_is_asked_for_is_never_taken_for_the_usual(work: int) -> None:
    assert SolveOptions(work=work).limit(7) == work
    assert SolveOptions().limit(7) == 7


def test_branch_and_bound_tells_of_progress() -> None:
    heard: list[Progress] = []
    outcome = solve(ABOVE, solver="branch-and-bound", options=SolveOptions(progress=heard.append))
    assert heard[-1].bound == outcome.lower_bound
    assert heard[-1].incumbent == outcome.lower_bound
    assert {news.stage for news in heard} == {"branch-and-bound"}


@pytest.mark.parametrize("name", ["portfolio", "search", "branch-and-bound", "cp-sat"])
def test_a_capacity_that_is_met_is_enough(name: str) -> None:
    best = solve(ABOVE).lower_bound
    wide = replace(ABOVE, capacity=best + 2)
    fitted = solve(wide, solver=name, options=SolveOptions(fit=True))
    assert fitted.layout is not None
    assert fitted.layout.peak <= best + 2
    assert fitted.lower_bound <= best


@pytest.mark.parametrize("name", ["portfolio", "branch-and-bound"])
def test_a_capacity_below_the_optimum_is_refuted(name: str) -> None:
    best = solve(ABOVE).lower_bound
    tight = replace(ABOVE, capacity=best - 1)
    outcome = solve(tight, solver=name, options=SolveOptions(fit=True))
    assert (outcome.status, outcome.proof) == (Status.INFEASIBLE, Proof.SOLVER)
    assert outcome.lower_bound == best


@pytest.mark.parametrize("name", ["portfolio", "search", "branch-and-bound", "cp-sat"])
def test_a_target_gap_ends_the_search_and_claims_nothing(name: str) -> None:
    p = LayoutProblem((*ABOVE.buffers, Buffer("apart", 1, Lifespan(90, 91))))
    outcome = solve(p, solver=name, options=SolveOptions(target_gap=1.0))
    assert outcome.layout is not None
    assert outcome.layout.peak <= 2 * outcome.lower_bound
    assert outcome.lower_bound <= solve(ABOVE).lower_bound


@pytest.mark.parametrize("gap", [1e308, 1e19, 2.0**63])
@pytest.mark.parametrize("name", ["portfolio", "search", "branch-and-bound", "cp-sat"])
def test_a_huge_target_gap_takes_the_first_layout(name: str, gap: float) -> None:
    """The product of bound and gap is infinite, or more than an offset can be."""
    outcome = solve(ABOVE, solver=name, options=SolveOptions(target_gap=gap))
    assert outcome.layout is not None
    assert find_violations(ABOVE, outcome.layout) == ()


@pytest.mark.parametrize("capacity", [MAX_BYTES, MAX_BYTES + 1, 2**70])
@pytest.mark.parametrize("name", ["portfolio", "search", "branch-and-bound", "cp-sat"])
def test_a_huge_capacity_takes_the_first_layout(name: str, capacity: int) -> None:
    """More bytes than an offset can be."""
    outcome = solve(replace(ABOVE, capacity=capacity), solver=name, options=SolveOptions(fit=True))
    assert outcome.layout is not None
    assert find_violations(ABOVE, outcome.layout) == ()


@pytest.mark.parametrize("solver", [BranchAndBound(SolveOptions(work=0)), LocalSearch(work=1)])
def test_a_deadline_among_the_orders_is_told_where_no_work_is_left(solver: LayoutSolver) -> None:
    assert not solver.solve(ABOVE, countdown(0)).deterministic
    assert solver.solve(ABOVE, Deadline()).deterministic


@pytest.mark.parametrize(
    ("bound", "gap", "peak"),
    [(100, 0.0, 100), (100, 0.259, 125), (0, 1e308, 0), (MAX_BYTES, 1e308, MAX_BYTES), (1, 1e19, MAX_BYTES)],
)
def test_the_largest_peak_within_the_target_gap(bound: int, gap: float, peak: int) -> None:
    options = SolveOptions(target_gap=gap)
    assert options.within_gap(bound) == options.enough(bound, None) == peak


@pytest.mark.parametrize("name", ["search", "branch-and-bound", "cp-sat"])
def test_a_seed_repeats_itself(name: str) -> None:
    p = training_shaped(20, buffers=60)
    for seed in (0, 7):
        options = SolveOptions(seed=seed)
        assert solve(p, solver=name, options=options).layout == solve(p, solver=name, options=options).layout
