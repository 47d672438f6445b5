"""The portfolio of stages, and the structures that a theorem places."""

from __future__ import annotations

import random
import time
from dataclasses import replace

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
    Rules,
    SolveOptions,
    Status,
    find_violations,
    max_load,
    solve,
)
from solver.layout import portfolio as module
from solver.layout.bounds import LowerBound, settle
from solver.layout.check import is_sound
from solver.layout.exact.coarse import LONG_QUESTIONS, SHORT_QUESTIONS, Grain, search_coarsely
from solver.layout.exact.feasibility import Watch
from solver.layout.greedy.placement import GOOD_GAP, GreedyResult, greedy_portfolio
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.options import USUAL
from solver.layout.portfolio import Portfolio
from solver.layout.structures import STRUCTURES, coloured, depth, in_classes, structured
from tests.support.buffers import best_peak, countdown, layout, problem, random_problem, solved, tight_problem
from tests.support.deep_shapes import EVERY
from tests.support.shapes import SHAPES, nested, pinned
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


def test_the_outcome_names_the_stage_that_found_the_layout() -> None:
    assert solve(problem((4, 0, 2), (4, 1, 3))).solver == "portfolio/greedy"
    assert solve(tight_problem(random.Random(4))).solver in ("portfolio/capacity-search", "portfolio/greedy")


def test_the_search_closes_the_gap_that_pins_leave() -> None:
    outcome = solved(HOLE, deadline=Deadline.after(module.CP_SAT_START))
    assert outcome.deterministic
    assert (outcome.layout.peak, outcome.status, outcome.proof) == (19, Status.OPTIMAL, Proof.SOLVER)


def test_cp_sat_closes_the_gap_where_the_search_has_no_work() -> None:
    outcome = solved(HOLE, options=SolveOptions(work=0))
    assert (outcome.layout.peak, outcome.status, outcome.proof) == (19, Status.OPTIMAL, Proof.SOLVER)
    assert max_load(HOLE).bytes == 17


def test_an_incumbent_that_is_already_best_is_kept() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    best = layout(p, 4, 0)
    outcome = solved(p, incumbent=best)
    assert outcome.layout.peak == best.peak


def test_a_deadline_too_near_for_cp_sat_leaves_it_out_and_says_so() -> None:
    outcome = solved(HOLE, deadline=Deadline.after(0.5), options=SolveOptions(work=0))
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
    outcome = solved(p, options=SolveOptions(target_gap=0.001))
    assert outcome.layout.peak <= 1.001 * outcome.lower_bound
    assert outcome.deterministic


def test_coarse_questions_end_where_the_layout_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    p = training_shaped(1, buffers=10_000)
    outcome = solved(p, options=SolveOptions(target_gap=0.001))
    assert outcome.layout.peak <= 1.001 * max_load(p).bytes
    assert asked[0] == (int(1.001 * max_load(p).bytes), 2_000_000)
    solve(p, options=SolveOptions(work=1000, target_gap=0.1))
    assert len(asked) == 1


def test_coarse_questions_heed_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    solve(training_shaped(1, buffers=5000), options=SolveOptions(work=1000))
    assert {work for _, work in asked} == {1000}
    assert len(asked) == len(SHORT_QUESTIONS) + len(LONG_QUESTIONS)


def test_coarse_questions_need_offsets_that_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    p = training_shaped(1, buffers=3500)
    top = Buffer("top", 64, Lifespan(0, 1), 64, 64 * max_load(p).bytes)
    solve(LayoutProblem((*p.buffers, top)), deadline=Deadline.after(0.2))
    assert asked == []


@pytest.mark.parametrize("seed", [4, 7, 8, 19])
def test_a_few_orders_may_meet_the_bound_before_anything_compiled_is_loaded(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """First fit by size alone does not on these; loading takes a third of a second."""
    p = random_problem(random.Random(seed), 12, 8, 20)
    stages: list[Progress] = []
    monkeypatch.setattr(module, "CapacitySearch", lambda *_: pytest.fail("compiled code is loaded"))
    outcome = solve(p, options=SolveOptions(progress=stages.append))
    assert (outcome.status, outcome.solver) == (Status.OPTIMAL, "portfolio/greedy")
    assert stages[0].incumbent > outcome.lower_bound


def test_coarse_questions_grant_a_part_of_the_bound_on_top_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(monkeypatch)
    p = training_shaped(1, buffers=5000)
    solve(p, options=SolveOptions(work=1000))
    questions, bound = (*SHORT_QUESTIONS, *LONG_QUESTIONS), max_load(p).bytes
    assert [capacity for capacity, _ in asked] == [bound + int(bound * each.gap) for each in questions]


@pytest.mark.parametrize("asked", [0, 1, 3, 5, 8, 13])
def test_a_deadline_within_coarse_questions_leaves_a_valid_layout(asked: int) -> None:
    p = training_shaped(1, buffers=5000)
    outcome = solved(p, deadline=countdown(asked))
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
    former = solved(whole, solver="first-fit").layout
    left = pinned(whole, 0.6, 9)
    outcome = solved(left, options=SolveOptions(work=1_000))
    assert outcome.layout.peak <= former.peak
    assert find_violations(left, outcome.layout) == ()


def test_many_buffers_with_pins_come_to_lie_between_them() -> None:
    rng, count = np.random.default_rng(5), 30_000
    sizes = rng.integers(1, 1000, count).tolist()
    p = LayoutProblem(
        tuple(
            Buffer(str(i), size, Lifespan(i, i + 20), offset=None if i % 40 else 64)
            for i, size in enumerate(sizes)
        )
    )
    outcome, instance = solve(p, options=SolveOptions(work=1, target_gap=0.2)), Instance.of(p)
    assert outcome.layout is not None
    assert is_sound(p, outcome.layout)
    assert outcome.layout.peak < layout_of(instance, in_classes(instance)).peak


def test_the_usual_budget_ends_at_a_good_gap_with_many_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no limit but a deadline, orders are tried to the bound."""
    ends: list[int] = []

    def listen(
        instance: Instance, enough: int, deadline: Deadline, known: Layout | None, attempts: int | None
    ) -> GreedyResult:
        ends.append(enough)
        return greedy_portfolio(instance, enough, deadline, known, attempts)

    monkeypatch.setattr(module, "greedy_portfolio", listen)
    p = EVERY["any, deep"](1_500, 2)
    bound, only = max_load(p).bytes, [stage for stage in module.STAGES if stage.name == "all orders"]
    for work in (USUAL, 1_000, None):
        Portfolio(SolveOptions(work=work), tuple(only)).solve(p, Deadline())
    good = bound + int(bound * GOOD_GAP)
    assert ends == [good, good, bound]


@pytest.mark.parametrize("buffers", [20_000, 200_000])
def test_a_deadline_leaves_time_to_place_all(buffers: int) -> None:
    """However little: what is not in its place by then lies above, in classes of sizes."""
    p = EVERY["any, deep"](buffers, 3)
    outcome = solved(p, deadline=Deadline.after(0.0))
    assert is_sound(p, outcome.layout)
    assert not outcome.deterministic


# -------------------------------------------- Each structure against its theorem; anything else is left alone


#: A structure, a shape that has it.
PROMISED = [("uniform", "equal sizes"), ("chain", "chain"), ("laminar", "nested")]


def found(p: LayoutProblem) -> dict[str, int]:
    """Structures of a problem with the peak of each, which is that of a right layout."""
    instance, peaks = Instance.of(p), {}
    for name, offsets in structured(instance):
        placed = layout_of(instance, offsets)
        assert find_violations(p, placed) == ()
        peaks[name] = placed.peak
    return peaks


@pytest.mark.parametrize(("name", "shape"), PROMISED)
@pytest.mark.parametrize("buffers", [1, 2, 3, 10, 200, 5000])
def test_a_structure_meets_the_bound(name: str, shape: str, buffers: int) -> None:
    p = SHAPES[shape](buffers, buffers)
    assert found(p)[name] == max_load(p).bytes


@pytest.mark.parametrize(("name", "shape"), PROMISED)
@pytest.mark.parametrize("alignment", [1, 8])
def test_what_lives_all_the_time_takes_no_structure_away(name: str, shape: str, alignment: int) -> None:
    """Weights below, say: they lie at the bottom, and the others decide."""
    others, rng = SHAPES[shape](300, 1).buffers, random.Random(1)
    last = max(b.lifespan.end for b in others)
    weights = (Buffer(f"weight{i}", rng.randint(1, 99), Lifespan(0, last)) for i in range(30))
    buffers = [replace(b, size=b.size * alignment, alignment=alignment) for b in (*others, *weights)]
    rng.shuffle(buffers)
    p = LayoutProblem(tuple(buffers))
    assert found(p)[name] == max_load(p).bytes


@pytest.mark.parametrize(("name", "shape"), PROMISED)
def test_the_default_solver_says_which_structure_it_was(name: str, shape: str) -> None:
    p = SHAPES[shape](5000, 1)
    outcome = solve(p)
    assert (outcome.solver, outcome.lower_bound) == (f"portfolio/{name}", max_load(p).bytes)
    without = solve(p, options=SolveOptions(work=1000, rules=Rules(structure=False)))
    assert not without.solver.endswith(name)


@pytest.mark.parametrize("shape", ["each meets two", "one length", "any", "mixed alignments", "pins"])
def test_other_problems_have_none(shape: str) -> None:
    assert found(SHAPES[shape](300, 1)) == {}


def test_nothing_to_place_has_no_structure() -> None:
    assert found(LayoutProblem(())) == {}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_claimed_is_the_optimum_of_small_problems(seed: int) -> None:
    """Few steps, so that chains and nests come up; sizes that need padding at the top."""
    rng = random.Random(seed)
    p = random_problem(rng, rng.randint(1, 5), 4, rng.choice((1, 9)), rng.choice(((1,), (4,), (1, 4))))
    for peak in found(p).values():
        assert best_peak(p) <= peak
        if not Instance.of(p).misaligning and all(b.size % b.alignment == 0 for b in p.buffers):
            assert peak == max_load(p).bytes


def test_a_chain_is_turned_over_where_padding_counts() -> None:
    """The top of the first stretch should be 5, of the second 4: the bound is 8 + 4 and 4 + 8."""
    p = problem((5, 0, 2), (8, 1, 3), (8, 5, 7), (5, 6, 8), alignment=4)
    assert max_load(p).bytes == 13
    assert found(p)["chain"] == 13


def test_a_larger_alignment_widens_each_place() -> None:
    p = LayoutProblem((Buffer("a", 6, Lifespan(0, 2), 8), Buffer("b", 6, Lifespan(1, 3), 2)))
    assert found(p)["uniform"] == 14


def test_a_stack_keeps_alignments() -> None:
    p = LayoutProblem((Buffer("a", 6, Lifespan(0, 9), 1), Buffer("b", 5, Lifespan(1, 3), 4)))
    assert found(p)["laminar"] == 13


@pytest.mark.parametrize("at", [0, 1, 50, 99])
def test_a_pin_or_one_crossing_life_takes_a_nest_away(at: int) -> None:
    p = nested(100, 3)
    pin = tuple(replace(b, offset=0) if i == at else b for i, b in enumerate(p.buffers))
    assert found(LayoutProblem(pin)) == {}
    last = max(b.lifespan.end for b in p.buffers)
    crossing = Buffer("crossing", 1, Lifespan(last - 1, last + 1))
    later = Buffer("later", 1, Lifespan(last, last + 1))
    assert "laminar" not in found(LayoutProblem((*p.buffers, crossing, later)))


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_colours_differ_where_buffers_meet(shape: str) -> None:
    instance = Instance.of(SHAPES[shape](60, 1))
    colour = coloured(instance, depth(instance)).tolist()
    start, end = instance.start.tolist(), instance.end.tolist()
    assert max(colour) < depth(instance)
    for i in range(len(instance)):
        for j in range(i):
            assert colour[i] != colour[j] or start[i] >= end[j] or start[j] >= end[i]


@pytest.mark.parametrize("shape", [shape for shape in sorted(SHAPES) if not shape.startswith("gaps")])
def test_classes_place_anything(shape: str) -> None:
    p = SHAPES[shape](500, 1)
    instance = Instance.of(p)
    assert find_violations(p, layout_of(instance, in_classes(instance))) == ()


def test_names_are_different() -> None:
    assert len({structure.name for structure in STRUCTURES}) == len(STRUCTURES)


def test_a_chain_of_any_alignments_has_padding_above_the_floor_alone() -> None:
    """Each above the largest that it meets, rounded up to its alignment; a stretch may be turned over."""
    p = problem((100, 0, 2), (60, 1, 3), (100, 2, 4))
    aligned = LayoutProblem(tuple(map(_aligned, p.buffers, (8, 64, 8))))
    assert found(aligned)["chain"] == 164
    for seed in range(200):
        rng = random.Random(seed)
        chain = SHAPES["chain"](rng.randint(1, 6), seed)
        mixed = LayoutProblem(tuple(_aligned(b, 2 ** rng.randrange(8)) for b in chain.buffers))
        assert found(mixed)["chain"] >= best_peak(mixed)


def _aligned(buffer: Buffer, alignment: int) -> Buffer:
    return replace(buffer, alignment=alignment)
