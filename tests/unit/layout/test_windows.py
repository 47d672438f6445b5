from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Buffer, Deadline, Layout, Lifespan, Problem, find_violations, max_load
from solver.layout.greedy import first_fit, place
from solver.layout.instance import FREE, Instance, Integers, layout_of
from solver.layout.windows import WINDOW_BUFFERS, improve_windows, repack
from tests.support.buffers import countdown, layout, problem, random_problem, tight_problem
from tests.support.training_shaped import training_shaped

#: Two of the short ones lie in the wrong order, so the third sticks out over the long one.
CLUMSY = problem((4, 0, 9), (3, 2, 4), (3, 2, 4), (6, 4, 6))
START = layout(CLUMSY, 0, 4, 7, 10)


def test_a_buffer_that_sticks_out_is_brought_below() -> None:
    instance = Instance.of(CLUMSY)
    result = improve_windows(instance, START, 10, repack, Deadline())
    assert (result.layout.peak, result.cut) == (10, False)
    assert find_violations(CLUMSY, result.layout) == ()


def test_a_window_shows_its_pins_merged_and_cut_to_it() -> None:
    seen: list[Instance] = []

    def solve_window(window: Instance, limit: int) -> Integers | None:
        seen.append(window)
        return None

    p = problem((4, 0, 9), (5, 0, 9), (3, 2, 6), (6, 4, 6), (2, 1, 3))
    start = layout(p, 0, 4, 9, 12, 12)
    assert improve_windows(Instance.of(p), start, 17, solve_window, Deadline()).layout is start
    first = seen[0]
    pinned = first.offset != FREE
    assert first.size[~pinned].tolist() == [6]
    assert first.size[pinned].tolist() == [12]
    assert (first.start >= 0).all()
    assert (first.end <= first.sections).all()


@pytest.mark.parametrize("seed", range(40))
def test_repairs_are_layouts_and_never_worse(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 40, 25, 30, (1, 4, 16)) if seed % 2 else tight_problem(rng)
    if seed % 3 == 0:
        p = Problem((*p.buffers, Buffer("pinned", 8, Lifespan(2, 8), 4, 4 * rng.randrange(10))))
    instance, bound = Instance.of(p), max_load(p).bytes
    offsets = place(instance, np.arange(len(instance)), first_fit)
    assert offsets is not None
    start = layout_of(instance, offsets)
    once = improve_windows(instance, start, bound, repack, Deadline())
    assert once == improve_windows(instance, start, bound, repack, Deadline())
    assert bound <= once.layout.peak <= start.peak
    assert find_violations(p, once.layout) == ()


def test_some_repairs_help() -> None:
    better = 0
    for seed in range(20):
        p = training_shaped(seed, buffers=250)
        instance, bound = Instance.of(p), max_load(p).bytes
        offsets = place(instance, np.argsort(instance.start, kind="stable"), first_fit)
        assert offsets is not None
        start = layout_of(instance, offsets)
        result = improve_windows(instance, start, bound, repack, Deadline())
        assert find_violations(p, result.layout) == ()
        better += result.layout.peak < start.peak
    assert better > 0


def test_at_the_bound_nothing_is_asked() -> None:
    def never(window: Instance, limit: int) -> Integers | None:
        raise AssertionError("there is nothing to improve")

    p = problem((4, 0, 2), (3, 0, 2))
    best = Layout((0, 4), 7)
    assert improve_windows(Instance.of(p), best, 7, never, Deadline()).layout is best


def test_a_passed_deadline_keeps_the_start() -> None:
    result = improve_windows(Instance.of(CLUMSY), START, 10, repack, countdown(0))
    assert (result.layout, result.cut) == (START, True)


def test_too_large_a_window_is_left_alone() -> None:
    p = problem(*((2, 0, 1) for _ in range(WINDOW_BUFFERS + 1)))
    start = layout(p, *(2 * k for k in range(len(p.buffers))))
    assert improve_windows(Instance.of(p), start, 0, repack, Deadline()).layout is start


def test_repack_gives_up_where_the_load_alone_is_too_much() -> None:
    assert repack(Instance.of(problem((4, 0, 2), (4, 1, 3))), 7) is None
