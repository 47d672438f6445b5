"""Recomputation in place: no refusal denies a schedule that exists, and what a curve shows can be planned."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.accounting import ScheduleProblem, roofline, schedule_problem
from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.passes import Order, Recompute
from solver.passes.aliases import define_in_place
from solver.pipeline import plan, reference_of
from solver.plan import PlanOptions
from solver.program import loads
from solver.reports.records import recomputation
from solver.schedules import rerun
from solver.targets import aligned
from solver.training import derive
from solver.verdict import tradeoff
from solver.verdict.subject import Subject
from solver.verify import prove
from tests.support.every import ALL, some
from tests.support.random_graphs import random_graphs

#: Repetitions in schedules that are tried one by one.
_MOST_AGAIN = 2


def _schedules(problem: ScheduleProblem) -> Iterator[tuple[int, ...]]:
    """Every schedule in the order of first runs with two repetitions at most."""
    steps = range(len(problem.steps))
    again = [(q, t) for t in steps for q in steps if t < q <= problem.until[t]]
    for count in range(_MOST_AGAIN + 1):
        for chosen in combinations_with_replacement(sorted(again), count):
            yield tuple(s for q in steps for s in (*(t for at, t in chosen if at == q), q))


@settings(max_examples=10 if ALL else 6, deadline=None)
@given(random_graphs(3), st.booleans(), st.booleans())
def test_no_refusal_denies_a_schedule_that_exists(graph: TrainableGraph, in_place: bool, late: bool) -> None:
    program = Order().run(aligned(derive(graph), 64).program).at_same_residues()
    problem = schedule_problem(program, roofline(program), in_place=in_place)

    def peak(sequence: tuple[int, ...]) -> int:
        changed = rerun(program, sequence)
        return max(loads(define_in_place(changed) if in_place else changed)[0])

    least = min(map(peak, _schedules(problem)))
    message = ""
    try:
        Recompute(recompute=True, capacity=least, in_place=in_place).apply(
            program, Deadline(at=0.0) if late else Deadline()
        )
    except CapacityError as refused:
        message = str(refused)
    assert "No order of the steps" not in message
    assert "None that keeps the order of the steps exists" not in message


@settings(max_examples=30 if ALL else 10, deadline=None)
@given(random_graphs(16), st.sampled_from([4, 8]))
def test_every_point_of_a_curve_is_reached(graph: TrainableGraph, points: int) -> None:
    options = PlanOptions(in_place=True)
    subject = Subject(graph, options, Deadline())
    for point in tradeoff(graph, options, points=points).points[1:]:
        passed = Recompute(recompute=True, capacity=point.peak, in_place=True)
        behind = define_in_place(passed.run(subject.program))
        assert max(loads(behind)[0]) <= point.peak


@pytest.mark.parametrize("points", some([4], beside=[8]))
def test_the_least_point_of_the_transformer_is_planned_and_proved(points: int) -> None:
    """Without aliases no schedule keeps so few bytes, so budgets without them lead nowhere."""
    graph = GALLERY["transformer"].model().graph
    options = PlanOptions(in_place=True)
    least = tradeoff(graph, options, points=points).points[-1]
    made = plan(graph, PlanOptions(in_place=True, recompute=True, capacity=least.peak))
    assert made.arena_bytes <= least.peak
    assert prove(reference_of(graph, made.options), made) == ()
    again = recomputation(made)
    assert again is not None
    assert again.extra <= least.extra
    past = PlanOptions(in_place=True, recompute=True, capacity=least.peak, deadline_seconds=0.0)
    with pytest.raises(CapacityError) as refused:
        plan(graph, past)
    assert "No schedule was found" in refused.value.message
    assert "exists" not in refused.value.message
