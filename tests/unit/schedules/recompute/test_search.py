"""The search: budgets that are kept, bounds below, proofs, and the same answer every time."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pytest

from examples.gallery import GALLERY
from solver.accounting import flops_of, roofline, schedule_problem
from solver.documents import load_graph
from solver.layout import Deadline
from solver.passes import Order
from solver.program import Program, loads
from solver.schedules import ScheduleProof
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import replay
from solver.training import derive
from tests.support.deep_graphs import DEEP
from tests.support.schedule_problems import exact, layered, problem

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


def test_an_order_that_fits_stays_as_it_is() -> None:
    found = layered(20, 1)
    peak = max(replay(found, tuple(range(20))))
    schedule = cheapest(found, peak)
    assert schedule.sequence == tuple(range(20))
    assert (schedule.extra, schedule.bound, schedule.proof) == (0, 0, ScheduleProof.ORDER)
    assert schedule.optimal
    assert schedule.peak == schedule.given_peak == peak


def test_the_cheapest_value_that_makes_room_is_made_again() -> None:
    """v0 and v1 both wait for s4; either is enough, and v1 is cheaper."""
    found = problem([[], [], [], [2], [0, 1, 3]], size=[10, 10, 30, 1, 1], cost=[9, 5, 1, 1, 1])
    schedule = cheapest(found, 49)
    assert schedule.sequence == (0, 1, 2, 3, 1, 4)
    assert (schedule.extra, schedule.bound, schedule.proof) == (5, 5, ScheduleProof.RELAXATION)
    assert schedule.optimal


def test_what_nothing_keeps_is_said_to_be_impossible() -> None:
    found = problem([[], [0], [1]], size=[10, 10, 10], cost=[1, 1, 1])
    schedule = cheapest(found, 19)
    assert schedule.impossible
    assert not schedule.fits
    assert not schedule.optimal
    assert schedule.peak == 20


def test_what_cannot_be_made_again_waits_for_a_repetition_that_reads_it() -> None:
    """v0 has no reader behind s1 but s1 itself, the second time."""
    again = [False, True, False, True, True]
    found = problem([[], [0], [], [2], [1, 3]], [1, 50, 60, 1, 1], [1, 7, 1, 1, 1], kept=[4], again=again)
    schedule = cheapest(found, 65)
    assert schedule.sequence == (0, 1, 2, 3, 1, 4)
    assert (schedule.extra, schedule.bound, schedule.peak) == (7, 7, 62)


@pytest.mark.parametrize("seed", range(10))
def test_small_problems_against_every_schedule(seed: int) -> None:
    found = layered(10, seed)
    peak = max(replay(found, tuple(range(10))))
    for share in (0.85, 0.95):
        budget = int(peak * share)
        best, schedule = exact(found, budget), cheapest(found, budget)
        if best is None:
            assert not schedule.fits
            continue
        assert not schedule.impossible
        assert schedule.bound <= best
        assert max(replay(found, schedule.sequence)) == schedule.peak
        if schedule.fits:
            assert schedule.peak <= budget
            assert schedule.extra >= best
            assert schedule.extra == sum(found.cost[t] for t in schedule.sequence) - sum(found.cost)


def test_the_same_problem_has_the_same_schedule() -> None:
    found = layered(60, 5, width=5.0)
    budget = max(replay(found, tuple(range(60)))) * 9 // 10
    assert cheapest(found, budget) == cheapest(found, budget)


def test_a_deadline_leaves_the_best_so_far() -> None:
    found = layered(60, 5, width=5.0)
    peak = max(replay(found, tuple(range(60))))
    schedule = cheapest(found, peak * 9 // 10, Deadline(at=0.0))
    assert not schedule.complete
    assert schedule.peak <= peak
    cancelled = Event()
    cancelled.set()
    assert not cheapest(found, peak * 9 // 10, Deadline(cancel=cancelled)).complete


def ordered(name: str) -> Program:
    return Order().run(derive(load_graph((EXAMPLES / f"{name}.json").read_bytes())))


@pytest.mark.parametrize(
    ("name", "budget", "most", "flops"),
    [
        ("mnist", 20_532_524, 0.0095713, 0.0067),
        ("mnist", 19_451_865, 0.0191425, 0.0133),
        ("mnist", 17_139_254, 0.0559022, 0.0512),
        ("mobilenet_v2", 359_866_713, 0.0169515, 0.003),
        ("mobilenet_v2", 239_911_142, 0.0699175, 0.030),
        ("mobilenet_v2", 201_325_433, 0.0919235, 0.048),
    ],
)
def test_examples_are_solved_to_a_proved_optimum(name: str, budget: int, most: float, flops: float) -> None:
    """Share of the step's modelled time and of its products; no schedule of this order is cheaper."""
    program = ordered(name)
    found = schedule_problem(program, roofline(program))
    schedule = cheapest(found, budget)
    assert schedule.optimal
    assert schedule.extra <= most * sum(found.cost)
    work = [flops_of(program, step) for step in program.steps]
    assert sum(work[t] for t in schedule.sequence) <= (1 + flops) * sum(work)


def test_what_is_nearly_proved_is_not_searched_for() -> None:
    """CP-SAT finds the answer at once, and would take seconds for the rest of the proof."""
    program = Order().run(derive(GALLERY["mobilenet_v2_bn"].model().graph))
    found = schedule_problem(program, roofline(program))
    schedule = cheapest(found, max(replay(found, tuple(range(len(found.steps))))) * 6 // 10)
    total = sum(found.cost)
    assert schedule.fits
    assert schedule.complete
    assert schedule.extra <= 0.106493 * total
    assert schedule.extra - schedule.bound <= total // 10_000


def test_a_program_of_few_moments_is_solved_to_its_optimum() -> None:
    """Of 29,000 steps CP-SAT needs seconds for the linear relaxation of one moment."""
    graph = load_graph(json.dumps(DEEP["transformer"](10_000)).encode(), batch=16)
    program = Order().run(derive(graph))
    found = schedule_problem(program, roofline(program))
    schedule = cheapest(found, max(loads(program)[0]) * 6 // 10)
    assert schedule.optimal
    assert schedule.extra <= 0.108934 * sum(found.cost)
    assert len(schedule.moments) == 1
