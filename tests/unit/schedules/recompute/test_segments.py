"""The forward pass in segments: what crosses a boundary is held, the rest is made again."""

from __future__ import annotations

from solver.schedules.recompute.search import in_segments
from solver.schedules.recompute.simulate import Simulator
from tests.support.schedule_problems import problem

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
