"""Compiled placing against plain NumPy: the same offsets, gap by gap."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from solver.layout import Buffer, LayoutProblem, Lifespan, find_violations
from solver.layout.greedy import index as module
from solver.layout.greedy.placement import place, place_in_numpy
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import problem, random_problem, tight_problem
from tests.support.shapes import SHAPES
from tests.support.training_shaped import training_shaped


def compiled(
    p: LayoutProblem, order: Integers, limit: int = MAX_BYTES, *, best_fit: bool = False
) -> tuple[Integers, int]:
    """Of any number of buffers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMPILED_FROM", 0)
        patch.setattr(module, "LOADED_FROM", 0)
        placed = module.place_compiled(Instance.of(p), order, limit, best_fit=best_fit, late=lambda: False)
    assert placed is not None
    return placed


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


@pytest.mark.parametrize("best_fit", [False, True])
@pytest.mark.parametrize("block", range(4))
def test_same_offsets_as_numpy(block: int, best_fit: bool) -> None:
    """Pins, mixed alignments, limits and both fits, on 200 random instances a block."""
    for seed in range(200 * block, 200 * (block + 1)):
        rng, p = random.Random(seed), instance_of(seed)
        order = np.array(rng.sample(range(len(p.buffers)), len(p.buffers)))
        limit = rng.choice((MAX_BYTES, rng.randint(20, 200)))
        slow, slow_placed = place_in_numpy(Instance.of(p), order, limit, best_fit=best_fit)
        fast, placed = compiled(p, order, limit, best_fit=best_fit)
        assert (placed, fast.tolist()) == (slow_placed, slow.tolist())


@pytest.mark.parametrize("best_fit", [False, True])
@pytest.mark.parametrize("shape", ["gaps", "gaps, aligned"])
@pytest.mark.parametrize("seed", range(3))
def test_same_offsets_as_numpy_with_holes(shape: str, seed: int, best_fit: bool) -> None:
    p = SHAPES[shape](400, seed)
    p = replace(p, buffers=(replace(p.buffers[0], offset=8192), *p.buffers[1:]))
    instance, order = Instance.of(p), np.random.default_rng(seed).permutation(400)
    whole = place_in_numpy(instance, order, best_fit=best_fit)[0]
    for limit in (MAX_BYTES, layout_of(instance, whole).peak - 1, 1):
        slow, slow_placed = place_in_numpy(instance, order, limit, best_fit=best_fit)
        fast, placed = compiled(p, order, limit, best_fit=best_fit)
        assert (placed, fast.tolist()) == (slow_placed, slow.tolist())


@pytest.mark.parametrize("seed", range(4))
def test_same_offsets_on_training_steps_through_the_public_way(seed: int) -> None:
    p = training_shaped(seed, buffers=800)
    assert len(p.buffers) > module.COMPILED_FROM
    instance = Instance.of(p)
    order = np.argsort(-instance.size, kind="stable")
    fast, slow = place(instance, order), place_in_numpy(instance, order)
    assert fast[0].tolist() == slow[0].tolist()
    assert fast[1] == slow[1] == len(order)


def test_huge_sizes_and_offsets() -> None:
    p = problem((2**62, 0, 2), (2**61, 1, 3), (2**60, 2, 4), (1, 0, 4))
    offsets, placed = compiled(p, np.arange(4))
    assert (offsets.tolist(), placed) == ([0, 2**62, 0, 2**62 + 2**61], 4)


def test_one_buffer_and_no_order() -> None:
    p = problem((5, 3, 9))
    assert compiled(p, np.arange(0))[0].tolist() == [FREE]
    assert compiled(p, np.arange(1))[0].tolist() == [0]


def test_many_at_one_step_and_many_gaps_grow_the_memory() -> None:
    """All alive at once, then a comb of gaps beneath a roof: more strips than the index starts with."""
    teeth = tuple((4, 0, 2) if k % 2 else (4, 0, 4) for k in range(3000))
    p = problem(*teeth, *((4, 2, 4) for _ in range(1500)))
    offsets, placed = compiled(p, np.arange(len(p.buffers)))
    assert placed == len(p.buffers)
    made = layout_of(Instance.of(p), offsets)
    assert made.peak == 12_000
    assert find_violations(p, made) == ()


def test_a_gap_of_very_many_strips() -> None:
    """A tower of small ones, and a large one beside it all: its gap has a strip for each of them."""
    many = 20_000
    p = problem(*((4, 0, 2) for _ in range(many)), (4 * many, 2, 4))
    offsets, placed = compiled(p, np.arange(many + 1))
    assert (placed, int(offsets[-1])) == (many + 1, 0)
