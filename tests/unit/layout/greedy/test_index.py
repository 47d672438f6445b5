"""The compiled index against plain NumPy: the same offsets, gap by gap."""

from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan, find_violations
from solver.layout.greedy.index import COMPILED_FROM, Kernel, Walk, kernel
from solver.layout.greedy.placement import Fit, best_fit, first_fit, place_in_numpy, place_once, place_until
from solver.layout.model.instance import FREE, Instance, layout_of
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import problem, random_problem, tight_problem
from tests.support.shapes import SHAPES, pinned
from tests.support.training_shaped import training_shaped

MODULE = kernel()
assert MODULE is not None


def walk(p: LayoutProblem) -> Walk:
    assert MODULE is not None
    return Walk(Instance.of(p), MODULE)


def with_pins(rng: random.Random, p: LayoutProblem) -> LayoutProblem:
    """Some pinned buffers, one above the other, anywhere among the others."""
    buffers, offset = list(p.buffers), 0
    for k in range(rng.randint(1, 4)):
        size, alignment, start = rng.randint(1, 20), rng.choice((1, 4)), rng.randrange(10)
        offset = -(-offset // alignment) * alignment + alignment * rng.randint(0, 4)
        span = Lifespan(start, start + rng.randint(1, 9))
        pinned = Buffer(f"pin{k}", size, span, alignment, offset)
        buffers.insert(rng.randrange(len(buffers) + 1), pinned)
        offset += size + 20
    return LayoutProblem(tuple(buffers))


def instance_of(seed: int) -> LayoutProblem:
    rng = random.Random(seed)
    match seed % 4:
        case 0:
            p = random_problem(rng, rng.randint(1, 60), rng.randint(2, 50), 40, (1, 4, 16))
        case 1:
            p = random_problem(rng, rng.randint(1, 80), rng.randint(2, 200), 6)
        case 2:
            p = tight_problem(rng)
        case _:
            p = random_problem(rng, rng.randint(1, 40), 12, 40, (8,))
    return with_pins(rng, p) if seed % 3 == 0 else p


@pytest.mark.parametrize("fit", [first_fit, best_fit])
@pytest.mark.parametrize("block", range(4))
def test_same_offsets_as_numpy(fit: Fit, block: int) -> None:
    """Pins, mixed alignments, limits and both fits, on 200 random instances a block."""
    for seed in range(200 * block, 200 * (block + 1)):
        rng, p = random.Random(seed), instance_of(seed)
        order = np.array(rng.sample(range(len(p.buffers)), len(p.buffers)))
        limit = rng.choice((MAX_BYTES, rng.randint(20, 200)))
        slow, slow_placed = place_in_numpy(Instance.of(p), order, fit, limit)
        fast = walk(p)
        assert fast.place(order, limit, best_fit=fit is best_fit) == slow_placed
        assert fast.offsets.tolist() == slow.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_same_offsets_on_training_steps_through_the_public_way(seed: int) -> None:
    p = training_shaped(seed, buffers=800)
    assert len(p.buffers) > COMPILED_FROM
    instance = Instance.of(p)
    order = np.argsort(-instance.size, kind="stable")
    fast, slow = (
        place_until(instance, order, first_fit),
        place_in_numpy(instance, order, first_fit, MAX_BYTES),
    )
    assert fast[0].tolist() == slow[0].tolist()
    assert fast[1] == slow[1] == len(order)


def test_huge_sizes_and_offsets() -> None:
    p = problem((2**62, 0, 2), (2**61, 1, 3), (2**60, 2, 4), (1, 0, 4))
    placing = walk(p)
    assert placing.place(np.arange(4), MAX_BYTES) == 4
    assert placing.offsets.tolist() == [0, 2**62, 0, 2**62 + 2**61]


def test_one_buffer_and_no_order() -> None:
    placing = walk(problem((5, 3, 9)))
    assert placing.place(np.arange(0), MAX_BYTES) == 0
    assert placing.offsets.tolist() == [FREE]
    assert placing.place(np.arange(1), MAX_BYTES) == 1
    assert placing.offsets.tolist() == [0]


def test_many_at_one_step_and_many_gaps_grow_the_memory() -> None:
    """All alive at once, then a comb of gaps beneath a roof: more strips than the index starts with."""
    teeth = tuple((4, 0, 2) if k % 2 else (4, 0, 4) for k in range(3000))
    p = problem(*teeth, *((4, 2, 4) for _ in range(1500)))
    instance = Instance.of(p)
    placing = walk(p)
    order = np.arange(len(p.buffers))
    assert placing.place(order, MAX_BYTES) == len(order)
    made = layout_of(instance, placing.offsets)
    assert made.peak == 12_000
    assert find_violations(p, made) == ()


def test_a_gap_of_very_many_strips_takes_little_memory() -> None:
    """A tower of small ones, and a large one beside it all: its gap has a strip for each of them."""
    many = 20_000
    p = problem(*((4, 0, 2) for _ in range(many)), (4 * many, 2, 4))
    placing = walk(p)
    assert placing.place(np.arange(many + 1), MAX_BYTES) == many + 1
    assert int(placing.offsets[-1]) == 0
    assert placing.nbytes < 600 * many


def test_a_walk_that_is_late_places_no_more() -> None:
    p = training_shaped(0, buffers=400)
    placing = walk(p)
    assert placing.place(np.arange(len(p.buffers)), MAX_BYTES, late=lambda: True) == 0
    assert set(placing.offsets.tolist()) == {FREE}


def test_a_walk_that_is_late_with_its_pins_goes_on_with_them() -> None:
    p = pinned(SHAPES["any"](2_000, 1), 0.5, 1)
    instance, placing, asked = Instance.of(p), walk(p), iter((False, True))
    order = np.argsort(-instance.size, kind="stable")
    assert placing.place(order, MAX_BYTES, late=lambda: next(asked)) == 0
    assert placing.place(order, MAX_BYTES) == len(order)
    plain, _ = place_in_numpy(instance, order, first_fit, MAX_BYTES)
    assert placing.offsets.tolist() == plain.tolist()


def test_without_compiled_code_numpy_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without numba gives the same layout."""
    monkeypatch.setattr("solver.layout.greedy.index.runs_compiled", lambda _: False)
    fresh = Kernel()
    assert fresh() is None
    p = training_shaped(1, buffers=400)
    instance, order = Instance.of(p), np.arange(len(p.buffers))
    expected = place_until(instance, order, first_fit)[0].tolist()
    monkeypatch.setattr("solver.layout.greedy.placement.kernel", fresh)
    assert place_until(instance, order, first_fit)[0].tolist() == expected


@pytest.mark.parametrize("loaded", [True, False])
def test_one_pass_is_the_same_with_and_without_compiled_code(
    monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    instance = Instance.of(training_shaped(3, buffers=700))
    order = np.argsort(-instance.size, kind="stable")
    expected = place_until(instance, order, first_fit)[0]
    assert kernel.loaded
    fresh = Kernel()
    if loaded:
        assert fresh() is not None
    monkeypatch.setattr("solver.layout.greedy.placement.kernel", fresh)
    assert (place_once(instance, order, Deadline()) == expected).all()
    assert fresh.loaded is loaded


def test_a_deadline_puts_what_is_left_above_what_was_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.layout.greedy.placement.FIRST_SECONDS", 0.0)
    p = training_shaped(2, buffers=3000)
    instance = Instance.of(p)
    order = np.argsort(-instance.size, kind="stable")
    whole = place_once(instance, order, Deadline())
    cut = place_once(instance, order, Deadline.after(0))
    assert find_violations(p, layout_of(instance, cut)) == ()
    assert layout_of(instance, whole).peak < layout_of(instance, cut).peak
