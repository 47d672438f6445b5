"""Transformations of a problem that must not change, or must scale, what solvers find."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from solver.layout import Buffer, LayoutProblem, Lifespan, Outcome, Status, find_violations, max_load, solve
from tests.support.buffers import best_peak, solved

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


def changed(problem: LayoutProblem, **lifespans: Lifespan) -> LayoutProblem:
    return LayoutProblem(tuple(replace(b, lifespan=lifespans[b.id]) for b in problem.buffers))


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


@given(problems())
def test_time_can_run_backwards(problem: LayoutProblem) -> None:
    spans = {b.id: Lifespan(20 - b.lifespan.end, 20 - b.lifespan.start) for b in problem.buffers}
    mirrored = changed(problem, **spans)
    assert max_load(mirrored).bytes == max_load(problem).bytes
    assert exact(mirrored).lower_bound == exact(problem).lower_bound


@given(problems(), st.integers(1, 10**12), st.integers(1, 10**6))
def test_time_can_be_shifted_and_stretched(problem: LayoutProblem, shift: int, factor: int) -> None:
    spans = {
        b.id: Lifespan(b.lifespan.start * factor + shift, b.lifespan.end * factor + shift)
        for b in problem.buffers
    }
    moved, outcome = solve(changed(problem, **spans)), solve(problem)
    assert moved.layout == outcome.layout
    assert outcome.witness_step is not None
    assert moved.witness_step == outcome.witness_step * factor + shift


@given(problems(), st.integers(2, 2**40))
def test_sizes_can_be_scaled(problem: LayoutProblem, factor: int) -> None:
    scaled = LayoutProblem(tuple(replace(b, size=b.size * factor) for b in problem.buffers))
    assert exact(scaled).lower_bound == factor * exact(problem).lower_bound


@given(problems(), st.data())
def test_the_order_of_buffers_does_not_matter_to_the_optimum(
    problem: LayoutProblem, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(problem.buffers))
    assert exact(LayoutProblem(tuple(shuffled))).lower_bound == exact(problem).lower_bound


@given(problems(), st.integers(1, 20))
def test_a_buffer_that_meets_nobody_changes_nothing_unless_it_is_the_largest(
    problem: LayoutProblem, size: int
) -> None:
    lonely = LayoutProblem((*problem.buffers, Buffer("lonely", size, Lifespan(100, 101))))
    assert exact(lonely).lower_bound == max(size, exact(problem).lower_bound)


@given(problems(), st.integers(1, 20))
def test_another_buffer_never_lowers_the_optimum(problem: LayoutProblem, size: int) -> None:
    more = LayoutProblem((*problem.buffers, Buffer("more", size, Lifespan(2, 6))))
    before, after = exact(problem).lower_bound, exact(more).lower_bound
    assert before <= after <= before + size


@given(problems(alignments=(1, 4)), st.data())
def test_an_offset_moved_into_a_conflict_is_named(problem: LayoutProblem, data: st.DataObject) -> None:
    outcome = solved(problem, solver="greedy")
    pairs = [
        (i, j)
        for i, a in enumerate(problem.buffers)
        for j, b in enumerate(problem.buffers)
        if i != j and a.lifespan.overlaps(b.lifespan)
    ]
    if not pairs:
        return
    i, j = data.draw(st.sampled_from(pairs))
    offsets = list(outcome.layout.offsets)
    offsets[i] = offsets[j] + data.draw(st.integers(1 - problem.buffers[i].size, problem.buffers[j].size - 1))
    found = find_violations(problem, replace(outcome.layout, offsets=tuple(offsets)))
    names = {problem.buffers[i].id, problem.buffers[j].id}
    assert any(v.rule == "overlap" and set(v.buffers) == names for v in found)
