"""Broadcasting: blocks cover every element once, and derivatives sum back to the operand's shape."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.executor.kernels.helpers import blocks
from solver.executor.kernels.helpers.blocks import block_views, run_all, sum_steps
from solver.graph.types import Array
from tests.support.one_operation import OneOperation


@st.composite
def broadcast(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and another that broadcasts to it."""
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=5)))
    ones = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    dropped = draw(st.integers(0, len(shape)))
    small = tuple(1 if one else size for one, size in zip(ones, shape, strict=True))
    return shape, small[dropped:]


@st.composite
def mutual(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast against each other."""
    sizes = draw(st.lists(st.integers(1, 4), max_size=4))
    pair = []
    for _ in range(2):
        ones = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
        full = tuple(1 if one else size for one, size in zip(ones, sizes, strict=True))
        pair.append(full[draw(st.integers(0, len(full))) :])
    return pair[0], pair[1]


def whole_numbers(shape: tuple[int, ...], start: int = 1) -> Array:
    """Small whole numbers: their sums are exact in any order."""
    return (np.arange(math.prod(shape), dtype=np.float64) % 97 + start).reshape(shape)


def summed(values: Array, shape: tuple[int, ...]) -> Array:
    padded = (1,) * (values.ndim - len(shape)) + shape
    axes = tuple(i for i, size in enumerate(padded) if size == 1)
    return np.asarray(values.sum(axis=axes, keepdims=True)).reshape(shape)


@given(broadcast(), st.integers(1, 40))
def test_blocks_cover_every_element_once(shapes: tuple[tuple[int, ...], tuple[int, ...]], size: int) -> None:
    shape, small = shapes
    counts, source = np.zeros(shape), whole_numbers(small)
    values = np.zeros(shape)
    with mock.patch.object(blocks, "BLOCK_ELEMENTS", size):
        for count, value, part in block_views(shape, (counts, values, source)):
            assert count.size <= size
            assert count.ndim == part.ndim
            count += 1
            value += part
    assert (counts == 1).all()
    assert np.array_equal(values, np.broadcast_to(source, shape))


@given(broadcast(), st.integers(1, 40))
def test_sums_over_broadcast_axes_are_exact(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], size: int
) -> None:
    shape, small = shapes
    source, target = whole_numbers(shape), np.full(small, np.nan)
    with mock.patch.object(blocks, "BLOCK_ELEMENTS", size):
        run_all(sum_steps(source, target, np.full(math.prod(small), np.nan)))()
    assert np.array_equal(target, summed(source, small))


@given(mutual(), st.sampled_from(["Add", "Sub", "Mul"]), st.integers(1, 20))
def test_derivatives_of_arithmetic_are_exact(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], type_: str, size: int
) -> None:
    a, b = (whole_numbers(shape, start) for shape, start in zip(shapes, (1, 2), strict=True))
    operation = OneOperation(type_, [a, b])
    dy = whole_numbers(operation.types[0].shape, 3)
    with mock.patch.object(blocks, "BLOCK_ELEMENTS", size):
        found = operation.backward(dy, 0, 1)
    left, right = {"Add": (dy, dy), "Sub": (dy, -dy), "Mul": (dy * b, dy * a)}[type_]
    assert np.array_equal(found[0], summed(left, a.shape))
    assert np.array_equal(found[1], summed(right, b.shape))
