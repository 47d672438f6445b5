"""The compiled search by itself, no greedy layout before it: everything tiny, and what changes no optimum."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import combinations_with_replacement, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import ProblemError
from solver.layout import (
    Buffer,
    LayoutProblem,
    Lifespan,
    Outcome,
    SolveOptions,
    Status,
    find_violations,
    max_load,
    solve,
)
from solver.layout.exact.capacity_search import CapacitySearch
from tests.support.buffers import best_peak, problem, solved
from tests.support.every import grid
from tests.support.oracle import GADGETS, sample, tightened, tiling

FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)
PLAIN = SolveOptions(threads=1, work=20_000_000)

#: Most buffers, largest size, steps: every problem of these, identical ones once.
SOME = ((1, 3, 3), (2, 3, 3), (3, 3, 3), (4, 2, 3))
TINY = SOME if not FUZZ else ((1, 4, 4), (2, 4, 4), (3, 3, 4), (4, 3, 3), (5, 2, 3))


def easy(p: LayoutProblem) -> bool:
    """Whether a fiftieth of the work settles it: then its like are settled as well, or something is wrong."""
    layout, proved = tightened(p, replace(PLAIN, work=400_000))
    return layout.peak == proved


#: A third of them with an optimum above the max-load bound.
VARIED = [*(problem(*rows) for rows in GADGETS[:6]), *filter(easy, map(sample, range(FUZZ or 12)))]


def test_most_samples_are_easy() -> None:
    assert len(VARIED) - 6 >= 0.8 * (FUZZ or 12)


def optimum(p: LayoutProblem) -> int:
    layout, proved = tightened(p, PLAIN)
    assert find_violations(p, layout) == ()
    assert layout.peak == proved
    return layout.peak


@pytest.mark.fuzz
@pytest.mark.parametrize(("count", "largest", "steps"), TINY)
def test_every_tiny_problem(count: int, largest: int, steps: int) -> None:
    spans = [(start, end) for start in range(steps) for end in range(start + 1, steps + 1)]
    kinds = [(size, start, end) for size in range(1, largest + 1) for start, end in spans]
    for rows in combinations_with_replacement(kinds, count):
        p = problem(*rows)
        assert optimum(p) == best_peak(p), rows


def moved(p: LayoutProblem, span: Callable[[Lifespan], Lifespan]) -> LayoutProblem:
    return LayoutProblem(tuple(replace(b, lifespan=span(b.lifespan)) for b in p.buffers))


def mirrored(p: LayoutProblem) -> LayoutProblem:
    last = max(b.lifespan.end for b in p.buffers)
    return moved(p, lambda x: Lifespan(last - x.end, last - x.start))


def delayed(p: LayoutProblem, steps: int) -> LayoutProblem:
    return moved(p, lambda x: Lifespan(x.start + steps, x.end + steps))


def unaligned(p: LayoutProblem) -> LayoutProblem:
    return LayoutProblem(tuple(replace(b, alignment=1) for b in p.buffers))


def test_time_reversed() -> None:
    for p in VARIED:
        assert optimum(mirrored(p)) == optimum(p)


@pytest.mark.parametrize(("shift", "factor"), [(1, 1), (10**12, 1), (3, 7), (2**40, 10**6)])
def test_time_shifted_and_stretched(shift: int, factor: int) -> None:
    for p in islice(VARIED, 12):
        stretched = moved(p, lambda x: Lifespan(x.start * factor + shift, x.end * factor + shift))
        assert optimum(stretched) == optimum(p)


@pytest.mark.parametrize("factor", [2, 7, 2**40 + 1])
def test_sizes_scaled(factor: int) -> None:
    for p in islice(VARIED, 12):
        plain = unaligned(p)
        scaled = LayoutProblem(tuple(replace(b, size=b.size * factor) for b in plain.buffers))
        assert optimum(scaled) == factor * optimum(plain)


def test_buffers_in_another_order() -> None:
    rng = random.Random(1)
    for p in VARIED:
        assert optimum(LayoutProblem(tuple(rng.sample(p.buffers, len(p.buffers))))) == optimum(p)


def test_a_dead_buffer_added() -> None:
    """One that lives when no other does matters only if it is the largest of all."""
    for p in VARIED:
        last, alignment = max(b.lifespan.end for b in p.buffers), p.buffers[0].alignment
        for size in (1, 1000):
            lonely = Buffer("lonely", size, Lifespan(last + 1, last + 2), alignment)
            assert optimum(LayoutProblem((*p.buffers, lonely))) == max(size, optimum(p))


def test_time_split_where_nothing_crosses() -> None:
    """Two problems one after the other need what the larger one needs, whatever lies between."""
    for first, second in zip(VARIED[:9], VARIED[9:], strict=False):
        apart = max(optimum(unaligned(first)), optimum(unaligned(second)))
        last = max(b.lifespan.end for b in first.buffers)
        for pause in (0, 5):
            later = delayed(second, last + pause)
            renamed = (replace(b, id=f"second {b.id}") for b in later.buffers)
            assert optimum(unaligned(LayoutProblem((*first.buffers, *renamed)))) == apart


def test_one_that_always_lives_adds_its_size() -> None:
    for p in map(unaligned, VARIED):
        last = max(b.lifespan.end for b in p.buffers)
        for size in (1, 13):
            always = Buffer("always", size, Lifespan(0, last))
            assert optimum(LayoutProblem((*p.buffers, always))) == optimum(p) + size


@grid("seed", range(10))
def test_tilings_fill_their_rectangle(seed: int) -> None:
    rng = random.Random(seed)
    height = rng.randint(20, 400)
    assert optimum(tiling(rng, height, rng.randint(5, 20), rng.randint(8, 30))) == height


EDGES = {
    "one": (problem((5, 0, 1)), 5),
    "equal": (problem(*[(3, 0, 4)] * 12, *[(3, 4, 6)] * 12), 36),
    "equal in a chain": (problem(*[(3, k, k + 2) for k in range(20)] * 2), 12),
    "all overlapping": (problem(*[(1 + k % 5, k, 100 - k) for k in range(40)]), 8 * 15),
    "huge": (problem((2**62 - 1, 0, 2), (2**62 - 2, 1, 3)), 2**63 - 3),
    "huge one after the other": (problem((2**61, 0, 2), (2**61 - 2, 2, 3), (1, 0, 3)), 2**61 + 1),
    "huge and odd": (problem((2**61 + 1, 0, 2), (2**61 - 1, 1, 3), (2**61, 2, 4)), 2**62),
    "as large as can be": (problem((2**58 + 1, 0, 2), (2**58 - 1, 1, 3), (2**59, 2, 4)), 2**59 + 2**58 - 1),
}  # fmt: skip


@pytest.mark.parametrize(("p", "best"), list(EDGES.values()), ids=list(EDGES))
def test_edges(p: LayoutProblem, best: int) -> None:
    """The search itself takes numbers that are refused at the door."""
    assert optimum(p) == best
    if sum(buffer.size for buffer in p.buffers) <= 2**60:
        assert solve(p).lower_bound == best
    else:
        with pytest.raises(ProblemError, match=r"more than 2\*\*60"):
            solve(p)


def test_a_hundred_thousand_at_one_step() -> None:
    """Every layout without holes is the best; the default solver finds one and proves it."""
    p = LayoutProblem(tuple(Buffer(str(i), 1 + i % 977, Lifespan(3, 4)) for i in range(100_000)))
    outcome = solved(p)
    assert outcome.layout.peak == max_load(p).bytes == sum(b.size for b in p.buffers)
    assert find_violations(p, outcome.layout) == ()


def test_the_capacity_search_was_asked() -> None:
    """These tests would prove nothing if the default solver used another class than they do."""
    assert vars(import_module("solver.layout.portfolio"))["CapacitySearch"] is CapacitySearch


# ------------------------ Transformations of a problem that must not change, or must scale, what solvers find


SPANS = st.tuples(st.integers(0, 8), st.integers(1, 5)).map(lambda x: Lifespan(x[0], x[0] + x[1]))


@st.composite
def problems(draw: st.DrawFn, most: int = 12, alignments: tuple[int, ...] = (1,)) -> LayoutProblem:
    """Small problems; pins never conflict, because at most one buffer is pinned."""
    count = draw(st.integers(1, most))
    rows = [
        Buffer(f"b{i}", draw(st.integers(1, 20)), draw(SPANS), draw(st.sampled_from(alignments)))
        for i in range(count)
    ]
    if len(alignments) > 1 and draw(st.booleans()):
        rows[0] = replace(rows[0], offset=rows[0].alignment * draw(st.integers(0, 9)))
    return LayoutProblem(tuple(rows))


def exact(problem: LayoutProblem) -> Outcome:
    outcome = solve(problem, solver="branch-and-bound")
    assert outcome.status is Status.OPTIMAL
    return outcome


@given(problems(alignments=(1, 4, 16)), st.sampled_from(["portfolio", "greedy", "wic", "first-fit", "bump"]))
def test_every_layout_is_valid_between_bound_and_sum(problem: LayoutProblem, solver: str) -> None:
    outcome = solved(problem, solver=solver)
    most = sum(b.size + b.alignment for b in problem.buffers) + max(b.offset or 0 for b in problem.buffers)
    assert max_load(problem).bytes <= outcome.lower_bound <= outcome.layout.peak <= most
    assert (outcome.status is Status.OPTIMAL) == (outcome.layout.peak == outcome.lower_bound)
    assert (outcome.proof is None) == (outcome.status is not Status.OPTIMAL)


@given(problems(most=5, alignments=(1, 2, 8)))
def test_the_portfolio_never_claims_more_than_trying_everything_finds(problem: LayoutProblem) -> None:
    outcome = solved(problem)
    assert outcome.lower_bound <= best_peak(problem) <= outcome.layout.peak
    if outcome.status is Status.OPTIMAL:
        assert outcome.layout.peak == best_peak(problem)


@given(problems(), st.integers(1, 10**12), st.integers(1, 10**6))
def test_time_can_be_shifted_and_stretched(problem: LayoutProblem, shift: int, factor: int) -> None:
    later = moved(problem, lambda x: Lifespan(x.start * factor + shift, x.end * factor + shift))
    shifted, outcome = solve(later), solve(problem)
    assert shifted.layout == outcome.layout
    assert outcome.witness_step is not None
    assert shifted.witness_step == outcome.witness_step * factor + shift


@given(problems(), st.integers(1, 20))
def test_another_buffer_never_lowers_the_optimum(problem: LayoutProblem, size: int) -> None:
    more = LayoutProblem((*problem.buffers, Buffer("more", size, Lifespan(2, 6))))
    before, after = exact(problem).lower_bound, exact(more).lower_bound
    assert before <= after <= before + size
