"""The searches: one capacity, ever smaller ones, boxes of buffers, and CP-SAT."""

from __future__ import annotations

import gc
import math
import random
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from dataclasses import fields, replace

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
from solver.layout.exact import capacity_search, coarse, feasibility
from solver.layout.exact.capacity_search import CapacitySearch
from solver.layout.exact.coarse import FINE, MIDDLE, ROUGH, Coarse, Grain, coarsen, search_coarsely
from solver.layout.exact.cp_sat import let_go, refine, representable
from solver.layout.exact.feasibility import (
    MANY,
    SHORT,
    Answer,
    Decision,
    FeasibilitySearch,
    Watch,
    search_is_compiled,
)
from solver.layout.greedy.placement import greedy_portfolio, orders, place
from solver.layout.kernels import skyline_kernel as kernel
from solver.layout.kernels.priorities import priorities
from solver.layout.kernels.skyline_kernel import (
    FLUSH,
    LEAN,
    LEANING,
    LEARNT,
    PATH,
    ROUND,
    RULES,
    SEARCHABLE,
    SEED,
    WALLS,
    SearchState,
    allocate,
    kinds,
    made,
    preference,
    prepare,
    unchanged,
)
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.options import USUAL, USUAL_WORK, Usual
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import best_peak, countdown, layout, problem, random_problem, solved, tight_problem
from tests.support.oracle import optimum, tiling
from tests.support.shapes import SHAPES
from tests.support.training_shaped import training_shaped

ENOUGH = 10**8
PLAIN = SolveOptions(threads=1)


def decide(problem: LayoutProblem, capacity: int, options: SolveOptions = PLAIN) -> Answer:
    """The answer of the search; an offset list that comes with it is checked."""
    instance = Instance.of(problem)
    decision = FeasibilitySearch(instance, options).decide(capacity, ENOUGH, Watch(Deadline(), options))
    if decision.offsets is not None:
        layout = layout_of(instance, decision.offsets)
        assert find_violations(replace(problem, capacity=capacity), layout) == ()
    return decision.answer


@pytest.mark.parametrize("shape", [name for name in SHAPES if not name.startswith("gaps")])
def test_no_capacity_that_a_layout_keeps_is_refuted(shape: str) -> None:
    """Whatever two seeds conclude of hundreds of buffers, beyond the reach of other oracles."""
    p = SHAPES[shape](200, 1)
    found = solved(p, options=replace(PLAIN, work=200_000)).layout
    instance = Instance.of(p)
    for capacity in (found.peak, found.peak + found.peak // 1000):
        for seed in (0, 1):
            options = SolveOptions(threads=1, seed=seed)
            watch = Watch(Deadline(), options)
            assert (
                FeasibilitySearch(instance, options).decide(capacity, 2_000_000, watch).answer
                is not Answer.NO
            )


def test_runs_differ_but_tell_the_same_buffers_apart() -> None:
    """Noise may reorder kinds, never mix them up: a tie would lose a branch, and with it a solution."""
    instance = Instance.of(random_problem(random.Random(7), 40, 6, 3, (1,)))
    kind = kinds(instance)
    ranks = np.stack(list(priorities(instance, kind))).astype(np.int16)
    state = _state(instance)
    seen = set()
    for run in range(3 * ROUND):
        with np.errstate(over="ignore"):  # of hashes
            prepare(state, ranks, run)
        keys = state.rank.tolist()
        assert len(set(keys)) == len(set(kind.tolist())) == len(set(zip(keys, kind.tolist(), strict=True)))
        seen.add(tuple(keys))
    assert len(seen) > 2 * ROUND


def test_whoever_levels_the_floor_goes_first_then_whoever_leans() -> None:
    state = _state(Instance.of(random_problem(random.Random(7), 3, 6, 3, (1,))))
    state.rank[:] = (3, 2, 1)
    touching = (True, False, True, False), (True, True, False, False), (False, False, False, False)
    expected = {kernel.PLAIN: [2, 1, 0], LEAN: [1, 0, 2], FLUSH: [0, 1, 2]}
    for regard, order in expected.items():
        state.counters[LEANING] = regard
        assert sorted(range(3), key=lambda i: preference(state, i, *touching[i])) == order


def _state(instance: Instance) -> SearchState:
    limit, signals = np.full(len(instance), 10**6), np.array([0, 2**62])
    state = allocate(instance, 1, limit, 4, 100, signals, 1)
    state.counters[[SEED, RULES]] = (1, WALLS)
    return state


@pytest.mark.parametrize("sections", [SEARCHABLE + 1, 2**21])
def test_more_sections_than_numbers_can_name_are_refused(sections: int) -> None:
    long = replace(Instance.of(problem((1, 0, 2))), sections=sections)
    with pytest.raises(ValueError, match="too many to search"):
        allocate(long, 1, np.array([1]), 4, 100, np.array([0, 2**62]), 1)


def test_a_buffer_takes_some_hundred_bytes_and_of_another_seed_ten() -> None:
    """Beside what grows with the path and with what is refuted, if the second seed shares both."""
    instance = Instance.of(SHAPES["almost one length"](4000, 1))
    same = unchanged(instance, np.argsort(instance.start, kind="stable"), 1, kinds(instance))
    signals, grows = np.array([0, 2**62]), ("parts", "reaches", "sums", "frames", "niches", "waits", "trail")
    first = made(same, 12, 10**5, signals, 0)
    second = made(same, 12, 10**5, signals, 1, {name: getattr(first, name) for name in (*PATH, *LEARNT)})
    places = [
        {
            rows.ctypes.data: rows.nbytes
            for name, rows in state._asdict().items()
            if name not in (*grows, "table", "refuted")
        }
        for state in (first, second)
    ]
    assert sum(places[0].values()) <= 120 * len(instance)
    assert sum((places[0] | places[1]).values()) <= 130 * len(instance)


def test_seeds_that_share_what_they_remember_refute_nothing_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they do of thousands of buffers, where no oracle reaches: asked about a few, with a small table."""
    monkeypatch.setattr(feasibility, "MANY", 0)
    monkeypatch.setattr(feasibility, "SHORT_TABLE_BITS", 6)
    for seed in range(60):
        p = tight_problem(random.Random(seed))
        if len(p.buffers) > 13:
            continue
        best = optimum(p)
        for threads in (1, 2):
            options = SolveOptions(threads=threads)
            search, watch = FeasibilitySearch(Instance.of(p), options), Watch(Deadline(), options)
            for capacity in (best + 1, best - 1, best, best - 1):
                expected = Answer.YES if capacity >= best else Answer.NO
                assert search.decide(capacity, ENOUGH, watch).answer is expected, (seed, capacity)


@pytest.mark.parametrize("rule", [None, *(f.name for f in fields(Rules)), "all"])
def test_no_rule_changes_the_answer(rule: str | None) -> None:
    rules = Rules(**{f.name: rule not in (f.name, "all") for f in fields(Rules)})
    for seed in range(25):
        p = tight_problem(random.Random(seed))
        if len(p.buffers) > 13:
            continue
        best = optimum(p)
        for capacity in (best - 1, best, best + 1):
            expected = Answer.YES if capacity >= best else Answer.NO
            assert decide(p, capacity, replace(PLAIN, rules=rules)) is expected, (seed, capacity)


@pytest.mark.parametrize("alignments", [(1, 4), (4, 1)])
def test_equal_buffers_of_other_alignments_are_told_apart(alignments: tuple[int, int]) -> None:
    """Only the one that is aligned to 4 can lie at the bottom; whichever comes first, it must be tried."""
    p = LayoutProblem(tuple(Buffer(str(a), 3, Lifespan(0, 1), a) for a in alignments))
    assert decide(p, 6) is Answer.YES
    assert decide(p, 5) is Answer.NO


@pytest.mark.parametrize("seed", range(8))
def test_a_guide_changes_no_answer(seed: int) -> None:
    p = tiling(random.Random(seed), 200, 60, 120)
    instance, watch = Instance.of(p), Watch(Deadline(), PLAIN)
    best = FeasibilitySearch(instance, PLAIN).decide(200, ENOUGH, watch).offsets
    assert best is not None
    shuffled = np.random.default_rng(seed).permutation(best)
    for guide in (best, shuffled, best * 0):
        search = FeasibilitySearch(instance, PLAIN)
        assert search.decide(199, ENOUGH, watch, guide).answer is Answer.NO
        decision = search.decide(200, ENOUGH, watch, guide)
        assert decision.answer is Answer.YES
        assert decision.offsets is not None
        assert find_violations(p, layout_of(instance, decision.offsets)) == ()


def test_threads_do_not_change_the_answer() -> None:
    p = tiling(random.Random(3), 400, 60, 70)
    outcomes = [
        solve(p, options=SolveOptions(threads=threads, work=5_000_000)).layout for threads in (1, 2, 2, 1)
    ]
    assert len(set(outcomes)) == 1


def test_threads_do_not_change_what_is_found_of_many_buffers() -> None:
    """Seeds share a path and what they remember there, so they take turns whatever threads there are."""
    p = tiling(random.Random(5), 4000, 400, MANY + 600)
    instance = Instance.of(p)
    found = []
    for threads in (1, 2):
        options = SolveOptions(threads=threads)
        search = FeasibilitySearch(instance, options)
        watch = Watch(Deadline(), options)
        works = (SHORT, 10 * SHORT, SHORT)
        decisions = [search.decide(4000 + k, work, watch) for k, work in enumerate(works)]
        found.append([(d.answer, d.work, d.offsets is None or d.offsets.tolist()) for d in decisions])
    assert len(instance) > MANY
    assert found[0] == found[1]


def test_the_clock_may_decide_a_race_and_the_outcome_says_so() -> None:
    p = tiling(random.Random(3), 30, 20, 30)
    outcome = solved(p, options=SolveOptions(race=True))
    assert not outcome.deterministic


def hard() -> LayoutProblem:
    """Too tight to be settled within the time of any test: no byte is free at any step."""
    return tiling(random.Random(5), 10**7, 150, 900)


def test_cancellation_from_another_thread() -> None:
    p, options = hard(), SolveOptions(work=None, cancel=threading.Event())
    assert options.cancel is not None
    instance = Instance.of(p)
    search, watch = FeasibilitySearch(instance, options), Watch(Deadline(), options)
    threading.Timer(0.05, options.cancel.set).start()
    decision = search.decide(max_load(p).bytes, 2**60, watch)
    assert decision.answer is Answer.UNKNOWN or not watch.cut


def test_a_deadline_ends_the_search_and_is_told() -> None:
    began = time.monotonic()
    outcome = solved(hard(), deadline=Deadline.after(0.3), options=SolveOptions(work=None))
    assert outcome.status is Status.OPTIMAL or not outcome.deterministic
    assert time.monotonic() > began


def test_no_work_leaves_the_question_open() -> None:
    options = SolveOptions(work=0)
    instance = Instance.of(hard())
    decision = FeasibilitySearch(instance, options).decide(
        max_load(hard()).bytes, 0, Watch(Deadline(), options)
    )
    assert decision.answer is Answer.UNKNOWN
    assert decision.offsets is None


def test_a_question_after_another_is_answered_the_same() -> None:
    p = tight_problem(random.Random(11))
    best = optimum(p)
    search, watch = FeasibilitySearch(Instance.of(p), PLAIN), Watch(Deadline(), PLAIN)
    for capacity in (best + 2, best - 1, best, best - 2, best + 1, best - 1):
        answer = search.decide(capacity, ENOUGH, watch).answer
        assert answer is (Answer.YES if capacity >= best else Answer.NO)


def test_the_search_is_compiled() -> None:
    assert search_is_compiled()


def test_as_python_the_search_does_a_hundredth_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets are about seconds of compiled code."""
    p = tiling(random.Random(3), 10**6, 90, 200)
    monkeypatch.setattr(feasibility, "search_is_compiled", lambda: False)
    monkeypatch.setattr(feasibility, "may_compile", lambda: False)
    search = FeasibilitySearch(Instance.of(p), PLAIN)
    decision = search.decide(10**6, 3_000_000, Watch(Deadline(), PLAIN))
    assert decision.answer is Answer.UNKNOWN
    assert 3_000_000 <= decision.work < 6_000_000
    assert decision.work % feasibility.UNCOMPILED_SLOWNESS == 0


def test_progress_narrows_the_gap() -> None:
    heard: list[Progress] = []
    outcome = solve(hard(), options=SolveOptions(work=3_000_000, progress=heard.append))
    assert [p.incumbent for p in heard] == sorted((p.incumbent for p in heard), reverse=True)
    assert outcome.layout is not None
    assert heard[-1].incumbent == outcome.layout.peak
    assert heard[-1].gap == pytest.approx((outcome.layout.peak - outcome.lower_bound) / outcome.lower_bound)


def test_what_is_learnt_at_one_capacity_proves_nothing_where_other_offsets_are_aligned() -> None:
    """Refuted at 121, a part leaves as much below the capacity at 123, yet what is aligned there differs."""
    rows = (
        (28, 5, 53, 8), (7, 7, 12, 4), (38, 7, 60, 1), (21, 0, 11, 8), (9, 10, 70, 1), (18, 7, 58, 8),
    )  # fmt: skip
    p = LayoutProblem(tuple(Buffer(f"b{i}", z, Lifespan(s, e), a) for i, (z, s, e, a) in enumerate(rows)))
    assert solve(p, options=PLAIN).lower_bound == best_peak(p) == 123


# ---------------------------------------------------------------------------- What the capacity search spends


WORK = 10**7


def unanswered(monkeypatch: pytest.MonkeyPatch, enough: float = math.inf) -> list[tuple[int, int, bool]]:
    """Capacity and work of each question from now on, and whether it has a guide; none is answered.

    The search is told to end at a question with more than `enough` work.
    """
    asked: list[tuple[int, int, bool]] = []

    def decide(
        _self: FeasibilitySearch, capacity: int, work: int, watch: Watch, guide: object = None
    ) -> Decision:
        asked.append((capacity, work, guide is not None))
        watch.cut = work > enough
        return Decision(Answer.UNKNOWN, None, work)

    monkeypatch.setattr(FeasibilitySearch, "decide", decide)
    return asked


def stacked(instance: Instance) -> Layout:
    return layout_of(instance, np.cumsum(instance.size) - instance.size)


def spent(monkeypatch: pytest.MonkeyPatch, work: int | Usual | None, large: int) -> tuple[int, int]:
    """Work asked for until the search gave up, where no question is ever answered; and the buffers."""
    asked = unanswered(monkeypatch, WORK)
    monkeypatch.setattr(capacity_search, "LARGE", large)
    tiled = tiling(random.Random(1), 1000, 30, 60)
    instance, watch = Instance.of(tiled), Watch(Deadline(), SolveOptions(work=work))
    bound = max_load(tiled).bytes
    CapacitySearch(instance, stacked(instance), bound, watch, lambda _layout, _proved: None).tighten()
    return sum(work for _, work, _ in asked), len(instance)


def test_a_large_problem_gets_one_descent_unless_more_work_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert spent(monkeypatch, WORK, 1000)[0] == WORK
    asked, buffers = spent(monkeypatch, USUAL, 10)
    assert asked == buffers**2
    assert spent(monkeypatch, WORK, 10)[0] == WORK
    assert spent(monkeypatch, None, 10)[0] > WORK


def searches_made(monkeypatch: pytest.MonkeyPatch, **limits: int) -> list[int]:
    """Buffers of each search that is made for three that fit at once, and thirty that are never settled."""
    found: list[int] = []
    small: list[FeasibilitySearch] = []
    begin, settled = FeasibilitySearch.__init__, FeasibilitySearch.decide

    def begun(self: FeasibilitySearch, instance: Instance, options: SolveOptions) -> None:
        found.append(len(instance))
        small.extend([self] * (len(instance) == 3))
        begin(self, instance, options)

    def decide(
        self: FeasibilitySearch, capacity: int, work: int, watch: Watch, guide: Integers | None = None
    ) -> Decision:
        if self in small:
            return settled(self, capacity, work, watch, guide)
        return Decision(Answer.UNKNOWN, None, work)

    monkeypatch.setattr(FeasibilitySearch, "__init__", begun)
    monkeypatch.setattr(FeasibilitySearch, "decide", decide)
    for name, limit in limits.items():
        assert hasattr(capacity_search, name)
        monkeypatch.setattr(capacity_search, name, limit)
    thirty = [(6, 2 * i, 2 * i + 3) for i in range(30)]
    instance = Instance.of(problem(*thirty, *[(5, 70, 72)] * 3))
    watch = Watch(Deadline(), SolveOptions(work=WORK, rules=Rules(peel=False)))
    CapacitySearch(instance, stacked(instance), 15, watch, lambda _layout, _proved: None).tighten()
    return found


def test_more_than_can_be_searched_at_once_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert searches_made(monkeypatch, SEARCHED_AT_ONCE=30) == [3, 30]
    monkeypatch.undo()
    assert searches_made(monkeypatch, SEARCHED_AT_ONCE=29) == []


def test_of_thousands_of_buffers_the_last_search_alone_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert searches_made(monkeypatch, MANY=29) == [3, 30, 3]


def above(
    bound: int, gap: int, capacity: int, monkeypatch: pytest.MonkeyPatch, work: int | Usual = USUAL
) -> int:
    """Work asked for where the bound is so far below the incumbent, and no question is answered."""
    asked = unanswered(monkeypatch)
    half = problem((bound // 2, 0, 2), (bound // 2 + gap - 1, 1, 3), (1, 0, 3))
    instance, watch = Instance.of(half), Watch(Deadline(), SolveOptions(work=work))
    layout = layout_of(instance, np.array([1, bound // 2 + 1, 0]))
    assert layout.peak == bound + gap
    CapacitySearch(instance, layout, bound, watch, lambda _layout, _proved: None, capacity).tighten()
    return sum(work for _, work, _ in asked)


@pytest.mark.parametrize(
    ("gap", "capacity", "work", "asked"),
    [
        (900, MAX_BYTES, USUAL, capacity_search.NEGLIGIBLE_WORK),  # a millionth is worth little work
        (900, 10**9 + 900, USUAL, capacity_search.NEGLIGIBLE_WORK),
        (900, 10**9 + 899, USUAL, USUAL_WORK),  # above the capacity nothing is negligible
        (1001, MAX_BYTES, USUAL, USUAL_WORK),
        (900, MAX_BYTES, 10**10, 10**10),  # work that is asked for is spent
        (900, MAX_BYTES, USUAL_WORK, USUAL_WORK),
    ],
)
def test_what_a_gap_is_worth(
    gap: int, capacity: int, work: int | Usual, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert above(10**9, gap, capacity, monkeypatch, work) == asked


@pytest.mark.parametrize(("goal", "share"), [(False, 1 / 2), (True, 15 / 16)])
def test_the_lowest_capacity_gets_most_of_the_work_and_no_guide(
    goal: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = unanswered(monkeypatch)
    tiled = tiling(random.Random(1), 1000, 30, 60)
    instance, bound = Instance.of(tiled), max_load(tiled).bytes
    watch = Watch(Deadline(), SolveOptions(work=100 * WORK))
    search = CapacitySearch(instance, stacked(instance), bound, watch, lambda _layout, _proved: None)
    search.probe(bound * goal)
    search.tighten(bound * goal)
    asked = Counter[tuple[int, bool]]()
    for capacity, work, is_guided in questions:
        asked[capacity, is_guided] += work
    assert min(asked) == (bound, False)
    assert (bound, True) not in asked
    # All but what the budget has cut off at the end.
    assert asked[bound, False] >= 0.95 * share * sum(asked.values())
    assert len(asked) > 5


# ----------------------------------------------------------------------------------------------------- coarse


GRAINS = (ROUGH, MIDDLE, FINE, Grain(2, 1), Grain(10**9, 10**9))

#: Contended at steps 3 and 6.
PICTURE = problem(
    (1000, 0, 12),  # always there
    (9000, 2, 8),  # large, as are the next two
    (500, 3, 4),
    (500, 6, 7),
    (6, 2, 8),  # dust through both contended steps, as is the next
    (4, 1, 9),
    (5, 2, 5),  # dust through the first only
    (50, 0, 1),  # easy, as is the next
    (70, 10, 11),
)


def _watch(deadline: Deadline | None = None, options: SolveOptions | None = None) -> Watch:
    return Watch(deadline or Deadline(), options or SolveOptions())


def _drawn(seed: int) -> LayoutProblem:
    rng = random.Random(seed)
    if seed % 3 == 0:
        return training_shaped(seed, buffers=400)
    p = random_problem(rng, 60, 25, 3000, (1, 1, 4)) if seed % 3 == 1 else random_problem(rng, 60, 25, 30)
    largest = max(b.alignment for b in p.buffers)
    return LayoutProblem(tuple(Buffer(b.id, b.size, b.lifespan, largest) for b in p.buffers))


def _placed(coarse: Coarse) -> Integers:
    """Some layout of the boxes."""
    return place(coarse.instance, orders(coarse.instance)["area"]())[0]


def test_the_picture() -> None:
    instance = Instance.of(PICTURE)
    coarse = coarsen(instance, max_load(PICTURE).bytes, Grain(contended=200, easy=10))
    assert coarse.always.tolist() == [0]
    assert coarse.easy.tolist() == [8, 7]
    boxes = [sorted(coarse.packed[coarse.box == k].tolist()) for k in range(len(coarse.instance))]
    assert sorted(boxes) == [[1], [2], [3], [4, 5], [6]]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("grain", GRAINS)
def test_every_buffer_is_in_one_place(seed: int, grain: Grain) -> None:
    p = _drawn(seed)
    instance = Instance.of(p)
    coarse = coarsen(instance, max_load(p).bytes, grain)
    everything = np.concatenate((coarse.always, coarse.packed, coarse.easy))
    assert sorted(everything.tolist()) == list(range(len(instance)))
    held = np.zeros(len(coarse.instance), dtype=np.int64)
    np.add.at(held, coarse.box, instance.size[coarse.packed])
    assert held.tolist() == coarse.instance.size.tolist()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("grain", GRAINS)
def test_boxes_stay_within_the_capacity(seed: int, grain: Grain) -> None:
    """With the bound of padded sizes, as padding is told apart at the top alone."""
    instance = Instance.of(_drawn(seed))
    capacity = int(instance.load().max())
    coarse = coarsen(instance, capacity, grain)
    assert coarse.instance.load().max(initial=0) <= capacity - instance.size[coarse.always].sum()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("grain", GRAINS)
def test_first_fit_in_the_order_found_is_no_higher_than_the_boxes(seed: int, grain: Grain) -> None:
    p = _drawn(seed)
    instance = Instance.of(p)
    coarse = coarsen(instance, max_load(p).bytes, grain)
    boxes = _placed(coarse)
    offsets, _ = place(instance, coarse.order(instance.size, boxes))
    assert find_violations(p, layout_of(instance, offsets)) == ()
    ground = instance.size[coarse.always].sum()
    assert (offsets[coarse.packed] <= ground + boxes[coarse.box] + coarse.within(instance.size)).all()


def test_padding_counts_below_a_buffer_but_not_at_the_top_of_its_box() -> None:
    p = problem((40, 0, 2), (41, 0, 2), (100, 1, 3), alignment=64)
    instance = Instance.of(p)
    coarse = coarsen(instance, max_load(p).bytes, FINE)
    padding = coarse.instance.size - coarse.instance.exact
    assert set(padding.tolist()) <= {24, 23, 28}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_of_three_grains_nearly_closes_the_gap(seed: int) -> None:
    p = training_shaped(seed, buffers=5000)
    instance, bound = Instance.of(p), max_load(p).bytes
    found = [
        search_coarsely(instance, bound, MAX_BYTES, grain, 5_000_000, _watch())
        for grain in (ROUGH, MIDDLE, FINE)
    ]
    layouts = [layout for layout in found if layout is not None]
    assert min(layout.peak for layout in layouts) <= 1.001 * bound
    assert all(find_violations(p, layout) == () for layout in layouts)


def test_threads_change_nothing() -> None:
    p = training_shaped(3, buffers=3500)
    instance, bound = Instance.of(p), max_load(p).bytes
    found = [
        search_coarsely(
            instance, bound, MAX_BYTES, MIDDLE, 2_000_000, _watch(options=SolveOptions(threads=threads))
        )
        for threads in (1, 2, 2)
    ]
    assert found[0] is not None
    assert found[0] == found[1] == found[2]


def test_nothing_beyond_the_limit_is_handed_out() -> None:
    p = training_shaped(3, buffers=3500)
    instance, bound = Instance.of(p), max_load(p).bytes
    assert search_coarsely(instance, bound, bound - 1, MIDDLE, 2_000_000, _watch()) is None


def test_a_question_without_work_or_for_too_many_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    p = training_shaped(3, buffers=3500)
    instance, bound = Instance.of(p), max_load(p).bytes
    assert search_coarsely(instance, bound, MAX_BYTES, MIDDLE, 0, _watch()) is None
    monkeypatch.setattr(coarse, "SEARCHED", 10)
    assert search_coarsely(instance, bound, MAX_BYTES, MIDDLE, 2_000_000, _watch()) is None


def test_where_all_are_always_there_nothing_is_asked() -> None:
    p = problem((4, 0, 2), (3, 0, 2))
    assert search_coarsely(Instance.of(p), 7, MAX_BYTES, MIDDLE, 1000, _watch()) is None


def test_a_passed_deadline_ends_it_and_is_told() -> None:
    p = training_shaped(3, buffers=3500)
    watch = _watch(countdown(0))
    assert search_coarsely(Instance.of(p), max_load(p).bytes, MAX_BYTES, MIDDLE, 10**9, watch) is None
    assert watch.cut


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_deadline_that_passes_meanwhile_leaves_a_layout_or_is_told(asked: int) -> None:
    p = training_shaped(3, buffers=3500)
    watch = _watch(countdown(asked))
    found = search_coarsely(Instance.of(p), max_load(p).bytes, MAX_BYTES, MIDDLE, 10**9, watch)
    assert watch.cut if found is None else not find_violations(p, found)


# ----------------------------------------------------------------------------------------------------- cp sat


def _pinned(rng: random.Random, p: LayoutProblem) -> LayoutProblem:
    alignment = rng.choice((1, 2, 8))
    pin = Buffer("pinned", rng.randint(1, 9), Lifespan(1, 3), alignment, alignment * rng.randrange(4))
    return LayoutProblem((*p.buffers, pin))


@pytest.mark.parametrize("seed", range(25))
def test_optimum_with_pins_and_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    alignments = rng.choice(((1,), (4,), (1, 2, 8), (4, 8)))
    p = random_problem(rng, rng.randint(1, 5), 5, rng.choice((4, 20)), alignments)
    if rng.random() < 0.5:
        p = _pinned(rng, p)
    outcome = solve(p, solver="cp-sat")
    assert outcome.status is Status.OPTIMAL
    assert outcome.layout is not None
    assert outcome.layout.peak == best_peak(p)


def test_it_improves_on_a_poor_incumbent() -> None:
    p = problem((4, 0, 2), (4, 2, 4), (4, 4, 6), (3, 1, 5))
    poor = layout(p, 30, 60, 30, 0)
    refined = refine(Instance.of(p), poor, max_load(p).bytes, Deadline(), 1.0)
    assert refined.layout.peak == refined.proved == 7
    assert find_violations(p, refined.layout) == ()


def test_a_model_is_gone_once_it_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """OR-Tools keeps its methods by old names in each model, and with them the model."""
    from ortools.sat.python import cp_model

    models: list[weakref.ref[cp_model.CpModel]] = []

    class Kept(cp_model.CpModel):
        def __init__(self) -> None:
            super().__init__()
            models.append(weakref.ref(self))

    monkeypatch.setattr(cp_model, "CpModel", Kept)
    p = problem((4, 0, 2), (4, 2, 4), (4, 4, 6), (3, 1, 5))
    gc.disable()
    try:
        refined = refine(Instance.of(p), layout(p, 30, 60, 30, 0), max_load(p).bytes, Deadline(), 1.0)
        assert [model() for model in models] == [None]
    finally:
        gc.enable()
    assert refined.layout.peak == 7


def test_a_model_that_is_notlet_go_of_stays() -> None:
    """Deleting it is not enough. Once this fails, OR-Tools has broken the cycle, and `let_go` can go."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    left = weakref.ref(model)
    gc.disable()
    try:
        model.minimize(model.new_int_var(0, 1, "x"))
        cp_model.CpSolver().solve(model)
        del model
        kept = left()
        assert kept is not None
        let_go(kept)
        del kept
        assert left() is None
    finally:
        gc.enable()


def test_a_model_without_old_names_islet_go_of_in_silence() -> None:
    """As a later OR-Tools may have them: nothing but slots."""

    class Slotted:
        __slots__ = ()

    let_go(Slotted())  # type: ignore[arg-type]  # stands in for a model of CP-SAT


def test_an_incumbent_off_the_grid_is_no_obstacle() -> None:
    p = problem((4, 0, 2), (4, 0, 2))
    assert refine(Instance.of(p), layout(p, 1, 7), 8, Deadline(), 1.0).layout.peak == 8


def test_the_common_divisor_makes_large_sizes_small() -> None:
    big = 2**50
    assert representable(Instance.of(problem((3 * big, 0, 2), (5 * big, 0, 2))), 8 * big)
    assert not representable(Instance.of(problem((3 * big, 0, 2), (5 * big + 1, 0, 2))), 8 * big)


def test_sizes_beyond_its_integers_leave_the_incumbent() -> None:
    p = problem((2**61 + 1, 0, 2), (2**60, 1, 3), (2**60 - 1, 2, 5))
    poor = layout(p, 2**60, 0, 2**62)
    refined = refine(Instance.of(p), poor, max_load(p).bytes, Deadline(), 1.0)
    assert (refined.layout, refined.proved, refined.cut) == (poor, 0, False)


def test_an_expired_deadline_returns_the_incumbent() -> None:
    p = problem((4, 0, 2), (4, 2, 4))
    poor = layout(p, 4, 4)
    refined = refine(Instance.of(p), poor, 4, Deadline.after(0), 1.0)
    assert (refined.layout, refined.proved, refined.cut) == (poor, 0, True)


def test_a_deadline_that_cuts_in_is_told_though_clocks_differ() -> None:
    """CP-SAT has a clock of its own; here it runs four times as fast."""

    class Slow(Deadline):
        @property
        def remaining(self) -> float:
            return super().remaining / 4

    p = random_problem(random.Random(1), 80, 40, 997, (1, 4, 32))
    instance, bound = Instance.of(p), max_load(p).bytes
    start = greedy_portfolio(instance, bound, Deadline()).layout
    refine(instance, start, bound, Deadline(), 1e-6)  # loads it, which takes longer than the deadline
    refined = refine(instance, start, bound, Slow.after(0.8), 1e9)
    assert bound <= refined.layout.peak <= start.peak
    assert (refined.proved, refined.cut) == (0, True)


def test_a_pin_that_alone_sets_the_peak_is_proved_by_the_solver_not_by_the_load() -> None:
    p = LayoutProblem((Buffer("a", 4, Lifespan(0, 1), 1, 100), Buffer("b", 4, Lifespan(0, 1))))
    outcome = solve(p, solver="cp-sat")
    assert (outcome.lower_bound, outcome.proof) == (104, Proof.SOLVER)


def test_importing_the_package_does_not_import_ortools() -> None:
    code = "import sys, solver.layout; sys.exit('ortools' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_same_problem_has_the_same_layout_each_time() -> None:
    """There are many layouts of the best peak that is found in this work; which is heard of first varies."""
    instance = Instance.of(random_problem(random.Random(3), 60, 25, 70, (1, 4, 16)))
    start = greedy_portfolio(instance, 0, Deadline()).layout
    refined = [refine(instance, start, 0, Deadline(), 0.01).layout for _ in range(2)]
    assert refined[0].peak < start.peak
    assert refined[0] == refined[1]
