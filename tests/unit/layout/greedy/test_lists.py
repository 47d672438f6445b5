"""Lists of what is placed against the index of free space: the same offsets, wherever a walk changes over."""

from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout.greedy.index import LISTED_BUFFERS, Walk, kernel, listed
from solver.layout.greedy.lists import Lists
from solver.layout.model.instance import Instance
from solver.layout.model.problem import MAX_BYTES
from tests.support.deep_shapes import EVERY
from tests.unit.layout.greedy.test_index import instance_of

MODULE = kernel()
assert MODULE is not None


@pytest.mark.parametrize("best_fit", [False, True])
@pytest.mark.parametrize("block", range(4))
def test_same_offsets_as_the_index(block: int, best_fit: bool) -> None:
    """Pins, mixed alignments, limits and both fits, on 100 random instances a block."""
    assert MODULE is not None
    for seed in range(100 * block, 100 * (block + 1)):
        rng, instance = random.Random(seed), Instance.of(instance_of(seed))
        order = np.array(rng.sample(range(len(instance)), len(instance)))
        limit = MAX_BYTES if seed % 2 else int(instance.load().max())
        walks = [Walk(instance, MODULE, lists=lists) for lists in (False, True)]
        assert len({walk.place(order, limit, best_fit=best_fit) for walk in walks}) == 1
        assert np.array_equal(walks[0].offsets, walks[1].offsets)


@pytest.mark.parametrize(
    "shape", ["mixed alignments, very deep", "pins, deep", "layers", "training", "nested"]
)
def test_a_walk_that_changes_over_gives_the_same(shape: str) -> None:
    assert MODULE is not None
    instance = Instance.of(EVERY[shape](3000, 1))
    order = np.random.default_rng(0).permutation(len(instance))
    walks = [Walk(instance, MODULE, lists=lists) for lists in (False, None, True)]
    for walk in walks:
        assert walk.place(order, MAX_BYTES, best_fit=True) == len(instance)
        assert np.array_equal(walk.offsets, walks[0].offsets)


def test_lists_begin_where_alignments_leave_slivers() -> None:
    """They take the place of the index, and less memory."""
    assert MODULE is not None
    instance = Instance.of(EVERY["mixed alignments, very deep"](3000, 1))
    walks = [Walk(instance, MODULE, lists=lists) for lists in (False, None)]
    for walk in walks:
        walk.place(np.arange(len(instance)), MAX_BYTES, best_fit=True)
    assert walks[1].nbytes < walks[0].nbytes


def test_lists_are_for_deep_problems_of_bounded_size() -> None:
    assert listed(Instance.of(EVERY["any, deep"](2000, 1)))
    assert not listed(Instance.of(EVERY["any"](2000, 1)))
    many = np.ones(LISTED_BUFFERS + 1, np.int64)
    assert not listed(Instance(0 * many, many, many, many, many, -many, 1))


@pytest.mark.parametrize("shape", ["any, very deep", "any, deep", "two lengths", "stack"])
def test_memory_of_lists_is_bounded(shape: str) -> None:
    instance = Instance.of(EVERY[shape](20_000, 1))
    assert Lists(instance).nbytes < 200 * len(instance)
