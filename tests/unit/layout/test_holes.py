"""Holes inside lifespans: brute force on tiny problems, and what no solver may claim about them."""

from __future__ import annotations

import random
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest

from solver.errors import ProblemError
from solver.layout import (
    SOLVERS,
    Buffer,
    Deadline,
    Hole,
    Layout,
    LayoutProblem,
    Lifespan,
    Progress,
    Proof,
    SolveOptions,
    Status,
    find_violations,
    live_at,
    max_load,
    pieces,
    solve,
)
from solver.layout.check import check_problem
from solver.layout.greedy.placement import place
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.pieces import without_holes
from tests.support.buffers import smallest, solved
from tests.support.shapes import SHAPES


def hole(start: Any, end: Any, low: Any = 0, high: Any = 0) -> Hole:
    return Hole(Lifespan(start, end), low, high)


def buffer(name: str, size: int, start: int, end: int, *holes: Hole, alignment: int = 1) -> Buffer:
    return Buffer(name, size, Lifespan(start, end), alignment, None, holes)


#: b fits into the hole of a; the parts of c that a does not hold fit beside it.
NESTED = LayoutProblem((buffer("a", 8, 0, 9, hole(3, 6)), buffer("b", 8, 3, 6)))
BESIDE = LayoutProblem((buffer("a", 8, 0, 9, hole(3, 6, 0, 2)), buffer("b", 6, 3, 6)))


def random_holed(rng: random.Random) -> LayoutProblem:
    made: list[Buffer] = []
    for k in range(rng.randint(1, 5)):
        start = rng.randrange(5)
        end, size = rng.randint(start + 1, 8), rng.randint(1, 4)
        alignment = rng.choice((1, 1, 1, 2, 4))
        holes: list[Hole] = []
        at = start
        while at < end and rng.random() < 0.7:
            begin = rng.randint(at, end)
            stop = rng.randint(begin, end)
            if begin < stop and (begin, stop) != (start, end):
                low = rng.randint(0, size)
                holes.append(hole(begin, stop, low, rng.randint(low, size)))
            at = stop + 1
        made.append(Buffer(f"b{k}", size, Lifespan(start, end), alignment, None, tuple(holes)))
    return LayoutProblem(tuple(made))


def optimum(problem: LayoutProblem) -> int:
    best = smallest(problem)
    assert best is not None
    return best


@pytest.mark.parametrize("block", range(4))
def test_optimum_by_brute_force(block: int) -> None:
    above = 0
    for seed in range(15 * block, 15 * (block + 1)):
        p = random_holed(random.Random(seed))
        best, outcome = optimum(p), solve(p)
        assert outcome.layout is not None
        assert find_violations(p, outcome.layout) == ()
        assert outcome.status is Status.OPTIMAL, seed
        assert outcome.layout.peak == outcome.lower_bound == best, seed
        above += best > max_load(p).bytes
        fits = solved(replace(p, capacity=best), options=SolveOptions(fit=True))
        assert fits.layout.peak == best
        if best > 1:
            assert solve(replace(p, capacity=best - 1)).status is Status.INFEASIBLE, seed
    assert above > 0


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_no_solver_claims_too_much(solver: str) -> None:
    for seed in range(3):
        p = random_holed(random.Random(1000 + seed))
        best, outcome = optimum(p), solve(p, solver=solver)
        assert outcome.lower_bound <= best
        if outcome.layout is not None:
            assert find_violations(p, outcome.layout) == ()
            assert outcome.layout.peak >= best
            assert (outcome.status is Status.OPTIMAL) == (outcome.layout.peak == outcome.lower_bound)
        assert solve(replace(p, capacity=best), solver=solver).status is not Status.INFEASIBLE


@pytest.mark.parametrize("p", [NESTED, BESIDE])
@pytest.mark.parametrize("solver", ["portfolio", "greedy", "search", "cp-sat"])
def test_others_lie_in_a_hole(p: LayoutProblem, solver: str) -> None:
    outcome = solved(p, solver=solver)
    assert outcome.layout.peak == 8
    assert outcome.proof is Proof.MAX_LOAD
    assert find_violations(without_holes(p), outcome.layout) != ()


def test_the_load_is_that_of_the_pieces() -> None:
    assert max_load(BESIDE).bytes == 8
    assert [(b.id, b.size) for b in live_at(BESIDE, 4)] == [("a", 2), ("b", 6)]
    assert [b.id for b in live_at(NESTED, 4)] == ["b"]
    assert [(p.owner, p.low, p.high) for p in pieces(BESIDE)] == [(0, 0, 8), (0, 0, 2), (0, 0, 8), (1, 0, 6)]


def test_a_hole_that_holds_everything_changes_nothing() -> None:
    p = LayoutProblem((buffer("a", 8, 0, 9, hole(3, 6, 0, 8)), buffer("b", 6, 3, 6)))
    assert solve(p).lower_bound == 14
    assert solve(without_holes(p)).lower_bound == 14


def test_overlap_in_a_hole_is_none_and_beside_it_is_one() -> None:
    assert find_violations(BESIDE, Layout((0, 2), 8)) == ()
    (wrong,) = find_violations(BESIDE, Layout((0, 1), 8))
    assert (wrong.rule, wrong.buffers) == ("overlap", ("a", "b"))
    assert wrong.detail == "both hold bytes [1, 2) during steps [3, 6)"
    (wrong,) = find_violations(replace(NESTED, capacity=7), Layout((0, 0), 8))[:1]
    assert wrong.rule == "capacity"


def test_pins_that_only_holes_keep_apart() -> None:
    a = replace(NESTED.buffers[0], offset=0)
    p = LayoutProblem((a, replace(NESTED.buffers[1], offset=0), buffer("c", 3, 0, 9)))
    outcome = solve(p)
    assert outcome.layout == Layout((0, 0, 8), 11)
    assert outcome.status is Status.OPTIMAL
    for solver in SOLVERS:
        found = solve(p, solver=solver)
        assert found.layout is None or find_violations(p, found.layout) == ()


def test_incumbents_count_where_they_use_holes() -> None:
    outcome = solve(NESTED, solver="bump", incumbent=Layout((0, 0), 8))
    assert outcome.layout == Layout((0, 0), 8)
    assert outcome.status is Status.OPTIMAL


def holed_step(buffers: int, seed: int, kept: int = 0) -> LayoutProblem:
    """Activations that are offloaded between forward and backward, but for some bytes."""
    rng, made = random.Random(seed), []
    for k in range(buffers):
        start = rng.randrange(2 * buffers)
        end = start + rng.randint(4, buffers)
        size = rng.randint(kept + 1, 1000)
        away = (hole(start + 1, end - 1, 0, kept),) if end > start + 2 else ()
        made.append(buffer(f"b{k}", size, start, end, *away))
    return LayoutProblem(tuple(made))


def test_hundreds_make_use_of_their_holes() -> None:
    p = holed_step(300, 1)
    outcome = solve(p)
    assert outcome.proof is Proof.MAX_LOAD
    assert 10 * outcome.lower_bound < max_load(without_holes(p)).bytes
    assert outcome == replace(solve(p), seconds=outcome.seconds)


def test_bytes_that_are_kept_stand_in_the_way() -> None:
    """The bound takes them for movable."""
    p = holed_step(16, 1, kept=1)
    outcome = solved(p)
    assert outcome.lower_bound < outcome.layout.peak < max_load(without_holes(p)).bytes
    assert outcome == replace(solve(p), seconds=outcome.seconds)


def test_placing_in_an_order_fills_the_lowest_place() -> None:
    instance = Instance.of(BESIDE)
    for order, expected in (((0, 1), Layout((0, 2), 8)), ((1, 0), Layout((6, 0), 14))):
        offsets, placed = place(instance, np.array(order))
        assert (layout_of(instance, offsets), placed) == (expected, 2)
    assert place(instance, np.array((1, 0)), 13)[1] == 1
    assert place(instance, np.array((0, 1)), late=lambda: True)[1] == 0


def test_steps_and_sizes_near_the_largest() -> None:
    far = 2**63 - 10
    p = LayoutProblem(
        (buffer("a", 2**58, far, far + 9, hole(far + 3, far + 6)), buffer("b", 2**57, far + 3, far + 6))
    )
    outcome = solved(p)
    assert outcome.layout.peak == 2**58


def test_progress_tells_the_bound_with_holes_and_deadlines_are_heeded() -> None:
    p, told = holed_step(24, 2, kept=1), list[Progress]()
    solve(p, options=SolveOptions(progress=told.append, work=1000))
    assert all(news.bound <= max_load(p).bytes for news in told)
    late = solved(p, deadline=Deadline.after(0))
    assert not late.deterministic
    cancel = Event()
    cancel.set()
    assert solve(p, options=SolveOptions(cancel=cancel)).layout is not None


def test_thousands_are_cut_short_at_a_deadline() -> None:
    """The first layout is of whole buffers: it is there before any placing in pieces."""
    p = holed_step(2000, 1, kept=1)
    outcome = solved(p, deadline=Deadline.after(0))
    assert not outcome.deterministic


@pytest.mark.parametrize("shape", ["gaps", "gaps, aligned"])
def test_all_solvers_that_place_into_holes_are_far_below_whole_buffers(shape: str) -> None:
    p = SHAPES[shape](1500, 2)
    whole = solved(p, solver="first-fit").layout
    for solver in ("portfolio", "greedy", "search"):
        outcome = solved(p, solver=solver)
        assert outcome.layout.peak < 0.9 * whole.peak


def test_padding_counts_where_all_pieces_begin_at_the_granule() -> None:
    """Three of 5 bytes at multiples of 4: the second at 8, the third at 16, which ends at 21."""
    held = [
        buffer(name, 5, 0, 9, hole(3, 6, 0, low), alignment=4)
        for name, low in zip("abc", (0, 1, 2), strict=True)
    ]
    assert max_load(LayoutProblem(tuple(held))).bytes == 21
    off = replace(held[0], holes=(hole(3, 6, 1, 2),))
    assert max_load(LayoutProblem((off, *held[1:]))).bytes == 15


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_holds_for_the_optimum_with_one_alignment(seed: int) -> None:
    p = random_holed(random.Random(seed))
    p = LayoutProblem(tuple(replace(b, alignment=4) for b in p.buffers[:4]))
    assert max_load(p).bytes <= optimum(p)


@pytest.mark.parametrize(("seed", "seconds"), [(0, 0.05), (0, 1.0), (5, 1.0)])
def test_very_many_with_pins_that_only_holes_keep_apart(seed: int, seconds: float) -> None:
    """A third is pinned where a layout had it that makes use of holes."""
    free = SHAPES["gaps"](1500, seed)
    former = solved(free, solver="greedy").layout
    chosen = set(random.Random(seed).sample(range(1500), 500))
    p = LayoutProblem(
        tuple(replace(b, offset=former.offsets[i]) if i in chosen else b for i, b in enumerate(free.buffers))
    )
    with pytest.raises(ProblemError):
        check_problem(without_holes(p))
    solved(p, deadline=Deadline.after(seconds))
