"""Sizes near 2**62: sums of all sizes go beyond 64 bits, loads and offsets do not."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from solver.errors import ProblemError
from solver.layout import (
    SOLVERS,
    Buffer,
    Deadline,
    Hole,
    LayoutProblem,
    Lifespan,
    Progress,
    Proof,
    SolveOptions,
    Status,
    check_problem,
    find_violations,
    in_pieces,
    max_load,
    solve,
)
from solver.layout.bounds.max_load import exact_max_load
from solver.layout.scaled import SAFE, scaled_down, too_large
from tests.support.buffers import layout, problem, random_problem
from tests.support.shapes import SHAPES, pinned

HALF = 2**62


def _random(seed: int, alignment: int = 1) -> LayoutProblem:
    rng = random.Random(seed)
    starts = [rng.randrange(60) for _ in range(80)]
    rows = [(rng.randrange(2**58, 2**59), start, start + rng.randint(1, 5)) for start in starts]
    return problem(*rows, alignment=alignment)


@pytest.mark.parametrize(
    ("p", "peak"),
    [
        (problem((HALF, 0, 2), (HALF, 2, 4), (HALF, 4, 6)), HALF),
        (problem((HALF, 0, 2), (HALF - 1, 1, 3), (HALF, 3, 4)), 2**63 - 1),
        (problem(*((2**61 + i, i, i + 3) for i in range(10))), 3 * 2**61 + 24),
        (problem((2**63 - 1, 0, 1), (5, 1, 2), alignment=2), 2**63 - 1),
        (problem((2**63 - 1, 0, 1), (5, 1, 2), alignment=4096), 2**63 - 1),
    ],
)
def test_what_fits_is_placed_and_proved(p: LayoutProblem, peak: int) -> None:
    outcome = solve(p)
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert (outcome.status, outcome.layout.peak, outcome.proof) == (Status.OPTIMAL, peak, Proof.MAX_LOAD)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alignment", [1, 64])
def test_layouts_are_as_good_as_of_small_sizes(seed: int, alignment: int) -> None:
    p = _random(seed, alignment)
    assert too_large(p)
    outcome = solve(p)
    assert outcome.layout is not None
    assert find_violations(p, outcome.layout) == ()
    assert outcome.layout.peak <= 1.01 * outcome.lower_bound


@pytest.mark.parametrize("seed", range(20))
def test_counting_in_units_changes_no_answer(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 8, 7, 20, (1, 2, 4))
    unit = 2**58
    large = LayoutProblem(
        tuple(replace(b, size=b.size * unit, alignment=b.alignment * unit) for b in p.buffers)
    )
    asked, smaller = solve(p), scaled_down(large)
    assert smaller.exact
    try:
        outcome = solve(large)
    except ProblemError:
        assert asked.lower_bound * unit >= 2**63
        return
    assert outcome.layout is not None
    assert asked.layout is not None
    assert outcome.layout.peak == asked.layout.peak * unit
    assert (outcome.status, outcome.lower_bound) == (asked.status, asked.lower_bound * unit)


def test_pins_and_holes_that_no_unit_divides_are_placed_exactly() -> None:
    pinned = LayoutProblem(
        (
            Buffer("a", HALF, Lifespan(0, 2), 1, 0),
            Buffer("b", HALF - 1, Lifespan(1, 3), 1, HALF),
            Buffer("c", HALF - 5, Lifespan(2, 9), 8),
        )
    )
    lent = LayoutProblem(
        (
            Buffer("a", HALF, Lifespan(0, 9), holes=(Hole(Lifespan(2, 5), 0, 3),)),
            Buffer("b", HALF + 3, Lifespan(3, 5)),
            Buffer("c", HALF - 1, Lifespan(6, 9)),
        )
    )
    for p in (pinned, lent):
        assert not scaled_down(p).exact
        outcome = solve(p)
        assert outcome.layout is not None
        assert find_violations(p, outcome.layout) == ()
        assert outcome.layout.peak == 2**63 - 1


def _enlarged(p: LayoutProblem, factor: int, rng: random.Random) -> LayoutProblem:
    """So many times the size, and a few bytes more, or less where something is pinned."""
    pinned = any(b.offset is not None for b in p.buffers)
    return LayoutProblem(
        tuple(
            replace(
                b,
                size=b.size * factor - rng.randrange(1000)
                if pinned
                else b.size * factor + rng.randrange(1000),
                offset=None if b.offset is None else b.offset * factor,
                holes=tuple(replace(h, low=h.low * factor, high=h.high * factor) for h in b.holes),
            )
            for b in p.buffers
        )
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_placed_as_well_as_its_small_one(shape: str) -> None:
    small = SHAPES[shape](300, 3)
    large = _enlarged(small, 2**61 // max_load(small).bytes, random.Random(3))
    assert too_large(large)
    asked, outcome = solve(small, solver="greedy"), solve(large, solver="greedy")
    assert asked.layout is not None
    assert outcome.layout is not None
    assert find_violations(large, outcome.layout) == ()
    assert max_load(large) == exact_max_load(in_pieces(large))
    gap, before = (o.layout.peak / o.lower_bound for o in (outcome, asked) if o.layout is not None)
    assert gap <= before + 0.01


@pytest.mark.parametrize("shape", ["any", "mixed alignments", "pins", "gaps"])
def test_a_short_deadline_is_kept(shape: str) -> None:
    """Of all processor time, for 20,000: .1 s, 50 ms and a microsecond a buffer are allowed elsewhere."""
    small = SHAPES[shape](20_000, 1)
    large = _enlarged(small, 2**61 // max_load(small).bytes, random.Random(1))
    solve(replace(large, buffers=large.buffers[:300]), deadline=Deadline.after(0.1))
    seconds = []
    for _ in range(3):
        began = time.process_time()
        outcome = solve(large, deadline=Deadline.after(0.1))
        seconds.append(time.process_time() - began)
        assert outcome.layout is not None
    assert min(seconds) <= 0.25


@pytest.mark.parametrize("seed", range(20))
def test_pins_take_all_grains_that_they_touch_and_no_two_claim_one(seed: int) -> None:
    rng = random.Random(seed)
    p, factor = pinned(random_problem(rng, 40, 12, 30), 0.7, seed), 2**55 + 1
    large = (replace(b, size=b.size * factor, offset=b.offset and b.offset * factor) for b in p.buffers)
    p = LayoutProblem((*large, Buffer("odd", 1, Lifespan(0, 1))))
    smaller = scaled_down(p)
    assert not smaller.exact
    taken = smaller.problem.buffers[len(smaller.free) :]
    check_problem(LayoutProblem(taken))
    for buffer in p.buffers:
        if buffer.offset is None:
            continue
        top = -(-(buffer.offset + buffer.size) // smaller.unit)
        for step in range(buffer.lifespan.start, buffer.lifespan.end):
            at = buffer.offset // smaller.unit
            for low, high in sorted(
                (b.offset, b.offset + b.size)
                for b in taken
                if b.offset is not None and b.lifespan.start <= step < b.lifespan.end
            ):
                at = high if low <= at < high else at
            assert at >= top


def test_sizes_that_fit_are_left_alone() -> None:
    assert not too_large(problem((SAFE, 0, 1)))
    assert too_large(problem((SAFE, 0, 1), (1, 5, 6)))


def test_an_incumbent_stands_until_something_better_is_found() -> None:
    p = problem((HALF, 0, 2), (HALF - 1, 1, 3), (HALF, 3, 4))
    start = layout(p, HALF - 1, 0, 0)
    outcome = solve(p, incumbent=start)
    assert outcome.layout is not None
    assert outcome.layout.peak == start.peak


def test_progress_is_told_in_bytes() -> None:
    heard: list[Progress] = []
    solve(_random(1), options=SolveOptions(progress=heard.append))
    assert heard
    assert all(news.incumbent >= news.bound > SAFE for news in heard)


def test_a_capacity_is_met_or_ruled_out() -> None:
    p = problem((HALF, 0, 2), (HALF - 9, 1, 3), (HALF, 5, 6))
    assert solve(replace(p, capacity=2**63 - 9)).status is Status.OPTIMAL
    assert solve(replace(p, capacity=2**63 - 10)).status is Status.INFEASIBLE


def test_a_planner_that_never_reuses_a_byte_runs_out_of_them() -> None:
    p = problem((HALF, 0, 2), (HALF, 2, 4), (HALF, 4, 6))
    assert "bump" in SOLVERS
    with pytest.raises(ProblemError, match="best one ends at 13,835,058,055,282,163,712"):
        solve(p, solver="bump")
