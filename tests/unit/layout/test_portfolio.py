from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from solver.layout import (
    Buffer,
    Deadline,
    Layout,
    LayoutProblem,
    Lifespan,
    Progress,
    Proof,
    SolveOptions,
    Status,
    find_violations,
    max_load,
    solve,
)
from solver.layout import portfolio as module
from solver.layout.bounds.max_load import LowerBound
from solver.layout.bounds.settle import settle
from solver.layout.check import is_sound
from solver.layout.exact.capacity_search import NEGLIGIBLE
from solver.layout.exact.coarse import Grain, search_coarsely
from solver.layout.exact.feasibility import Watch
from solver.layout.greedy import in_time
from solver.layout.greedy.placement import (
    CLASSES_FROM,
    GreedyResult,
    best_fit,
    first_fit,
    greedy_portfolio,
    orders,
    place,
    soon_in_time,
)
from solver.layout.model.columns import UNPINNED, Columns
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.table import buffers_of
from solver.layout.structures.classes import in_classes
from tests.support.buffers import countdown, layout, problem, random_problem, tight_problem
from tests.support.deep_shapes import EVERY
from tests.support.shapes import pinned
from tests.support.training_shaped import training_shaped

#: Pins leave a hole that the rest does not fill exactly: only a complete search can prove the optimum.
HOLE = LayoutProblem(
    (
        Buffer("low", 4, Lifespan(0, 4), 1, 0),
        Buffer("high", 4, Lifespan(0, 4), 1, 9),
        Buffer("a", 6, Lifespan(0, 2)),
        Buffer("b", 3, Lifespan(1, 4)),
    )
)


def spend(monkeypatch: pytest.MonkeyPatch, name: str, budget: int) -> None:
    """This budget for one stage."""
    assert name in {stage.name for stage in module.STAGES}
    stages = (replace(stage, budget=budget) if stage.name == name else stage for stage in module.STAGES)
    monkeypatch.setattr(module, "STAGES", tuple(stages))


def test_the_outcome_names_the_stage_that_found_the_layout() -> None:
    assert solve(problem((4, 0, 2), (4, 1, 3))).solver == "portfolio/greedy"
    assert solve(tight_problem(random.Random(4))).solver in ("portfolio/capacity-search", "portfolio/greedy")


def test_the_search_closes_the_gap_that_pins_leave() -> None:
    outcome = solve(HOLE, deadline=Deadline.after(module.CP_SAT_START))
    assert outcome.layout is not None
    assert outcome.deterministic
    assert (outcome.layout.peak, outcome.status, outcome.proof) == (19, Status.OPTIMAL, Proof.SOLVER)


def test_cp_sat_closes_the_gap_where_the_search_has_no_work() -> None:
    outcome = solve(HOLE, options=SolveOptions(work=0))
    assert outcome.layout is not None
    assert (outcome.layout.peak, outcome.status, outcome.proof) == (19, Status.OPTIMAL, Proof.SOLVER)
    assert max_load(HOLE).bytes == 17


def test_an_incumbent_that_is_already_best_is_kept() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    best = layout(p, 4, 0)
    outcome = solve(p, incumbent=best)
    assert outcome.layout is not None
    assert outcome.layout.peak == best.peak


def test_a_deadline_too_near_for_cp_sat_leaves_it_out_and_says_so() -> None:
    outcome = solve(HOLE, deadline=Deadline.after(0.5), options=SolveOptions(work=0))
    assert outcome.layout is not None
    assert outcome.status is Status.FEASIBLE
    assert not outcome.deterministic


@pytest.mark.parametrize("asked", [0, 1, 7, 25, 40, 60])
def test_a_deadline_that_cuts_in_anywhere_leaves_a_valid_layout(asked: int) -> None:
    hard = tight_problem(random.Random(4))
    whole, outcome = solve(hard), solve(hard, deadline=countdown(asked))
    assert outcome.layout is not None
    assert whole.layout is not None
    assert find_violations(hard, outcome.layout) == ()
    assert whole.layout.peak <= outcome.layout.peak
    assert outcome.deterministic <= (outcome.layout == whole.layout)


def test_local_search_lowers_what_greedy_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sizes do not keep alignment and nothing compiles, no other stage comes before CP-SAT."""
    monkeypatch.setattr(module, "compiled_search", lambda: None)
    monkeypatch.setattr(module, "CP_SAT_BUFFERS", 0)
    p = random_problem(random.Random(3), 60, 25, 70, (1, 4, 16))
    outcome, greedy = solve(p), solve(p, solver="greedy")
    assert outcome.layout is not None
    assert greedy.layout is not None
    assert outcome.solver == "portfolio/search"
    assert outcome.layout.peak < greedy.layout.peak
    assert outcome.deterministic
    assert find_violations(p, outcome.layout) == ()


def test_large_problems_are_left_to_local_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAPACITY_SEARCH_BUFFERS", 10)
    monkeypatch.setattr(module, "PYTHON_BUFFERS", 10)
    monkeypatch.setattr(module, "CP_SAT_BUFFERS", 10)
    spend(monkeypatch, "local search", 3000)
    p = training_shaped(29, buffers=150)
    outcome = solve(p)
    assert outcome.layout is not None
    assert outcome.solver in ("portfolio/greedy", "portfolio/search")
    assert find_violations(p, outcome.layout) == ()
    assert outcome.deterministic


@pytest.mark.parametrize("seed", range(6))
def test_work_budgets_alone_end_the_search(seed: int) -> None:
    p = random_problem(random.Random(seed), 40, 20, 1000)
    outcome = solve(p)
    assert outcome.deterministic
    assert outcome.layout is not None
    assert outcome.layout.peak >= outcome.lower_bound


def test_settle_claims_only_what_is_proved() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    bound, now = LowerBound(8, 1), time.perf_counter()
    at_bound = settle(p, layout(p, 0, 4), bound, "x", now)
    assert (at_bound.status, at_bound.proof, at_bound.lower_bound) == (Status.OPTIMAL, Proof.MAX_LOAD, 8)
    above = settle(p, layout(p, 0, 5), bound, "x", now)
    assert (above.status, above.proof, above.lower_bound) == (Status.FEASIBLE, None, 8)
    proved = settle(p, layout(p, 0, 5), bound, "x", now, proved=9)
    assert (proved.status, proved.proof, proved.lower_bound) == (Status.OPTIMAL, Proof.SOLVER, 9)
    nothing = settle(p, None, bound, "x", now, deterministic=False)
    assert (nothing.status, nothing.layout, nothing.deterministic) == (Status.UNKNOWN, None, False)


@pytest.mark.parametrize("seed", [0, 1, 2, 6, 100, 105, 124])
def test_ten_thousand_buffers_are_placed_near_their_bound(seed: int) -> None:
    """The greedy portfolio leaves up to a quarter of a percent on these."""
    p = training_shaped(seed, buffers=10_000)
    outcome = solve(p, options=SolveOptions(target_gap=0.001))
    assert outcome.layout is not None
    assert outcome.layout.peak <= 1.001 * outcome.lower_bound
    assert outcome.deterministic


def test_coarse_questions_end_where_the_layout_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    p = training_shaped(1, buffers=10_000)
    outcome = solve(p, options=SolveOptions(target_gap=0.001))
    assert outcome.layout is not None
    assert outcome.layout.peak <= 1.001 * max_load(p).bytes
    assert asked[0] == (int(1.001 * max_load(p).bytes), 2_000_000)
    solve(p, options=SolveOptions(work=1000, target_gap=0.1))
    assert len(asked) == 1


def test_coarse_questions_heed_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    solve(training_shaped(1, buffers=5000), options=SolveOptions(work=1000))
    assert {work for _, work in asked} == {1000}
    assert len(asked) == len(module.SHORT_QUESTIONS) + len(module.LONG_QUESTIONS)


def test_coarse_questions_need_offsets_that_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    p = training_shaped(1, buffers=3500)
    top = Buffer("top", 64, Lifespan(0, 1), 64, 64 * max_load(p).bytes)
    solve(LayoutProblem((*p.buffers, top)), deadline=Deadline.after(0.2))
    assert asked == []


def test_beyond_the_capacity_search_coarse_questions_come_behind_the_greedy_portfolio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages: list[str] = []
    p = training_shaped(1, buffers=5000)
    solve(p, options=SolveOptions(progress=lambda progress: stages.append(progress.stage)))
    assert stages[:2] == ["greedy", "coarse"]
    monkeypatch.setattr(module, "CAPACITY_SEARCH_BUFFERS", 100)
    stages.clear()
    solve(p, options=SolveOptions(progress=lambda progress: stages.append(progress.stage)))
    assert set(stages[: stages.index("coarse")]) == {"greedy"}
    assert stages.index("coarse") > 1


def _pinwheel(draw: random.Random, parts: int) -> LayoutProblem:
    """Full memory cut into five again and again, one around the middle, and listed in any order."""
    pieces = [(0, 1 << 20, 0, 1 << 20)]
    while len(pieces) < parts:
        pieces.sort(key=lambda piece: (piece[0] - piece[1]) * (piece[3] - piece[2]))
        start, end, low, high = pieces.pop(0)
        s, t = (start + int((end - start) * draw.uniform(a, a + 0.3)) for a in (0.1, 0.6))
        b, c = (low + int((high - low) * draw.uniform(a, a + 0.3)) for a in (0.1, 0.6))
        pieces += [(start, t, low, b), (t, end, low, c), (s, end, c, high), (start, s, b, high), (s, t, b, c)]
    draw.shuffle(pieces)
    return problem(*((high - low, start, end) for start, end, low, high in pieces))


def test_a_long_problem_far_from_its_bound_gets_the_greedy_orders_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def watched(stage: module.Stage) -> module.Stage:
        def run(state: Any, budget: Any) -> None:
            asked.append(stage.name)
            if stage.name == "greedy":
                stage.run(state, budget)

        return replace(stage, run=run)

    p = _pinwheel(random.Random(2), 3500)
    monkeypatch.setattr(module, "CAPACITY_SEARCH_BUFFERS", 100)
    monkeypatch.setattr(module, "STAGES", tuple(map(watched, module.STAGES)))
    peaks: list[int] = []
    solve(p, options=SolveOptions(progress=lambda progress: peaks.append(progress.incumbent)))
    assert asked[:3] == ["first fit in windows", "orders of time first", "greedy"]
    assert peaks == sorted(peaks, reverse=True)
    assert len(peaks) > 1


@pytest.mark.parametrize("cuts", [12, 15])
def test_what_is_cut_from_full_memory_and_listed_from_below_is_put_together_again(
    monkeypatch: pytest.MonkeyPatch, cuts: int
) -> None:
    """Straight cuts, all pieces each time, across the longer side; other orders leave gaps."""
    draw, pieces = random.Random(1), [(0, 1 << 20, 0, 1 << 20)]
    for _ in range(cuts):
        halves = []
        for start, end, low, high in pieces:
            part = draw.uniform(0.4, 0.6)
            step, byte = start + int(part * (end - start)), low + int(part * (high - low))
            if end - start > high - low:
                halves += [(start, step, low, high), (step, end, low, high)]
            else:
                halves += [(start, end, low, byte), (start, end, byte, high)]
        pieces = halves
    p = problem(*((high - low, start, end) for start, end, low, high in pieces))
    only = tuple(stage for stage in module.STAGES if stage.name in ("greedy", "as given"))
    monkeypatch.setattr(module, "STAGES", only)
    outcome = solve(p)
    assert outcome.layout is not None
    assert outcome.layout.peak == 1 << 20
    instance = Instance.of(p)
    by_size = orders(instance)["size"]()
    assert place(instance, by_size, first_fit, limit=1 << 20) is None


@pytest.mark.parametrize("shape", ["any, deep", "two sizes, deep", "mixed alignments, few bytes"])
def test_where_only_time_limits_all_attempts_have_their_turn(
    monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    p = EVERY[shape](1500, 2)
    only = tuple(stage for stage in module.STAGES if stage.name in ("greedy", "other orders"))
    monkeypatch.setattr(module, "STAGES", only)
    outcome, instance = solve(p, options=SolveOptions(work=None)), Instance.of(p)
    assert outcome.layout is not None
    attempts = [
        place(instance, order(), fit) for order in orders(instance).values() for fit in (first_fit, best_fit)
    ]
    peaks = [int((offsets + instance.exact).max()) for offsets in attempts if offsets is not None]
    assert len(peaks) == 48
    assert outcome.layout.peak <= min(peaks)


@pytest.mark.parametrize("seed", [4, 7, 8, 19])
def test_a_few_orders_may_meet_the_bound_before_anything_compiled_is_loaded(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """First fit by size alone does not on these; loading takes a third of a second."""
    p = random_problem(random.Random(seed), 12, 8, 20)
    stages: list[Progress] = []
    monkeypatch.setattr(module, "compiled_search", lambda: pytest.fail("compiled code is loaded"))
    outcome = solve(p, options=SolveOptions(progress=stages.append))
    assert (outcome.status, outcome.solver) == (Status.OPTIMAL, "portfolio/greedy")
    assert stages[0].incumbent > outcome.lower_bound


@pytest.mark.parametrize("work", [None, 1000])
def test_the_usual_greedy_portfolio_ends_a_negligible_gap_above_the_bound(
    monkeypatch: pytest.MonkeyPatch, work: int | None
) -> None:
    """Where the caller has said what to spend, it ends at the bound alone."""
    ends: list[tuple[int, int | None]] = []

    def listen(
        instance: Instance,
        bound: int,
        deadline: Deadline,
        attempts: int | None,
        known: Layout,
        names: Sequence[str] = (),
    ) -> GreedyResult:
        ends.append((bound, attempts))
        return greedy_portfolio(instance, bound, deadline, attempts, known, names)

    monkeypatch.setattr(module, "greedy_portfolio", listen)
    for stage in ("CAPACITY_SEARCH_BUFFERS", "PYTHON_BUFFERS", "CP_SAT_BUFFERS"):
        monkeypatch.setattr(module, stage, 10)
    spend(monkeypatch, "local search", 10)
    p = random_problem(random.Random(1), 40, 20, 10_000_000)
    solve(p, options=SolveOptions() if work is None else SolveOptions(work=work))
    bound = max_load(p).bytes
    more = bound // NEGLIGIBLE if work is None else 0
    assert ends == [(bound, module.PROMISING), (bound + more, None)]


def test_coarse_questions_grant_a_part_of_the_bound_on_top_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    p = training_shaped(1, buffers=5000)
    solve(p, options=SolveOptions(work=1000))
    questions, bound = (*module.SHORT_QUESTIONS, *module.LONG_QUESTIONS), max_load(p).bytes
    assert [capacity for capacity, _ in asked] == [
        bound + (bound // parts if parts else 0) for _, parts, _ in questions
    ]


@pytest.mark.parametrize("asked", [0, 1, 3, 5, 8, 13])
def test_a_deadline_within_coarse_questions_leaves_a_valid_layout(asked: int) -> None:
    p = training_shaped(1, buffers=5000)
    outcome = solve(p, deadline=countdown(asked))
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert not outcome.deterministic


def _asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Capacity and work of each coarse question from now on."""
    asked: list[tuple[int, int]] = []

    def listen(
        instance: Instance, capacity: int, limit: int, grain: Grain, work: int, watch: Watch
    ) -> Layout | None:
        asked.append((capacity, work))
        return search_coarsely(instance, capacity, limit, grain, work, watch)

    monkeypatch.setattr(module, "search_coarsely", listen)
    return asked


@pytest.mark.parametrize("shape", ["any, deep", "powers of two, deep", "bursts", "two lengths"])
def test_what_is_left_of_a_layout_that_is_mostly_pinned_goes_where_it_was(shape: str) -> None:
    """Orders that sweep through time go elsewhere, and come behind."""
    whole = EVERY[shape](4_000, 9)
    former = solve(whole, solver="first-fit").layout
    assert former is not None
    left = pinned(whole, 0.6, 9)
    outcome = solve(left, options=SolveOptions(work=1_000))
    assert outcome.layout is not None
    assert outcome.layout.peak <= former.peak
    assert find_violations(left, outcome.layout) == ()


@pytest.mark.parametrize("seen", [0, 2_000])
@pytest.mark.parametrize("share", [0.04, 0.1, 0.4])
def test_an_order_of_time_is_gone_back_in_around_the_pins(
    share: float, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or not at all, where too many pins are in reach for a sweep."""
    monkeypatch.setattr(in_time, "PINS_SEEN", seen)
    monkeypatch.setattr(in_time, "PINS_OF_LIVE", 0)
    p = pinned(EVERY["staircase down, deep"](3_500, 3), share, 3)
    outcome = solve(p, options=SolveOptions(work=20_000))
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()


def test_very_many_buffers_with_pins_come_to_lie_between_them() -> None:
    """The first layout of so many lies above all pins; an order follows while there is time."""
    rng, count = np.random.default_rng(5), CLASSES_FROM
    start = np.arange(count)
    pin = np.where(start % 40 == 0, 64, UNPINNED)
    columns = Columns(rng.integers(1, 1000, count), start, start + 20, np.ones(count, np.int64), pin)
    p = LayoutProblem(buffers_of([str(i) for i in range(count)], columns))
    outcome, instance = solve(p, options=SolveOptions(work=1)), Instance.of(p)
    assert outcome.layout is not None
    assert is_sound(p, outcome.layout)
    assert outcome.layout.peak < layout_of(instance, in_classes(instance)).peak


def test_questions_between_the_bound_and_a_layout_far_above_it_lower_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tiling, shuffled: every greedy order wastes a fifth, and questions about the bound find nothing."""
    p = EVERY["tiling"](5_000, 78)
    outcome = solve(p)
    between = "coarse questions in between"
    assert between in {stage.name for stage in module.STAGES}
    monkeypatch.setattr(module, "STAGES", tuple(stage for stage in module.STAGES if stage.name != between))
    without = solve(p)
    assert outcome.layout is not None
    assert without.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert outcome.layout.peak < 0.95 * without.layout.peak


@dataclass(frozen=True)
class Left(Deadline):
    """So many seconds are left whenever somebody asks: no test needs to wait."""

    seconds: float = 0.0

    @property
    def remaining(self) -> float:
        return self.seconds

    @property
    def expired(self) -> bool:
        return False


@pytest.mark.parametrize("shape", ["four lanes", "each meets two", "powers of two"])
def test_a_sweep_and_windows_of_it_come_first_where_few_live_at_once(shape: str) -> None:
    p = EVERY[shape](20_000, 9)
    outcome = solve(p, options=SolveOptions(target_gap=0.01))
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert outcome.solver == "portfolio/first-fit-windows"
    assert outcome.deterministic


def test_haste_leaves_out_the_sample_and_nothing_else() -> None:
    p = EVERY["shrinking"](5_000, 9)
    outcome = solve(p, deadline=Left(seconds=0.09))
    assert outcome.layout is not None
    assert outcome.layout.peak <= 1.07 * outcome.lower_bound
    assert not outcome.deterministic  # another machine may have time for the sample


def test_sweeps_go_first_where_few_live_at_once_and_by_size_might_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, haste = EVERY["staircase"](10_000, 9), "orders of time in haste"
    alone = tuple(stage for stage in module.STAGES if stage.name == haste)
    monkeypatch.setattr(module, "STAGES", alone)
    soon, later = (solve(p, deadline=Left(seconds=seconds)) for seconds in (0.03, 10))
    assert soon.layout is not None
    assert later.layout is not None
    assert find_violations(p, soon.layout) == ()
    assert soon.layout.peak < 1.1 * soon.lower_bound  # by size alone it is more than a fifth above it
    assert later.layout.peak > 1.2 * later.lower_bound  # where there is time, other stages follow
    assert not soon.deterministic  # another machine may be less pressed
    assert later.deterministic


@pytest.mark.parametrize(
    ("buffers", "seconds", "soon"),
    [
        (5_000, 10, False),  # the order by size ends in time, and wins more often
        (100_000, 1, True),
        (100_000, 1e-3, False),  # nor would a sweep end
        (200_000, 10, True),  # by size takes seconds
        (200_000, 1e-3, False),
    ],
)
def test_the_first_layout_is_in_the_order_of_time_where_only_that_is_in_time(
    buffers: int, seconds: float, soon: bool
) -> None:
    births = np.arange(buffers)
    ones = np.ones(buffers, np.int64)
    columns = Columns(ones, births, births + 50, ones, np.full(buffers, UNPINNED))
    instance = Instance.of(LayoutProblem(buffers_of([str(i) for i in range(buffers)], columns)))
    assert soon_in_time(instance, Left(seconds=seconds)) == soon
