"""The compiled search against oracles; each rule on and off; the race; stopping."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import fields, replace

import numpy as np
import pytest

from solver.layout import (
    Buffer,
    Deadline,
    LayoutProblem,
    Lifespan,
    Progress,
    Rules,
    SolveOptions,
    Status,
    find_violations,
    max_load,
    solve,
)  # fmt: skip
from solver.layout.exact import feasibility
from solver.layout.exact.feasibility import (
    MANY,
    SHORT,
    Answer,
    FeasibilitySearch,
    Watch,
    search_is_compiled,
)
from solver.layout.kernels.priorities import priorities
from solver.layout.kernels.skyline_choice import FLUSH, LEAN, ROUND, preference, prepare
from solver.layout.kernels.skyline_choice import PLAIN as PLAIN_WAY
from solver.layout.kernels.skyline_state import (
    LEANING,
    LEARNT,
    PATH,
    RULES,
    SEARCHABLE,
    SEED,
    WALLS,
    SearchState,
    allocate,
    kinds,
    made,
    unchanged,
)
from solver.layout.model.instance import Instance, layout_of
from tests.support.buffers import best_peak, problem, random_problem, solved, tight_problem
from tests.support.oracle import optimum, tiling
from tests.support.shapes import SHAPES

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
    expected = {PLAIN_WAY: [2, 1, 0], LEAN: [1, 0, 2], FLUSH: [0, 1, 2]}
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
