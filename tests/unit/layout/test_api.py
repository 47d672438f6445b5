"""What `solve` promises, whichever solver does the work."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import solver.layout
from solver.errors import InternalError, OptionsError, ProblemError
from solver.layout import (
    SOLVERS,
    Buffer,
    Deadline,
    Layout,
    LayoutProblem,
    Lifespan,
    Outcome,
    Proof,
    Reserved,
    Status,
    api,
    find_violations,
    max_load,
    solve,
)
from tests.support.buffers import DATA, layout, problem, random_problem, read_csv, tight_problem
from tests.support.training_shaped import training_shaped

#: Loads of at most 12, yet no layout under 13 bytes.
TIGHT = next(
    p
    for p in (tight_problem(random.Random(seed)) for seed in range(2000))
    if len(p.buffers) <= 20 and solve(p, solver="branch-and-bound").proof is Proof.SOLVER
)


def test_public_names() -> None:
    assert sorted(solver.layout.__all__) == [
        "Alignment",
        "Buffer",
        "Certificate",
        "Deadline",
        "Hole",
        "Layout",
        "LayoutOptions",
        "LayoutProblem",
        "LayoutSolver",
        "Lifespan",
        "LowerBound",
        "MAX_BYTES",
        "Outcome",
        "Piece",
        "Pin",
        "PlacedBuffers",
        "PlacedHomes",
        "PlacedMemory",
        "Progress",
        "Proof",
        "Reserved",
        "Rules",
        "SOLVERS",
        "SolveOptions",
        "Status",
        "Violation",
        "above_reserved",
        "check_problem",
        "find_violations",
        "in_pieces",
        "live_at",
        "max_load",
        "pieces",
        "solve",
    ]


#: Cumulative sums: these two give every buffer bytes of its own.
NEVER_REUSE = {"bump", "nntrainer-basic"}


def test_solvers_by_name() -> None:
    assert list(SOLVERS) == [
        "portfolio",
        "greedy",
        "search",
        "branch-and-bound",
        "cp-sat",
        "bump",
        "first-fit",
        "wic",
        "nntrainer-basic",
        "nntrainer-v1",
        "nntrainer-v3",
        "tflm-greedy",
        "executorch-greedy",
        "best-fit",
        "skyline",
    ]
    assert all(name == s.name for name, s in SOLVERS.items())


@pytest.mark.parametrize("name", list(SOLVERS))
def test_no_buffers_need_no_bytes(name: str) -> None:
    outcome = solve(LayoutProblem((), capacity=0), solver=name)
    assert (outcome.status, outcome.layout, outcome.proof) == (
        Status.OPTIMAL,
        Layout((), 0),
        Proof.MAX_LOAD,
    )


@pytest.mark.parametrize("name", list(SOLVERS))
@pytest.mark.parametrize(
    ("p", "peak"),
    [
        (problem((7, 3, 4)), 7),
        (problem((5, 0, 2), (5, 0, 2), (5, 0, 2)), 15),
        (problem((2**59, 0, 1)), 2**59),
        (problem((2**59, 0, 2), (2**59, 1, 3)), 2**60),
    ],
    ids=["one", "equal and overlapping", "huge", "as large as can be"],
)
def test_trivial_problems_are_optimal_with_every_solver(name: str, p: LayoutProblem, peak: int) -> None:
    outcome = solve(p, solver=name)
    assert outcome.layout is not None
    assert (outcome.layout.peak, outcome.status, outcome.proof) == (peak, Status.OPTIMAL, Proof.MAX_LOAD)


@pytest.mark.parametrize("count", [2, 100])
def test_more_bytes_than_solvers_can_add_up_are_refused_by_name(count: int) -> None:
    """Even where no two buffers meet, and where padding or a pin alone goes beyond."""
    size = 2**60 // count
    fits = problem(*((size, k, k + 1) for k in range(count)))
    assert solve(fits).status is Status.OPTIMAL
    first, *others = fits.buffers
    pinned = replace(first, offset=2**60)
    for changed, field in (
        (replace(first, size=2 * size), "size"),
        (replace(first, alignment=2**40), "size"),
        (replace(first, alignment=2**61), "alignment"),
        (pinned, "offset"),
    ):
        with pytest.raises(
            ProblemError, match=rf"more than 2\*\*60; the largest is 'b\d+' with {field} "
        ) as caught:
            solve(LayoutProblem((changed, *others)))
        assert caught.value.path == ("buffers", 0, field)
        assert "larger unit" in str(caught.value)


@pytest.mark.parametrize("name", list(SOLVERS))
def test_buffers_of_no_bytes_take_no_place(name: str) -> None:
    span = Lifespan(0, 2)
    some = (Buffer("a", 8, span), Buffer("empty", 0, span, 4), Buffer("b", 8, span, 8))
    p = LayoutProblem((*some, Buffer("pinned", 0, span, 1, 100)), 16)
    outcome = solve(p, solver=name)
    assert outcome.layout is not None
    assert outcome.layout.peak == outcome.lower_bound == 16
    assert (outcome.layout.offsets[1], outcome.layout.offsets[3]) == (0, 100)
    assert find_violations(p, outcome.layout) == ()
    assert solve(p, solver=name, incumbent=outcome.layout).layout is not None
    nothing = solve(LayoutProblem((some[1],), 0), solver=name)
    assert nothing.layout == Layout((0,), 0)


@pytest.mark.parametrize("name", [name for name in SOLVERS if name not in NEVER_REUSE])
def test_disjoint_buffers_share_the_ground(name: str) -> None:
    outcome = solve(problem((5, 0, 2), (9, 2, 3), (2, 3, 7)), solver=name)
    assert outcome.layout == Layout((0, 0, 0), 9)


def test_the_bound_alone_can_rule_a_capacity_out() -> None:
    outcome = solve(problem((5, 0, 2), (5, 1, 3), capacity=9))
    assert (outcome.status, outcome.proof, outcome.layout) == (Status.INFEASIBLE, Proof.MAX_LOAD, None)
    assert (outcome.lower_bound, outcome.witness_step) == (10, 1)


def test_a_search_can_rule_a_capacity_out_and_keeps_the_smallest_layout() -> None:
    bound = max_load(TIGHT).bytes
    outcome = solve(replace(TIGHT, capacity=bound))
    assert (outcome.status, outcome.proof) == (Status.INFEASIBLE, Proof.SOLVER)
    assert outcome.layout is not None
    assert outcome.layout.peak >= outcome.lower_bound > bound


def test_a_layout_that_does_not_fit_without_proof_is_unknown() -> None:
    p = problem((2, 0, 1), (2, 0, 9), (4, 1, 9), capacity=7)
    outcome = solve(p, solver="first-fit")
    assert (outcome.status, outcome.proof) == (Status.UNKNOWN, None)
    assert outcome.layout is not None
    assert outcome.layout.peak == 8
    assert solve(p).status is Status.OPTIMAL


def test_a_capacity_that_is_met_changes_nothing() -> None:
    p = problem((2, 0, 1), (2, 0, 9), (4, 1, 9))
    free, bounded = solve(p), solve(replace(p, capacity=6))
    assert (free.layout, free.status) == (bounded.layout, bounded.status)


def test_unknown_solvers_and_bad_problems_are_refused() -> None:
    with pytest.raises(OptionsError, match=r"'magic'.*portfolio, greedy"):
        solve(problem((1, 0, 1)), solver="magic")
    with pytest.raises(ProblemError, match="'b0' has size -1"):
        solve(problem((-1, 0, 1)))


def test_an_incumbent_is_used_and_a_wrong_one_refused() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    assert solve(p, solver="cp-sat", incumbent=layout(p, 0, 4)).status is Status.OPTIMAL
    with pytest.raises(ProblemError, match=r"incumbent.*overlap"):
        solve(p, incumbent=layout(p, 0, 2))


class _Liar:
    name = "liar"

    def __init__(self, layout: Layout, bound: int = 0) -> None:
        self._layout, self._bound = layout, bound

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        return Outcome(Status.FEASIBLE, self._layout, self._bound, 0, None, self.name, 0.0)


@pytest.mark.parametrize(
    ("made", "bound", "words"),
    [
        (Layout((0, 2), 6), 0, "overlap b0, b1"),
        (Layout((0, 4), 7), 0, "peak 7 stated"),
        (Layout((0,), 4), 0, "1 offsets for 2 buffers"),
        (Layout((0, 4), 8), 9, "claims the lower bound 9"),
    ],
)
def test_no_solver_can_hand_out_a_wrong_layout(
    monkeypatch: pytest.MonkeyPatch, made: Layout, bound: int, words: str
) -> None:
    monkeypatch.setattr(api, "SOLVERS", {"liar": _Liar(made, bound)})
    with pytest.raises(InternalError, match=words):
        solve(problem((4, 0, 2), (4, 1, 3)), solver="liar")


def test_an_expired_deadline_gives_the_greedy_layout_with_bound_and_gap() -> None:
    p = next(
        candidate
        for candidate in (training_shaped(seed, buffers=150) for seed in range(20, 40))
        if solve(candidate, solver="wic").status is Status.FEASIBLE
    )
    outcome = solve(p, deadline=Deadline.after(0))
    assert outcome.layout is not None
    assert outcome.status is Status.FEASIBLE
    assert not outcome.deterministic
    assert outcome.layout.peak > outcome.lower_bound == max_load(p).bytes


def test_the_same_problem_gives_the_same_layout() -> None:
    for p in (TIGHT, training_shaped(29, buffers=150), random_problem(random.Random(1), 30, 20, 50)):
        first, second = solve(p), solve(p)
        assert first.layout == second.layout
        assert first.deterministic


def test_proof_by_search_says_so() -> None:
    outcome = solve(TIGHT)
    assert outcome.layout is not None
    assert (outcome.status, outcome.proof) == (Status.OPTIMAL, Proof.SOLVER)
    assert outcome.lower_bound == outcome.layout.peak > max_load(TIGHT).bytes


def test_pins_survive_with_every_solver_that_takes_them() -> None:
    p = LayoutProblem(
        (Buffer("a", 4, Lifespan(0, 3), 4, 8), Buffer("b", 6, Lifespan(1, 3)), Buffer("c", 3, Lifespan(0, 2)))
    )
    for name in SOLVERS:
        outcome = solve(p, solver=name)
        assert outcome.layout is not None
        assert outcome.layout.offsets[0] == 8


@pytest.mark.skipif(not DATA.is_dir(), reason="the public instances are not beside this check-out")
@pytest.mark.parametrize(
    ("name", "alignment", "ratio"),
    [
        ("executorch/step_lenet_b32", 16, 1.0),
        ("executorch/step_mlp_b32", 16, 1.0),
        ("executorch/step_resnet50_224_b8", 16, 1.0),
        ("executorch/step_mbv2_96_b8", 16, 1.0003),
        ("idealloc/iopddl_G_1", 1, 1.0),
        ("idealloc/somas_resnet50", 1, 1.0),
        ("minimalloc/B.1048576", 1, 1.0),
        ("minimalloc/C.1048576", 1, 1.0),
    ],
)
def test_public_instances(name: str, alignment: int, ratio: float) -> None:
    p = read_csv(DATA / f"{name}.csv", alignment)
    outcome = solve(p)
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert max_load(p).bytes <= outcome.layout.peak <= ratio * max_load(p).bytes


@pytest.mark.skipif(not DATA.is_dir(), reason="the public instances are not beside this check-out")
@pytest.mark.parametrize("name", ["A", "D", "E", "J"])
@pytest.mark.parametrize("method", ["greedy", "wic", "first-fit", "bump"])
def test_tight_public_instances_are_valid_above_the_bound(name: str, method: str) -> None:
    p = read_csv(DATA / f"minimalloc/{name}.1048576.csv")
    outcome = solve(p, solver=method)
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert outcome.layout.peak >= outcome.lower_bound == max_load(p).bytes


@pytest.mark.parametrize(("gap", "most_solved"), [(64, 1), (256, 17)])
def test_hundreds_of_reserved_ranges_are_few_problems(
    gap: int, most_solved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps that are too small for a buffer, and gaps that hold each buffer alone."""
    solved: list[LayoutProblem] = []
    greedy = SOLVERS["greedy"].solve

    def solve_and_count(_self: object, problem: LayoutProblem, *rest: Any) -> Outcome:
        solved.append(problem)
        return greedy(problem, *rest)

    monkeypatch.setattr(type(SOLVERS["greedy"]), "solve", solve_and_count)
    ranges = tuple(Reserved(low, low + 64) for low in range(gap, 400 * (gap + 64), gap + 64))
    sizes = (256, 192, 128, *(64,) * 30)
    buffers = tuple(Buffer(f"b{k}", size, Lifespan(0, 2)) for k, size in enumerate(sizes))
    outcome = solve(LayoutProblem(buffers, reserved=ranges), solver="greedy")
    assert len(solved) <= most_solved
    assert outcome.layout is not None
    assert outcome.lower_bound <= outcome.layout.peak
    if gap == 64:  # the largest lies above all ranges
        assert outcome.lower_bound >= ranges[-1].high
