"""Buffers in, a layout with its digest out, or an error that says why not."""

from __future__ import annotations

import random
from itertools import pairwise
from threading import Event
from typing import Any

import pytest

from solver.documents import dump_layout, layout_with_digest, load_layout
from solver.errors import CapacityError, OptionsError, ProblemError
from solver.layout import (
    SOLVERS,
    Buffer,
    LayoutOptions,
    LayoutProblem,
    Lifespan,
    Outcome,
    Progress,
    Proof,
    Rules,
    SolveOptions,
    Status,
    find_violations,
    solve,
)
from solver.layout.baselines import ANSWERED
from solver.placement import place
from tests.support.buffers import layout, problem, random_problem, tight_problem
from tests.support.every import grid
from tests.support.training_shaped import training_shaped

PAIR = problem((4, 0, 3), (6, 2, 9))


def test_placed() -> None:
    made = place(PAIR)
    assert made.layout.peak == made.certificate.lower_bound == 10
    assert (made.certificate.status, made.certificate.proof) == (Status.OPTIMAL, Proof.MAX_LOAD)
    assert made.certificate.witness_step == 2
    assert made.deterministic
    assert made.gap == 0.0
    assert find_violations(made.problem, made.layout) == ()
    complete = layout_with_digest(made)
    assert (made.digest, len(complete.digest)) == ("", 64)
    assert load_layout(dump_layout(complete)) == complete


def test_nothing_to_place() -> None:
    assert place(LayoutProblem(())).layout.peak == 0


@grid("solver", sorted(SOLVERS))
def test_every_solver(solver: str) -> None:
    found = random_problem(random.Random(3), 8, 6, 20)
    made = place(found, LayoutOptions(solver, deadline_seconds=20))
    assert find_violations(found, made.layout) == ()
    assert made.options.solver == solver


def test_same_bytes_twice() -> None:
    found = random_problem(random.Random(5), 30, 20, 50)
    assert dump_layout(place(found)) == dump_layout(place(found))


def test_alignment_is_a_least_one() -> None:
    mixed = LayoutProblem((Buffer("a", 5, Lifespan(0, 2)), Buffer("b", 5, Lifespan(0, 2), 64)))
    made = place(mixed, LayoutOptions(alignment=16))
    assert [buffer.alignment for buffer in made.problem.buffers] == [16, 64]
    assert all(o % b.alignment == 0 for o, b in zip(made.layout.offsets, made.problem.buffers, strict=True))


def test_alignment_against_a_pin() -> None:
    pinned = LayoutProblem((Buffer("a", 5, Lifespan(0, 2), 1, 8),))
    with pytest.raises(ProblemError, match="not a multiple of its alignment 16"):
        place(pinned, LayoutOptions(alignment=16))


def test_capacity_of_the_options_wins() -> None:
    assert place(LayoutProblem(PAIR.buffers, 3), LayoutOptions(capacity=10)).problem.capacity == 10
    assert place(LayoutProblem(PAIR.buffers, 10)).problem.capacity == 10


@pytest.mark.parametrize(
    ("capacity", "words"),
    [(9, "10 bytes at least"), (5, r"Buffer 'b1' \(row 2\) alone has 6 bytes; .* is 5\.")],
)
def test_capacity_below_the_bound(capacity: int, words: str) -> None:
    with pytest.raises(CapacityError, match=words) as caught:
        place(PAIR, LayoutOptions(capacity=capacity))
    assert (caught.value.required, caught.value.available, caught.value.excess) == (
        10,
        capacity,
        10 - capacity,
    )
    assert caught.value.live_at_peak == (("b1", 6), ("b0", 4))
    assert caught.value.path == ("capacity",)


def test_capacity_that_the_solver_does_not_reach() -> None:
    """Bump never reuses a byte."""
    apart = problem((4, 0, 3), (6, 3, 9))
    with pytest.raises(CapacityError, match="10 bytes as far as the solver could find") as caught:
        place(apart, LayoutOptions("bump", capacity=6))
    assert caught.value.required == 10
    assert "more time" in caught.value.remedy


def test_long_lists_are_cut() -> None:
    many = problem(*((1, 0, 1) for _ in range(500)))
    with pytest.raises(CapacityError) as caught:
        place(many, LayoutOptions(capacity=1))
    assert len(caught.value.live_at_peak) == 100


def test_incumbent() -> None:
    """Where there is no time at all, what was given is what comes back."""
    start = layout(PAIR, 6, 0)
    assert place(PAIR, incumbent=start).layout.peak == 10
    with pytest.raises(ProblemError, match="incumbent"):
        place(PAIR, incumbent=layout(PAIR, 0, 0))


@grid(
    ("options", "path"),
    [
        (LayoutOptions("magic"), "solver"),
        (LayoutOptions(alignment=3), "alignment"),
        (LayoutOptions(alignment=0), "alignment"),
        (LayoutOptions(capacity=-1), "capacity"),
        (LayoutOptions(deadline_seconds=-0.5), "deadline_seconds"),
        (LayoutOptions(deadline_seconds=float("nan")), "deadline_seconds"),
        (LayoutOptions(work=-1), "work"),
        (LayoutOptions(seed=-1), "seed"),
        (LayoutOptions(seed=2**62), "seed"),
        (LayoutOptions(threads=0), "threads"),
        (LayoutOptions(threads=65), "threads"),
        (LayoutOptions(target_gap=-0.1), "target_gap"),
        (LayoutOptions(target_gap=float("inf")), "target_gap"),
    ],
)
def test_bad_options(options: LayoutOptions, path: str) -> None:
    with pytest.raises(OptionsError) as caught:
        place(PAIR, options)
    assert caught.value.path == (path,)
    assert caught.value.remedy


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SolveOptions]:
    """The arguments of each call of the solver."""
    seen: list[SolveOptions] = []

    def watched(found: LayoutProblem, *, options: SolveOptions, **more: Any) -> Outcome:
        seen.append(options)
        return solve(found, options=options, **more)

    monkeypatch.setattr("solver.placement.solve", watched)
    return seen


def test_options_reach_the_solver(asked: list[SolveOptions]) -> None:
    rules, cancel = Rules(peel=False), Event()
    options = LayoutOptions(work=10**6, seed=7, threads=1, race=True, target_gap=0.5, rules=rules)
    place(PAIR, options, progress=print, cancel=cancel)
    expected = SolveOptions(10**6, 7, 1, True, 0.5, False, rules, print, cancel)
    assert asked == [expected]


def test_what_ends_the_search(asked: list[SolveOptions]) -> None:
    """Its own work, or only the deadline; a capacity as soon as it is met."""
    place(PAIR)
    place(PAIR, LayoutOptions(deadline_seconds=9))
    place(PAIR, LayoutOptions(deadline_seconds=9, work=5))
    place(PAIR, LayoutOptions(capacity=99))
    assert [options.work for options in asked] == [SolveOptions().work, None, 5, SolveOptions().work]
    assert [options.fit for options in asked] == [False, False, False, True]


def test_progress_ends_at_the_answer() -> None:
    """Peaks only fall, bounds only rise, and the last of both is what the layout says."""
    news: list[Progress] = []
    for seed in range(5):
        found = tight_problem(random.Random(seed))
        news.clear()
        made = place(found, progress=news.append)
        assert all(now.incumbent <= before.incumbent for before, now in pairwise(news))
        assert all(now.bound >= before.bound for before, now in pairwise(news))
        assert not news or news[-1].incumbent == made.layout.peak


def test_cancelled_before_it_began() -> None:
    """The best so far is still a layout."""
    cancel = Event()
    cancel.set()
    found = random_problem(random.Random(9), 60, 20, 50)
    made = place(found, cancel=cancel)
    assert find_violations(found, made.layout) == ()


@pytest.mark.parametrize(
    ("in_time", "message", "path"),
    [(True, "found no layout", "solver"), (False, "Time ran out", "deadline_seconds")],
)
@pytest.mark.parametrize("capacity", [None, 0, 10**9])
def test_a_solver_without_an_answer_is_no_question_of_capacity(
    monkeypatch: pytest.MonkeyPatch, capacity: int | None, in_time: bool, message: str, path: str
) -> None:
    nothing = Outcome(Status.UNKNOWN, None, 10, 2, None, "skyline", 0.0, in_time)
    monkeypatch.setattr("solver.placement.solve", lambda *_args, **_more: nothing)
    with pytest.raises(OptionsError, match=message) as caught:
        place(PAIR, LayoutOptions("skyline", capacity))
    assert caught.value.path == (path,)
    assert caught.value.remedy


@grid("solver", SOLVERS)
def test_every_solver_has_a_layout_of_a_small_problem_however_short_the_time(solver: str) -> None:
    found = training_shaped(3, buffers=120)
    made = place(found, LayoutOptions(solver, deadline_seconds=0.0))
    assert find_violations(found, made.layout) == ()


@pytest.mark.parametrize("solver", ["skyline", "nntrainer-v1", "executorch-greedy"])
def test_a_planner_that_needs_more_time_than_there_is_says_so(solver: str) -> None:
    found = training_shaped(3, buffers=2 * ANSWERED)
    with pytest.raises(OptionsError, match=f"Time ran out before the solver '{solver}'"):
        place(found, LayoutOptions(solver, capacity=10**12, deadline_seconds=0.0))


def test_bad_problem() -> None:
    with pytest.raises(ProblemError) as caught:
        place(LayoutProblem((PAIR.buffers[0], PAIR.buffers[0])))
    assert caught.value.path == ("buffers", 1, "id")
