from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from solver.layout import Buffer, LayoutProblem, Lifespan
from solver.layout.kernels.skyline_state import strides
from solver.layout.model.instance import Instance, layout_of, round_up
from tests.support.buffers import problem, random_problem


def test_a_section_ends_where_a_birth_follows_a_death() -> None:
    instance = Instance.of(problem((1, 0, 3), (1, 1, 7), (1, 5, 9), (1, 100, 101)))
    assert instance.start.tolist() == [0, 0, 1, 2]
    assert instance.end.tolist() == [1, 2, 2, 3]
    assert instance.sections == 3


def test_death_and_birth_at_the_same_step_do_not_meet() -> None:
    instance = Instance.of(problem((1, 0, 3), (1, 3, 4)))
    assert instance.end[0] <= instance.start[1]


@pytest.mark.parametrize("seed", range(30))
def test_sections_keep_conflicts_and_degrees(seed: int) -> None:
    p = random_problem(random.Random(seed), 20, 30, 9)
    instance = Instance.of(p)
    assert instance.sections <= len(p.buffers)
    for i, a in enumerate(p.buffers):
        meets = (instance.start < instance.end[i]) & (instance.end > instance.start[i])
        assert meets.tolist() == [a.lifespan.overlaps(b.lifespan) for b in p.buffers]
        assert instance.degree()[i] == meets.sum() - 1


def test_sizes_are_rounded_up_to_the_smallest_alignment_and_the_peak_is_exact() -> None:
    instance = Instance.of(problem((5, 0, 1), (17, 0, 1), alignment=16))
    assert instance.size.tolist() == [16, 32]
    assert instance.exact.tolist() == [5, 17]
    assert instance.unit == 16
    assert not instance.misaligning
    assert layout_of(instance, np.array([32, 0])).peak == 37


def test_alignments_that_sizes_do_not_keep_are_part_of_the_unit() -> None:
    rows = (Buffer("a", 96, Lifespan(0, 2), 64), Buffer("b", 24, Lifespan(0, 2), 8))
    instance = Instance.of(LayoutProblem(rows))
    assert instance.misaligning
    assert instance.unit == 8
    assert strides(instance, instance.unit).tolist() == [8, 1]
    whole = Instance.of(LayoutProblem((replace(rows[0], size=128), replace(rows[1], size=64))))
    assert not whole.misaligning
    assert whole.unit == 64
    assert strides(whole, whole.unit).tolist() == [1, 1]


def test_no_buffers() -> None:
    instance = Instance.of(LayoutProblem(()))
    assert (len(instance), instance.sections, instance.unit) == (0, 0, 1)
    assert not instance.pinned
    assert not instance.misaligning
    assert layout_of(instance, instance.offset).peak == 0


def test_round_up() -> None:
    assert [round_up(n, 16) for n in (0, 1, 16, 17, 2**62 + 1)] == [0, 16, 16, 32, 2**62 + 16]


def test_peak_load_seen_is_the_largest_load_of_a_life() -> None:
    for seed in range(30):
        instance = Instance.of(random_problem(random.Random(seed), 25, 40, 9))
        load = instance.load()
        lives = zip(instance.start.tolist(), instance.end.tolist(), strict=True)
        assert instance.peak_load_seen().tolist() == [int(load[start:end].max()) for start, end in lives]
