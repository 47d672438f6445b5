"""Steps that run again: the search, walks through sequences, their loads, and programs made of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from examples.gallery import GALLERY
from solver.accounting import ScheduleProblem, flops_of, roofline, schedule_problem
from solver.compile import load
from solver.documents import load_graph
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.passes import Order
from solver.program import Access, Kind, Program, loads
from solver.schedules import ScheduleProof, rerun
from solver.schedules.recompute import sequence_kernel as kernel
from solver.schedules.recompute.moments import Moments, tightest
from solver.schedules.recompute.search import cheapest, in_segments
from solver.schedules.recompute.sequences import Sequences, places_for
from solver.schedules.recompute.simulate import Simulator, replay
from solver.schedules.tables import AGAIN, BRIEF, HOLD, tables
from solver.training import derive
from solver.verify import prove
from tests.support.deep_graphs import DEEP
from tests.support.derived import at, reads, scratch, step, writes
from tests.support.every import some
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention, elementwise, recurrent
from tests.support.schedule_problems import exact, layered, problem
from tests.support.sequence_graphs import classifier
from tests.support.small_plans import placed

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


@pytest.mark.parametrize(("operations", "most"), some([(1_500, 0.111565)], beside=[(10_000, 0.108934)]))
def test_a_program_of_few_moments_is_solved_to_its_optimum(operations: int, most: float) -> None:
    """Of 29,000 steps CP-SAT needs seconds for the linear relaxation of one moment."""
    graph = load_graph(json.dumps(DEEP["transformer"](operations)).encode(), batch=16)
    program = Order().run(derive(graph))
    found = schedule_problem(program, roofline(program))
    schedule = cheapest(found, max(loads(program)[0]) * 6 // 10)
    assert schedule.optimal
    assert schedule.extra <= most * sum(found.cost)
    assert len(schedule.moments) == 1


# -------------------- Walks through sequences: exact figures, budgets that are kept, optima of small problems


def walked(found: ScheduleProblem, budget: int, seed: int = 0, most: int = 3_000) -> tuple[int, ...] | None:
    total = sum(found.cost)
    start = range(len(found.steps))
    walk = Sequences(found).walk
    return walk(start, budget, most, seed=seed, hot=total // 20, weight=total, deadline=Deadline())


def test_a_sequence_is_measured_as_it_is_replayed() -> None:
    program = Order().run(derive(GALLERY["lstm_classifier"].model().graph))
    found = schedule_problem(program, roofline(program))
    budget = max(loads(program)[0]) * 8 // 10
    sequence = walked(found, budget)
    assert sequence is not None
    peak, extra = Sequences(found).measure(sequence)
    assert peak == max(replay(found, sequence)) == max(loads(rerun(program, sequence))[0]) <= budget
    assert extra == sum(found.cost[t] for t in sequence) - sum(found.cost) > 0


def test_steps_over_the_budget_are_told_with_the_most_bytes() -> None:
    """The excess of repetitions in front of a step, for its sake, counts as that step's."""
    sequences = Sequences(problem([[], [0], [1], [0, 2]], size=[10, 1, 30, 1], cost=[1, 1, 1, 1]))
    assert sequences.overloads((0, 1, 2, 3), 39) == {2: 2, 3: 2}
    assert sequences.overloads((0, 1, 2, 0, 3), 39) == {3: 2}
    assert sequences.overloads((0, 1, 2, 0, 3), 40) == {3: 1}
    assert sequences.overloads((0, 1, 2, 0, 3), 41) == {}


def test_a_repetition_behind_a_change_of_what_it_reads_is_refused() -> None:
    found = problem([[], [0], [1], [0, 2]], size=[1, 1, 1, 1], cost=[1, 1, 1, 1])
    late = ScheduleProblem(
        **{name: getattr(found, name) for name in found.__slots__} | {"until": (2, 2, 2, 2)}
    )
    assert Sequences(found).measure((0, 1, 2, 0, 3))[0] > 0
    assert Sequences(late).measure((0, 1, 0, 2, 3))[0] > 0
    assert Sequences(late).measure((0, 1, 2, 0, 3))[0] == -1


def without_unread(found: ScheduleProblem, sequence: list[int]) -> list[int]:
    """The plain twin of what a walk takes out: repetitions that define nothing that is read, or kept."""
    first = {step: k for k, step in reversed(list(enumerate(sequence)))}
    wanted = {v for v, kept in enumerate(found.kept) if kept}
    left = []
    for k, number in reversed(list(enumerate(sequence))):
        if first[number] == k or wanted.intersection(found.writes[number]):
            wanted = wanted.difference(found.writes[number]).union(found.reads[number])
            left.append(number)
    return left[::-1]


def neighbour(rng: random.Random, sequence: list[int], steps: int) -> list[int]:
    """One to three repetitions leave, come anywhere behind their first runs, or both."""
    found = list(sequence)
    for _ in range(rng.randint(1, 3)):
        again = [k for k, step in enumerate(found) if step in found[:k]]
        if again and rng.random() < 0.5:
            del found[rng.choice(again)]
        if rng.random() < 0.6:
            step = rng.randrange(steps)
            found.insert(rng.randint(found.index(step) + 1, len(found)), step)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_neighbour_measured_beside_a_sequence_is_measured_as_it_is_replayed(seed: int) -> None:
    """With values of the caller's, scratch, steps with two results, and some that must not run late."""
    rng = random.Random(seed)
    drawn = layered(24, seed, width=4.0)
    steps = len(drawn.steps)
    reads = [(*row, steps + 3 * (t // 6)) if t % 6 == 4 else row for t, row in enumerate(drawn.reads)]
    reads[-1] += (2 * steps,)
    found = replace(
        drawn,
        writes=tuple((t, steps + t) if t % 3 == 0 else (t,) for t in range(steps)),
        reads=tuple(reads),
        values=tuple(f"v{v}" for v in range(2 * steps + 2)),
        size=tuple(rng.randint(1, 90) for _ in range(2 * steps + 2)),
        fed=(False,) * (2 * steps) + (True, True),
        kept=(*drawn.kept, *(False,) * (steps + 2)),
        maker=(
            *drawn.maker,
            *(t if drawn.maker[t] >= 0 and t % 3 == 0 else -1 for t in range(steps)),
            -1,
            -1,
        ),
        together=tuple(range(2 * steps + 2)),
        scratch=tuple(rng.randint(0, 20) for _ in range(steps)),
        scratch_again=tuple(rng.randint(0, 20) for _ in range(steps)),
        until=tuple(rng.choice((steps, steps, rng.randint(t + 1, steps))) for t in range(steps)),
    )
    budget = max(replay(found, tuple(range(steps)))) * 9 // 10
    given, here, there = tables(found), places_for(found), places_for(found)
    row, refused = there.tried.copy(), 0
    sequence, clean = [0, *range(steps)], False
    for _ in range(300):
        row[: len(sequence)] = sequence
        assert kernel.stand_at(row, len(sequence), budget, given, here) == max(replay(found, tuple(sequence)))
        tried = neighbour(rng, sequence, steps)
        there.tried[: len(tried)] = tried
        legal = kernel.measure_beside(row, len(sequence), len(tried), clean, budget, given, here, there)
        left = without_unread(found, tried)
        assert legal == (Sequences(found).measure(left)[0] >= 0)
        if not legal:
            refused += 1
            continue
        loads = replay(found, tuple(left))
        result = there.result
        assert there.tried[: result[kernel.LENGTH]].tolist() == left
        assert result[kernel.PEAK] == max(loads)
        assert result[kernel.OVER] == sum(max(0, load - budget) for load in loads)
        assert result[kernel.EXTRA] == sum(found.cost[t] for t in left) - sum(found.cost)
        if len(left) < 5 * steps:
            sequence, clean = left, True
    assert 0 < refused < 200


@pytest.mark.parametrize("seed", [3, 4, 6, 7, 8, 9])
def test_small_problems_come_to_their_optimum(seed: int) -> None:
    found = layered(10, seed)
    budget = max(replay(found, tuple(range(10)))) * 9 // 10
    best, sequence = exact(found, budget), walked(found, budget)
    assert (best is None) == (sequence is None)
    if best is not None and sequence is not None:
        assert Sequences(found).measure(sequence) == (max(replay(found, sequence)), best)


def test_the_same_walk_ends_at_the_same_sequence() -> None:
    found = layered(40, 2, width=4.0)
    budget = max(replay(found, tuple(range(40)))) * 9 // 10
    assert walked(found, budget) == walked(found, budget)


def test_a_walk_ends_with_its_time() -> None:
    found = layered(40, 2, width=4.0)
    walk = Sequences(found).walk
    assert walk(range(40), 1, 1_000, seed=0, hot=1, weight=1, deadline=Deadline(at=0.0)) is None


def test_the_transformer_near_its_floor_is_solved() -> None:
    """At 60 % of the peak, 1.6 % above the floor: 35.4 % of the step again, and none does with less."""
    program = Order().run(derive(GALLERY["transformer"].model().graph))
    found = schedule_problem(program, roofline(program))
    schedule = cheapest(found, max(loads(program)[0]) * 6 // 10)
    assert schedule.optimal
    assert schedule.extra <= 0.355 * sum(found.cost)


def test_moments_with_least_room_prove_what_fuller_ones_do_not() -> None:
    found = layered(12, 3)
    budget = max(replay(found, tuple(range(12)))) * 85 // 100
    best = exact(found, budget)
    moments = tightest(found, budget, 4)
    assert len(moments) <= 4
    relaxed = Moments(found, budget, moments).solve(1.0, Deadline())
    assert best is None or relaxed.bound <= best
    if best is not None:
        assert Moments(found, budget, moments, most=relaxed.bound - 1).solve(1.0, Deadline()).infeasible
        assert not Moments(found, budget, moments, most=best).solve(1.0, Deadline()).infeasible


# --------- Numbers of gaps to sequences with their loads: compiled, replayed in plain Python, and as programs


ROOT = Path(__file__).resolve().parents[4]

#: v0 is read by s1 and s4, with s2 and s3 in between.
WAITS = problem([[], [0], [1], [2], [0, 3]], size=[10, 1, 30, 1, 1], cost=[7, 1, 1, 1, 1])

#: The gap of v0 between s1 and s4: behind its definition (gap 0) and its first reader.
GAP = 1


def numbers(simulator: Simulator, **changes: int) -> np.ndarray:
    found = simulator.start()
    for place, number in changes.items():
        found[int(place[1:])] = number
    return found


@pytest.mark.parametrize(
    ("number", "sequence", "peak", "extra"),
    [
        (HOLD, (0, 1, 2, 3, 4), 41, 0),
        (AGAIN, (0, 1, 2, 3, 0, 4), 31, 7),
        (BRIEF, (0, 1, 2, 3, 0, 4), 31, 7),
    ],
)
def test_a_value_that_waits_is_held_or_made_again(
    number: int, sequence: tuple[int, ...], peak: int, extra: int
) -> None:
    simulator = Simulator(WAITS)
    chosen = numbers(simulator, g1=number)
    found = simulator.run(chosen)
    assert (found.peak, found.extra, found.events) == (peak, extra, len(sequence))
    assert simulator.sequence(chosen) == sequence
    assert simulator.loads(chosen) == replay(WAITS, sequence)


def test_again_stays_for_the_next_reader_and_brief_does_not() -> None:
    """v1 is wanted twice by repetitions between its own touches: once for v2, once for v3."""
    found = problem(
        [[], [0], [1], [1], [2], [3], [1]],
        size=[1, 1, 1, 1, 1, 1, 1],
        cost=[1, 10, 100, 1000, 1, 1, 1],
    )
    simulator = Simulator(found)
    start = [sum(map(len, found.touches[:v])) for v in range(7)]
    chosen = simulator.start()
    chosen[start[2]] = chosen[start[3]] = AGAIN  # v2 before s4, v3 before s5
    chosen[start[0] + 1] = AGAIN
    for number, extra in ((AGAIN, 1 + 10 + 100 + 1000), (BRIEF, 1 + 3 * 10 + 100 + 1000)):
        chosen[start[1] + 2] = number  # v1 behind s3, until s6
        assert simulator.run(chosen).extra == extra
    assert simulator.sequence(chosen) == (0, 1, 2, 3, 0, 1, 2, 4, 1, 3, 5, 1, 6)


def test_numbers_that_ask_for_a_weight_that_has_changed_have_no_sequence() -> None:
    late = problem([[], [0], [1], [0, 2]], size=[1] * 4, cost=[1] * 4)
    late = type(late)(**{name: getattr(late, name) for name in late.__slots__} | {"until": (2, 4, 4, 4)})
    simulator = Simulator(late)
    chosen = simulator.start()
    chosen[GAP] = AGAIN
    assert simulator.run(chosen).peak == -1


GRAPHS = [residual(), convolutional(), batch_normalised(), attention(), elementwise(), classifier()]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_any_numbers_give_the_loads_of_the_program_that_they_make(graph: TrainableGraph) -> None:
    program = Order().run(derive(graph))
    found = schedule_problem(program, roofline(program))
    simulator, rng = Simulator(found), random.Random(1)
    legal = 0
    for _ in range(40):
        chosen = simulator.start()
        for place in range(len(chosen)):
            if rng.random() < 0.2:
                chosen[place] = rng.choice((HOLD, AGAIN, BRIEF))
        run = simulator.run(chosen)
        if run.peak < 0:
            continue
        legal += 1
        sequence = simulator.sequence(chosen)
        assert simulator.loads(chosen) == replay(found, sequence) == loads(rerun(program, sequence))[0]
        assert run.extra == sum(found.cost[t] for t in sequence) - sum(found.cost)
    assert legal >= 10


@pytest.mark.parametrize("seed", range(5))
def test_repair_keeps_to_what_it_promises(seed: int) -> None:
    found = layered(40, seed, width=4.0)
    simulator = Simulator(found)
    peak = simulator.run(simulator.start()).peak
    budget = peak * 9 // 10
    repaired = simulator.repair(simulator.start(), budget, 5_000, Deadline())
    assert simulator.run(repaired).peak <= peak
    assert np.array_equal(simulator.repair(simulator.start(), budget, 5_000, Deadline()), repaired)


def test_a_deadline_that_has_passed_leaves_what_was_given() -> None:
    simulator, past = Simulator(layered(40, 1)), Deadline(at=0.0)
    start = simulator.start()
    assert np.array_equal(simulator.repair(start, 1, 1_000, past), start)


PLAIN = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None  # importing them fails
from solver.layout import Deadline
from solver.native import runs_compiled
from solver.schedules.recompute.kernel import simulate
from solver.schedules.recompute.sequences import Sequences
from solver.schedules.recompute.simulate import Simulator
from tests.support.schedule_problems import layered

problem = layered(20, 2)
simulator = Simulator(problem)
start = simulator.start()
budget = simulator.run(start).peak * 9 // 10
repaired = simulator.repair(start, budget, 300, Deadline())
walked = Sequences(problem).walk(range(20), budget, 300, seed=1, hot=50, weight=1000, deadline=Deadline())
assert not runs_compiled(simulate)
print([simulator.run(repaired), walked])
"""


def test_plain_python_gives_what_compiled_code_gives(tmp_path: Path) -> None:
    empty = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], cwd=ROOT, env=empty, capture_output=True, text=True, check=True
    )
    found = layered(20, 2)
    simulator = Simulator(found)
    budget = simulator.run(simulator.start()).peak * 9 // 10
    repaired = simulator.repair(simulator.start(), budget, 300, Deadline())
    walked = Sequences(found).walk(range(20), budget, 300, seed=1, hot=50, weight=1000, deadline=Deadline())
    assert walked is not None
    expected = [simulator.run(repaired), walked]
    assert done.stdout.strip() == str(expected)
    assert "without compiled code" in done.stderr


def test_everything_that_runs_compiled_is_loaded_at_once() -> None:
    assert load()


# ---------------- Repeated steps: new values, latest readers, scratch of their own, statistics that move once


def with_repetition(program: Program, label: str, before: str) -> Program:
    """Step `label` once more in front of step `before`."""
    sequence = list(range(len(program.steps)))
    sequence.insert(at(program, before), at(program, label))
    return rerun(program, sequence)


def test_a_sequence_without_repetitions_is_the_program_itself() -> None:
    program = derive(chain())
    assert rerun(program, range(len(program.steps))) is program


def test_a_repetition_writes_a_new_value_that_later_steps_read() -> None:
    program = derive(chain())
    again = with_repetition(program, "fc1:forward", "fc2:calc_gradient")
    found = step(again, "fc1:forward.again1")
    assert writes(again, found) == ["h1@again1"]
    assert found.reference == at(program, "fc1:forward")
    first = step(again, "fc1:forward")
    assert writes(again, first) == ["h1"]
    for t, each in enumerate(again.steps):
        latest = "h1" if t <= at(again, "fc1:forward.again1") else "h1@again1"
        assert {label for label in reads(again, each) if label.startswith("h1")} <= {latest, "h1@grad"}
    assert [s.level for s in again.steps] == list(range(len(again.steps)))


def test_runs_are_counted() -> None:
    program = derive(chain())
    t = at(program, "fc1:forward")
    again = rerun(program, [*range(3), t, t, *range(3, len(program.steps))])
    assert again.step_labels[3:5] == ("fc1:forward.again1", "fc1:forward.again2")
    assert writes(again, again.steps[4]) == ["h1@again2"]


def test_a_repetition_reads_the_latest_of_what_was_repeated() -> None:
    program = derive(chain((4, 4, 4, 4), 2))
    backward = at(program, "loss:calc_derivative.seed")
    sequence = [*range(backward), 0, 1, *range(backward, len(program.steps))]
    again = rerun(program, sequence)
    second = again.steps[backward + 1]
    assert writes(again, again.steps[backward])[0] in reads(again, second)


def test_scratch_is_its_own() -> None:
    program = derive(convolutional())
    again = with_repetition(program, "conv1:forward", "cce:forward")
    labels = scratch(program, step(program, "conv1:forward"))
    assert labels
    found = scratch(again, step(again, "conv1:forward.again1"))
    assert found == [f"{label}@again1" for label in labels]
    assert all(again.values[again.by_label[label]].kind is Kind.SCRATCH for label in found)


def test_running_statistics_move_once() -> None:
    program = derive(batch_normalised())
    again = with_repetition(program, "norm:forward", "mse:forward")
    found = {b.slot: b for b in step(again, "norm:forward.again1").bindings}
    for slot, label in (("x3", "mean"), ("x4", "variance")):
        assert found[slot].access is Access.SCRATCH
        value = again.values[found[slot].value]
        assert (value.label, value.kind) == (f"{label}@again1", Kind.SCRATCH)


def test_results_beside_the_wanted_one_are_new_too() -> None:
    """The gates and states of a cell: nothing writes over what is still there."""
    program = derive(classifier())
    label = next(
        label
        for t, label in enumerate(program.step_labels)
        if program.kernel(program.steps[t]) == "LSTMCell" and label.endswith(":forward")
    )
    again = with_repetition(program, label, "loss:calc_derivative.seed")
    before = writes(program, step(program, label))
    assert len(before) > 1
    assert writes(again, step(again, f"{label}.again1")) == [f"{found}@again1" for found in before]


@pytest.mark.parametrize("slots", [("a", "b"), ("b", "a")])
def test_the_order_of_values_is_that_of_the_sequence(slots: Sequence[str]) -> None:
    s = Sketch("two")
    x = s.input("x", 2, 2)
    for name in slots:
        s.op("Gemm", [x, s.parameter(f"w{name}", 2, 2)], name, f"fc{name}")
    s.op("MeanSquaredError", [s.op("Add", list(slots), "sum"), s.label("t", 2, 2)], "loss")
    program = derive(s.graph())
    again = rerun(program, [0, 1, 0, 1, *range(2, len(program.steps))])
    assert [v.label for v in again.values[len(program.values) :]] == [f"{name}@again1" for name in slots]


@pytest.mark.parametrize("graph", [chain(), convolutional(), batch_normalised(), recurrent(), classifier()])
def test_what_runs_again_in_front_of_the_backward_pass_is_proved(graph: object) -> None:
    program = derive(graph)  # type: ignore[arg-type]  # a graph, through parametrize
    seed = next(t for t, label in enumerate(program.step_labels) if label.endswith(".seed"))
    for t in range(seed - 1):
        again = rerun(program, [*range(seed), t, *range(seed, len(program.steps))])
        assert prove(program, placed(again)) == ()


# ---------------------- The forward pass in segments: what crosses a boundary is held, the rest is made again


#: s0 .. s3 forward, s4 .. s7 backward; each backward step reads the one before it and a forward value.
CHAIN = problem(
    [[], [0], [1], [2], [3], [2, 4], [1, 5], [0, 6]],
    size=[10, 10, 10, 10, 1, 1, 1, 1],
    cost=[1, 1, 1, 1, 1, 1, 1, 1],
    again=[True] * 4 + [False] * 4,
)


def sequence(parts: int) -> tuple[int, ...]:
    simulator = Simulator(CHAIN)
    (numbers,) = in_segments(CHAIN, simulator.start(), (parts,))
    return simulator.sequence(numbers)


def test_a_single_segment_is_made_again_as_a_whole() -> None:
    assert sequence(1) == (0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7)


def test_what_crosses_a_boundary_is_held() -> None:
    """Two segments: v0, v1 and v2; the boundary stands behind s2, and v2 is read across it."""
    assert sequence(2) == (0, 1, 2, 3, 4, 5, 0, 1, 6, 7)


def test_a_segment_for_each_step_runs_nothing_again() -> None:
    assert sequence(10) == tuple(range(8))
