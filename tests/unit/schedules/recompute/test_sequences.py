"""Walks through sequences: exact figures, budgets that are kept, optima of small problems."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from examples.gallery import GALLERY
from solver.accounting import ScheduleProblem, roofline, schedule_problem
from solver.layout import Deadline
from solver.passes import Order
from solver.program import loads
from solver.schedules import rerun
from solver.schedules.recompute import sequence_kernel as kernel
from solver.schedules.recompute.moments import Moments, tightest
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.sequences import Sequences, places_for
from solver.schedules.recompute.simulate import replay
from solver.schedules.tables import tables
from solver.training import derive
from tests.support.schedule_problems import exact, layered, problem


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
    for k, step in reversed(list(enumerate(sequence))):
        if first[step] == k or wanted.intersection(found.writes[step]):
            wanted = wanted.difference(found.writes[step]).union(found.reads[step])
            left.append(step)
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
