"""Operators on random shapes: the backward step of a linear one is the adjoint; broadcasting sums back."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.executor.kernels.helpers import blocks
from solver.executor.kernels.helpers.blocks import block_views, run_all, sum_steps
from solver.graph.types import Array
from tests.support.one_operation import OneOperation

SIZES = st.integers(1, 7)
SEEDS = st.integers(0, 2**32 - 1)
BUDGETS = st.sampled_from([1, 200, 2**21])


def numbers(seed: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def assert_adjoint(operation: OneOperation, seed: int) -> None:
    x = operation.values[0]
    assert x is not None
    y = operation.forward()
    dy = numbers(seed + 1, y.shape)
    found = operation.backward(dy, 0)[0]
    assert np.sum(y * dy) == pytest.approx(np.sum(x * found), rel=1e-9, abs=1e-7)


@st.composite
def resizes(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any], list[int]]:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=4)))
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    coordinates = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": draw(st.sampled_from(coordinates)),
        "nearest_mode": draw(st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])),
        "antialias": 0 if mode == "nearest" else draw(st.integers(0, 1)),
    }
    return shape, attributes, [draw(st.integers(1, 12)) for _ in shape]


@given(resizes(), SEEDS, BUDGETS)
def test_resize(case: tuple[tuple[int, ...], dict[str, Any], list[int]], seed: int, budget: int) -> None:
    shape, attributes, sizes = case
    values = [numbers(seed, shape), None, None, np.array(sizes)]
    operation = OneOperation("Resize", values, scratch_budget=budget, **attributes)
    assert operation.types[0].shape == tuple(sizes)
    assert_adjoint(operation, seed)


@given(resizes(), SEEDS)
def test_resize_of_what_is_constant_is_constant(
    case: tuple[tuple[int, ...], dict[str, Any], list[int]], seed: int
) -> None:
    """Weights of every output add up to 1."""
    shape, attributes, sizes = case
    x = np.full(shape, float(seed % 9))
    found = OneOperation("Resize", [x, None, None, np.array(sizes)], **attributes).forward()
    np.testing.assert_allclose(found, seed % 9, rtol=1e-12, atol=1e-12)


@st.composite
def gathers(draw: st.DrawFn) -> tuple[tuple[int, ...], int, tuple[int, ...], int]:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=3)))
    index = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=2)))
    return shape, draw(st.integers(0, len(shape) - 1)), index, draw(st.sampled_from([1, 40]))


@given(gathers(), SEEDS)
def test_gather(case: tuple[tuple[int, ...], int, tuple[int, ...], int], seed: int) -> None:
    """Also many indices, which are added in groups."""
    shape, axis, index, repeat = case
    rng = np.random.default_rng(seed)
    picked = rng.integers(-shape[axis], shape[axis], (repeat, *index))
    assert_adjoint(OneOperation("Gather", [numbers(seed, shape), picked], axis=axis), seed)


@st.composite
def transposed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    groups, channels, filters = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    rank = draw(st.integers(1, 2))
    sizes, kernel = ([draw(st.integers(1, 5)) for _ in range(rank)] for _ in range(2))
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    attributes: dict[str, Any] = {
        "group": groups,
        "strides": tuple(strides),
        "dilations": tuple(draw(st.integers(1, 2)) for _ in range(rank)),
        "output_padding": tuple(draw(st.integers(0, stride - 1)) for stride in strides),
    }
    x = (draw(st.integers(1, 3)), groups * channels, *sizes)
    return x, (groups * channels, filters, *kernel), attributes


@given(transposed(), SEEDS, BUDGETS)
def test_transposed_convolution(
    case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], seed: int, budget: int
) -> None:
    """In X and in W, at any scratch budget."""
    x, w, attributes = case
    values = [numbers(seed, x), numbers(seed + 2, w)]
    operation = OneOperation("ConvTranspose", values, scratch_budget=budget, **attributes)
    assert_adjoint(operation, seed)
    y = operation.forward()
    dy = numbers(seed + 1, y.shape)
    assert np.sum(y * dy) == pytest.approx(np.sum(values[1] * operation.backward(dy, 1)[1]), abs=1e-7)


@st.composite
def pads(draw: st.DrawFn) -> tuple[tuple[int, ...], str, list[tuple[int, int]]]:
    mode = draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    longest = [{"reflect": size - 1, "wrap": size}.get(mode, 6) for size in shape]
    pairs = [(draw(st.integers(0, most)), draw(st.integers(0, most))) for most in longest]
    return shape, mode, pairs


@given(pads(), SEEDS)
def test_pad(case: tuple[tuple[int, ...], str, list[tuple[int, int]]], seed: int) -> None:
    """Forward it is NumPy's function of the same name."""
    shape, mode, pairs = case
    x = numbers(seed, shape)
    given_pads = np.array([before for before, _ in pairs] + [after for _, after in pairs])
    operation = OneOperation("Pad", [x, given_pads], mode=mode)
    np.testing.assert_array_equal(operation.forward(), np.pad(x, pairs, mode=mode))  # type: ignore[call-overload]  # a mode
    assert_adjoint(operation, seed)


# ----------------------------------------------------------------------------------------------- broadcasting


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
