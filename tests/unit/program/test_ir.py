"""A program by itself: its defaults, its alignments and the names of its steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.program import Program, Space
from solver.schedules import rerun
from solver.training import derive
from tests.support.derived import with_steps
from tests.support.graphs import chain


def test_a_program_of_nothing() -> None:
    empty = Program("empty", (), (), (), (), (), ())
    assert (empty.period, empty.duration, empty.step_labels, empty.by_label) == (1, 0, (), {})


@pytest.mark.parametrize(
    ("alignments", "expected"),
    [((16,), (64,)), ((1, 128), (64, 128)), ((64,), (64,)), ((128, 256), (128, 256))],
)
def test_alignments_become_multiples_of_64(alignments: tuple[int, ...], expected: tuple[int, ...]) -> None:
    spaces = tuple(Space(f"space{k}", alignment) for k, alignment in enumerate(alignments))
    program = replace(derive(chain()), spaces=spaces)
    aligned = program.at_same_residues()
    assert tuple(space.alignment for space in aligned.spaces) == expected
    assert aligned == replace(program, spaces=aligned.spaces)
    assert (aligned is program) is (alignments == expected)


def test_repetitions_are_counted_and_named() -> None:
    program = derive(chain())
    again = rerun(program, [0, 1, 0, 0, *range(2, len(program.steps))])
    assert again.runs[:5] == (0, 0, 1, 2, 0)
    first = program.step_labels[0]
    assert again.step_labels[:4] == (first, program.step_labels[1], f"{first}.again1", f"{first}.again2")
    assert again.duration == len(program.steps) + 2


def test_copies_repeat_nothing() -> None:
    program = derive(chain())
    copies = with_steps(program, [replace(step, reference=None) for step in program.steps])
    assert set(copies.runs) == {0}
