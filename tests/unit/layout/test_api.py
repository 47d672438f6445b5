"""What `solve` promises, whichever solver does the work."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import fields, replace
from itertools import count
from typing import Any

import pytest

from solver.errors import InternalError, OptionsError, ProblemError
from solver.layout import (
    SOLVERS,
    Buffer,
    Deadline,
    Layout,
    LayoutProblem,
    LayoutSolver,
    Lifespan,
    Outcome,
    Progress,
    Proof,
    Reserved,
    Rules,
    SolveOptions,
    Status,
    api,
    find_violations,
    max_load,
    solve,
)
from solver.layout.exact.capacity_search import BranchAndBound
from solver.layout.exact.cp_sat import refine
from solver.layout.greedy.local_search import LocalSearch
from solver.layout.greedy.placement import greedy_portfolio
from solver.layout.greedy.skyline import lowest_plateau
from solver.layout.model.instance import Instance
from solver.layout.model.options import USUAL_WORK
from solver.layout.model.problem import MAX_BYTES
from solver.layout.model.reduce import peel
from tests.support.buffers import (
    DATA,
    best_peak,
    countdown,
    layout,
    problem,
    random_problem,
    read_csv,
    solved,
    tight_problem,
)
from tests.support.oracle import sample
from tests.support.training_shaped import training_shaped

#: Loads of at most 12, yet no layout under 13 bytes.
TIGHT = next(
    p
    for p in (tight_problem(random.Random(seed)) for seed in range(2000))
    if len(p.buffers) <= 20 and solve(p, solver="branch-and-bound").proof is Proof.SOLVER
)


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
    outcome = solved(p, solver=name)
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
    outcome = solved(p, solver=name)
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
    outcome = solved(p, deadline=Deadline.after(0))
    assert outcome.status is Status.FEASIBLE
    assert not outcome.deterministic
    assert outcome.layout.peak > outcome.lower_bound == max_load(p).bytes


def test_the_same_problem_gives_the_same_layout() -> None:
    for p in (TIGHT, training_shaped(29, buffers=150), random_problem(random.Random(1), 30, 20, 50)):
        first, second = solve(p), solve(p)
        assert first.layout == second.layout
        assert first.deterministic


def test_proof_by_search_says_so() -> None:
    outcome = solved(TIGHT)
    assert (outcome.status, outcome.proof) == (Status.OPTIMAL, Proof.SOLVER)
    assert outcome.lower_bound == outcome.layout.peak > max_load(TIGHT).bytes


def test_pins_survive_with_every_solver_that_takes_them() -> None:
    p = LayoutProblem(
        (Buffer("a", 4, Lifespan(0, 3), 4, 8), Buffer("b", 6, Lifespan(1, 3)), Buffer("c", 3, Lifespan(0, 2)))
    )
    for name in SOLVERS:
        outcome = solved(p, solver=name)
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
    outcome = solved(p)
    assert max_load(p).bytes <= outcome.layout.peak <= ratio * max_load(p).bytes


@pytest.mark.skipif(not DATA.is_dir(), reason="the public instances are not beside this check-out")
@pytest.mark.parametrize("name", ["A", "D", "E", "J"])
@pytest.mark.parametrize("method", ["greedy", "wic", "first-fit", "bump"])
def test_tight_public_instances_are_valid_above_the_bound(name: str, method: str) -> None:
    p = read_csv(DATA / f"minimalloc/{name}.1048576.csv")
    outcome = solved(p, solver=method)
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


# -------------------------- Options of the solvers behind the portfolio: each is honoured, or refused by name


RULES = [field.name for field in fields(Rules)]
ABOVE = next(p for p in map(sample, range(100)) if 9 < len(p.buffers) < 14 and solve(p).proof is Proof.SOLVER)


@pytest.mark.parametrize("rule", RULES)
def test_branch_and_bound_finds_the_optimum_without_any_one_rule(rule: str) -> None:
    options = SolveOptions(rules=replace(Rules(), **{rule: False}))
    for seed in range(15):
        p = random_problem(random.Random(seed), 6, 6, 9, (1, 4)[seed % 2 :][:1])
        outcome = solved(p, solver="branch-and-bound", options=options)
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
    fitted = solved(wide, solver=name, options=SolveOptions(fit=True))
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
    outcome = solved(p, solver=name, options=SolveOptions(target_gap=1.0))
    assert outcome.layout.peak <= 2 * outcome.lower_bound
    assert outcome.lower_bound <= solve(ABOVE).lower_bound


@pytest.mark.parametrize(
    ("capacity", "options"),
    [
        *((None, SolveOptions(target_gap=gap)) for gap in (1e308, 1e19, 2.0**63)),
        *((capacity, SolveOptions(fit=True)) for capacity in (MAX_BYTES, MAX_BYTES + 1, 2**70)),
    ],
)
@pytest.mark.parametrize("name", ["portfolio", "search", "branch-and-bound", "cp-sat"])
def test_a_huge_gap_or_capacity_takes_the_first_layout(
    name: str, capacity: int | None, options: SolveOptions
) -> None:
    """The product of bound and gap is infinite, or more than an offset can be, as the capacity is."""
    solved(replace(ABOVE, capacity=capacity), solver=name, options=options)


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


# ------------------------------ Every solver ends soon after it is told to, from any thread, with what it has


SEARCHES = ("portfolio", "search", "branch-and-bound", "cp-sat")


class After(threading.Event):
    """An event that is set once it has been asked this often: no test depends on time."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self._left = asked

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def hard(buffers: int = 120) -> LayoutProblem:
    """Too tight to be settled within the time of any test, or too large."""
    rng = random.Random(5)
    rows = ((rng.randint(10**6, 10**7), s, s + rng.randint(2, 30)) for s in rng.choices(range(40), k=buffers))
    return LayoutProblem(tuple(Buffer(str(i), size, Lifespan(s, e)) for i, (size, s, e) in enumerate(rows)))


def pinned() -> LayoutProblem:
    """What only local search and CP-SAT take on."""
    p = random_problem(random.Random(3), 60, 30, 10**6, (1, 4, 16))
    return LayoutProblem((*p.buffers, Buffer("pinned", 8, Lifespan(2, 8), 4, 400)))


@pytest.mark.parametrize("asked", [0, 1, 2, 10, 100])
@pytest.mark.parametrize("name", list(SOLVERS))
def test_what_was_found_is_returned_whenever_it_comes(name: str, asked: int) -> None:
    p = hard()
    outcome = solve(p, solver=name, options=SolveOptions(work=None, cancel=After(asked)))
    if outcome.layout is not None:
        assert find_violations(p, outcome.layout) == ()
    else:
        assert outcome.status is Status.UNKNOWN
    if name in SEARCHES:
        assert outcome.layout is not None
        assert outcome.status is Status.OPTIMAL or not outcome.deterministic


@pytest.mark.parametrize("name", SEARCHES)
def test_another_thread_ends_what_would_not_end(name: str) -> None:
    cancel = threading.Event()
    p = pinned() if name == "search" else hard(400)
    outcomes = []

    def run() -> None:
        options = SolveOptions(work=None, cancel=cancel)
        outcomes.append(solve(p, solver=name, options=options))

    thread = threading.Thread(target=run)
    thread.start()
    cancel.set()
    thread.join()
    assert outcomes[0].layout is not None
    assert find_violations(p, outcomes[0].layout) == ()


def test_pins_and_alignments_can_be_cancelled_too() -> None:
    outcome = solved(pinned(), options=SolveOptions(work=None, cancel=After(40)))
    assert not outcome.deterministic


def test_cp_sat_is_left_alone_when_it_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    from solver.layout.exact import cp_sat

    release = threading.Event()
    monkeypatch.setattr(cp_sat.Model, "solve", lambda *_: release.wait())
    p = hard(20)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    refined = refine(Instance.of(p), start, 0, Deadline().or_when(After(60)), 1.0)
    release.set()
    assert (refined.layout, refined.proved, refined.cut) == (start, 0, True)


def test_cp_sat_stops_at_once_and_keeps_what_it_found() -> None:
    p = hard(150)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    cancel, began = threading.Event(), time.monotonic()
    threading.Timer(0.5, cancel.set).start()
    refined = refine(Instance.of(p), start, 0, Deadline().or_when(cancel), 1e6)
    assert time.monotonic() > began
    assert refined.cut or refined.proved
    assert refined.layout.peak <= start.peak
    assert find_violations(p, refined.layout) == ()


def test_an_error_of_cp_sat_is_raised_in_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from solver.layout.exact import cp_sat

    def broken(*_: object) -> None:
        raise ZeroDivisionError("in the other thread")

    monkeypatch.setattr(cp_sat.Model, "solve", broken)
    p = hard(20)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    with pytest.raises(ZeroDivisionError, match="other thread"):
        refine(Instance.of(p), start, 0, Deadline(), 1.0)


def test_a_building_model_hears_of_it() -> None:
    from solver.layout.exact.cp_sat import Model

    p = hard(20)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    for asked in (0, 5, 25):
        with pytest.raises(TimeoutError):
            Model(Instance.of(p), start, 0, 0, Deadline().or_when(After(asked)))


def test_the_skyline_gives_up_between_placements() -> None:
    instance = Instance.of(training_shaped(1, buffers=300))
    assert lowest_plateau(instance, "size", 2**62, Deadline().or_when(After(100))) is None
    assert lowest_plateau(instance, "size", 2**62) is not None


def test_what_was_not_yet_peeled_stays_in_the_core() -> None:
    p = training_shaped(1, buffers=600)
    instance, capacity = Instance.of(p), 2 * Instance.of(p).load().max()
    whole = peel(instance, int(capacity))[1]
    answers = count()
    core, peeled = peel(instance, int(capacity), lambda: next(answers) >= 1)
    assert 0 < len(peeled) < len(whole)
    assert sorted([*core, *peeled]) == list(range(len(instance)))
