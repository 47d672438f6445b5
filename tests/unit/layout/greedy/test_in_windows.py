"""First fit in windows of time: what it promises, and that machine code does what the source says."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from solver.layout import Deadline, LayoutProblem, find_violations
from solver.layout.bounds.max_load import max_load, pinned_top
from solver.layout.greedy import in_windows as module
from solver.layout.greedy.in_time import in_order_of_time
from solver.layout.greedy.in_windows import FirstFitWindows, first_fit_windows, lowered_in_windows
from solver.layout.kernels import window_kernel as kernel
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.problem import Layout
from solver.native import Kernel
from tests.support.buffers import random_problem
from tests.support.shapes import SHAPES, pinned


def low(problem: LayoutProblem) -> int:
    return max(max_load(problem).bytes, pinned_top(problem))


def swept(problem: LayoutProblem) -> Layout:
    instance = Instance.of(problem)
    offsets = in_order_of_time(instance, Deadline())
    assert offsets is not None
    return layout_of(instance, offsets)


@pytest.mark.parametrize("seed", range(40))
def test_a_layout_stays_right_and_gets_no_higher(seed: int) -> None:
    """Any alignment, with pins or without, any layout to begin with."""
    rng = random.Random(seed)
    problem = random_problem(
        rng, rng.randint(1, 150), rng.randint(2, 300), 40, rng.choice(((1,), (1, 4, 16)))
    )
    problem = pinned(problem, 0.1, seed) if seed % 2 else problem
    instance, layout = Instance.of(problem), swept(problem)
    raised = np.array(layout.offsets) + np.where(instance.offset < 0, 16 * rng.randrange(4), 0)
    for begin in (layout, layout_of(instance, raised)):
        if find_violations(problem, begin):
            continue  # pins are in the way of what was raised
        lowered = lowered_in_windows(instance, begin, low(problem), Deadline())
        assert not find_violations(problem, lowered)
        assert low(problem) <= lowered.peak <= begin.peak


@pytest.mark.parametrize("shape", ["four lanes", "each meets two", "powers of two"])
@pytest.mark.parametrize("seed", range(3))
def test_where_few_live_at_once_the_bound_is_met(shape: str, seed: int) -> None:
    problem = SHAPES[shape](4000, seed)
    layout = swept(problem)
    lowered = lowered_in_windows(Instance.of(problem), layout, low(problem), Deadline())
    assert lowered.peak == low(problem) < layout.peak


def test_what_is_a_little_too_high_comes_close_to_the_bound() -> None:
    for shape in ("any", "mixed alignments", "pins", "heavy tail"):
        problem = SHAPES[shape](4000, 1)
        lowered = lowered_in_windows(Instance.of(problem), swept(problem), low(problem), Deadline())
        assert lowered.peak <= 1.03 * low(problem) < 1.03 * swept(problem).peak


def test_the_machine_code_does_what_the_source_says(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = kernel.lower_in_windows
    assert isinstance(compiled, Kernel)

    def plain(*arguments: Any) -> int:
        return int(compiled.function(*(getattr(one, "arrays", one) for one in arguments)))

    for seed, shape in product(range(3), ("any", "mixed alignments", "pins")):
        problem, made = SHAPES[shape](1500, seed), list[list[int]]()
        aim = (low(problem) + swept(problem).peak) // 2
        for function in (compiled, plain):
            monkeypatch.setattr(kernel, "lower_in_windows", function)
            offsets = np.array(swept(problem).offsets)
            FirstFitWindows(Instance.of(problem), offsets, kernel).lower(aim, 5, lambda: False)
            made.append(offsets.tolist())
        assert made[0] == made[1] != list(swept(problem).offsets)


def test_a_deadline_that_has_passed_changes_nothing() -> None:
    problem = SHAPES["four lanes"](4000, 1)
    layout = swept(problem)
    assert lowered_in_windows(Instance.of(problem), layout, low(problem), Deadline.after(0)) == layout


def test_without_compiled_code_a_layout_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "window_kernel", lambda: None)
    problem = SHAPES["four lanes"](400, 1)
    instance, layout = Instance.of(problem), swept(problem)
    assert lowered_in_windows(instance, layout, low(problem), Deadline()) is layout
    assert first_fit_windows(instance, np.array(layout.offsets)) is None


def test_windows_that_hold_too_much_are_left_alone() -> None:
    problem = SHAPES["staircase"](30_000, 1)
    layout = swept(problem)
    assert lowered_in_windows(Instance.of(problem), layout, 1, Deadline()) == layout


def test_it_ends_for_the_smallest_sizes() -> None:
    """Where halves of what is too high are nothing, and the bound is out of reach."""
    problem = SHAPES["chain, aligned"](3000, 2)
    small = replace(problem, buffers=tuple(replace(b, size=1 + b.size % 3) for b in problem.buffers))
    lowered = lowered_in_windows(Instance.of(small), swept(small), 1, Deadline())
    assert not find_violations(small, lowered)
