"""Numbers of gaps to sequences with their loads: compiled, replayed in plain Python, and as programs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solver.accounting import roofline, schedule_problem
from solver.compile import load
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.passes import Order
from solver.program import loads
from solver.schedules import rerun
from solver.schedules.recompute.sequences import Sequences
from solver.schedules.recompute.simulate import Simulator, replay
from solver.schedules.tables import AGAIN, BRIEF, HOLD
from solver.training import derive
from tests.support.graphs import batch_normalised, convolutional, residual
from tests.support.operator_graphs import attention, elementwise
from tests.support.schedule_problems import layered, problem
from tests.support.sequence_graphs import classifier

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
