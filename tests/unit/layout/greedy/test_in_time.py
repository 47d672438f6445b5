"""Orders of time, compared with the plain way of placing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan
from solver.layout.greedy import in_time as module
from solver.layout.greedy.in_time import Sweep, in_order_of_time, in_time, sweepable, time_kernel
from solver.layout.greedy.index import Walk, kernel
from solver.layout.greedy.placement import best_fit, first_fit, place_in_numpy
from solver.layout.model.instance import Instance, Integers
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import random_problem
from tests.support.shapes import SHAPES, pinned


def sweep_of(instance: Instance, *, backwards: bool) -> Sweep:
    compiled = time_kernel()
    assert compiled is not None
    return Sweep(instance, compiled, backwards=backwards)


def walk_of(instance: Instance, *, lists: bool | None = None) -> Walk:
    compiled = kernel()
    assert compiled is not None
    return Walk(instance, compiled, lists=lists)


def drawn(seed: int) -> tuple[Instance, Integers, bool]:
    """Some buffers, one of their orders of time, and whether it goes backwards. Ties fall as they like.

    Half of them have pins.
    """
    rng = random.Random(seed)
    alignments = rng.choice(((1,), (8,), (1, 4, 16)))
    problem = random_problem(rng, rng.randint(1, 60), rng.randint(2, 50), 40, alignments)
    instance = Instance.of(pinned(problem, rng.choice((0.05, 0.5, 1.0)), seed) if seed % 2 else problem)
    backwards, ties = rng.random() < 0.5, np.array([rng.random() for _ in range(len(instance))])
    return instance, np.lexsort((ties, -instance.end if backwards else instance.start)), backwards


@pytest.mark.parametrize("block", range(4))
def test_a_sweep_gives_the_offsets_of_numpy(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both directions, both fits, any alignment and limit, many lives beyond the horizon or none: 200 random
    problems a block.
    """
    if block % 2:
        monkeypatch.setattr(module, "BEYOND", 2)
        monkeypatch.setattr(module, "HORIZON", 1)
    for seed in range(200 * block, 200 * (block + 1)):
        instance, order, backwards = drawn(seed)
        limit = random.Random(seed).choice((MAX_BYTES, 150))
        for fit in (first_fit, best_fit):
            sweep = sweep_of(instance, backwards=backwards)
            plain, placed = place_in_numpy(instance, order, fit, limit)
            assert sweep.place(order, limit, best_fit=fit is best_fit) == placed
            assert sweep.offsets.tolist() == plain.tolist()


@pytest.mark.parametrize("shape", ["any", "mixed alignments", "chain", "pins", "staircase", "nested"])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_sweep_gives_the_offsets_of_the_index(shape: str, backwards: bool) -> None:
    instance = Instance.of(SHAPES[shape](3_000, 1))
    order = np.lexsort((instance.size, -instance.end if backwards else instance.start))
    for best in (False, True):
        sweep, walk = sweep_of(instance, backwards=backwards), walk_of(instance, lists=False)
        assert sweep.place(order, MAX_BYTES, best_fit=best) == len(instance)
        assert walk.place(order, MAX_BYTES, best_fit=best) == len(instance)
        assert sweep.offsets.tolist() == walk.offsets.tolist()


def test_what_is_an_order_of_time() -> None:
    for seed in range(100):
        instance, order, backwards = drawn(seed)
        assert in_time(instance, order) in ({1, -1} if backwards else {1})
    instance = Instance.of(SHAPES["any"](1_000, 1))
    assert in_time(instance, np.argsort(-instance.size)) == 0


def test_a_walk_goes_on_with_the_index_after_a_sweep() -> None:
    """Half of an order of time, then the other half by size: as if all had been placed by the index."""
    instance = Instance.of(SHAPES["any"](1_000, 1))
    order = np.argsort(instance.start, kind="stable")
    half, rest = order[:500], order[500:][np.argsort(-instance.size[order[500:]], kind="stable")]
    walks = [walk_of(instance), walk_of(instance, lists=False)]
    for walk in walks:
        assert walk.place(half, MAX_BYTES) == len(half)
        assert walk.place(rest, MAX_BYTES) == len(rest)
    assert walks[0].offsets.tolist() == walks[1].offsets.tolist()


@pytest.mark.parametrize("shape", ["any", "mixed alignments", "chain", "pins", "equal sizes", "nested"])
@pytest.mark.parametrize("buffers", [2, 3, 1500])
def test_it_is_first_fit_by_start_then_size(shape: str, buffers: int) -> None:
    instance = Instance.of(SHAPES[shape](buffers, 1))
    order = np.lexsort((-instance.size, instance.start))
    plain, _ = place_in_numpy(instance, order, first_fit, MAX_BYTES)
    found = in_order_of_time(instance, Deadline())
    assert found is not None
    assert found.tolist() == plain.tolist()


def test_a_long_life_brings_no_pins_into_the_reach_of_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, as a weight, a sweep still pays; without a horizon it would not."""
    short = pinned(SHAPES["any"](2_000, 1), 0.5, 1)
    weight = Buffer("weight", 8, Lifespan(0, 5_000))
    instance = Instance.of(LayoutProblem((*short.buffers, weight)))
    monkeypatch.setattr(module, "PINS_SEEN", 100)
    monkeypatch.setattr(module, "PINS_OF_LIVE", 0)
    assert sweepable(instance)
    assert in_order_of_time(instance, Deadline()) is not None
    monkeypatch.setattr(module, "BEYOND", 10**9)
    assert not sweepable(instance)
    assert in_order_of_time(instance, Deadline()) is None
    assert in_time(instance, np.argsort(instance.start, kind="stable")) == 0


def test_deadlines_give_nothing() -> None:
    instance = Instance.of(SHAPES["any"](100, 1))
    assert in_order_of_time(instance, Deadline.after(0)) is None
