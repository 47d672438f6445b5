"""Weights that a model stores in fewer bytes than they are planned in: found, and said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arenaplan
from solver.errors import StorageError
from solver.executor.initial import initial_value
from solver.graph import DType, Initializer, TensorType, TrainableGraph
from solver.graph.packing import unpack, unpack_rows
from solver.graph.storage import SCALES, Storage
from solver.importers.narrowed import Origin, stored_rows, widening_notes, with_stored_origins
from solver.importers.recorder import product_of_slices
from tests.support.every import grid
from tests.support.graphs import Sketch

_RANGES = {
    ("int4", False): (-8, 7),
    ("int4", True): (-3, 12),
    ("int8", False): (-128, 127),
    ("int8", True): (-20, 235),
}


def floats_of(storage: Storage, packed: Any, shape: tuple[int, int]) -> Any:
    floats = np.empty(shape, np.float32)
    unpack_rows(packed, storage, floats)
    return floats


@given(
    st.sampled_from(sorted(_RANGES)),
    st.sampled_from(["float16", "bfloat16", "float32"]),
    st.sampled_from([(1, 8), (3, 32), (16, 16), (5, 96)]),
    st.sampled_from(["groups", "columns", "rows", "tensor", "none"]),
    st.integers(0, 2**32 - 1),
)
def test_the_narrowest_storage_that_gives_the_same_bits(
    integers: tuple[str, bool], scale_type: str, shape: tuple[int, int], layout: str, seed: int
) -> None:
    rng, (rows, inner), (low, high) = np.random.default_rng(seed), shape, _RANGES[integers]
    groups = inner // 8 if layout in ("groups", "columns") else 1
    scales = rng.uniform(0.001, 3, (1, 1) if layout == "tensor" else (rows, groups)).astype(np.float32)
    if scale_type == "float16":
        scales = scales.astype(np.float16).astype(np.float32)
    elif scale_type == "bfloat16":
        scales = (scales.view(np.uint32) & 0xFFFF0000).view(np.float32)
    if layout == "none":
        scales = np.ones_like(scales)
    quotients = rng.integers(low, high, (rows, groups, inner // groups), endpoint=True)
    quotients[..., :2] = low, high
    weight = (quotients.astype(np.float32) * scales[..., np.newaxis]).reshape(shape)
    held = {"columns": scales.T, "none": np.full(3, 0.7, np.float32)}.get(layout, scales)
    match = stored_rows(weight, [rng.standard_normal(7).astype(np.float32), held])
    assert match is not None
    storage, packed = match
    assert (storage.kind, storage.zero_points) == integers
    assert SCALES[storage.scales] <= SCALES[scale_type]
    assert floats_of(storage, packed, shape).tobytes() == weight.tobytes()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_in_half_precision(kind: str) -> None:
    weight = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    if kind == "float16":
        weight = weight.astype(np.float16).astype(np.float32)
    else:
        weight = (weight.view(np.uint32) & 0xFFFF0000).view(np.float32)
    match = stored_rows(weight, [])
    assert match is not None
    assert match[0] == Storage(kind)
    assert floats_of(*match, (4, 6)).tobytes() == weight.tobytes()


def test_what_no_storage_gives() -> None:
    """A minimum that is no multiple of the scale; a scale that rounds twice; negative zeros."""
    rng = np.random.default_rng(4)
    integers, scales = rng.integers(0, 16, (4, 32)).astype(np.float32), rng.uniform(1, 2, (4, 1))
    scales = scales.astype(np.float32)
    assert stored_rows(integers * scales + np.float32(0.123), [scales]) is None
    assert stored_rows(integers * scales * np.float32(1 / 3), [scales]) is None
    match = stored_rows(-(integers * 0), [scales])
    assert match is not None
    assert match[0] == Storage("bfloat16")


def test_a_group_of_zeros() -> None:
    scales = np.array([[2.0, 0.0]], np.float32)
    weight = np.concatenate([np.arange(-8, 8), np.zeros(16)]).astype(np.float32)[np.newaxis] * 2
    match = stored_rows(weight, [scales])
    assert match is not None
    assert match[0] == Storage("int4", 16)
    assert floats_of(*match, (1, 32)).tobytes() == weight.tobytes()


def network(weight: Any) -> TrainableGraph:
    """A product with a constant of [inputs, outputs] that stands on the right."""
    sketch = Sketch()
    x, target = sketch.input("x", 4, weight.shape[0]), sketch.label("target", 4, weight.shape[1])
    scaled = sketch.op("Mul", [x, sketch.parameter("gain", weight.shape[0])], "scaled")
    sketch.parameter("w", *weight.shape, initializer=Initializer("values", data=weight.tobytes()))
    product = sketch.op("MatMul", [scaled, "w"], "product")
    sketch.op("MeanSquaredError", [product, target], "loss")
    return sketch.graph(trainable=["gain"])


def test_a_graph_trains_from_the_packed_bytes() -> None:
    rng = np.random.default_rng(6)
    scales = rng.uniform(0.1, 1, (4, 24)).astype(np.float16)
    weight = (rng.integers(-8, 8, (4, 16, 24)) * scales.astype(np.float32)[:, np.newaxis]).reshape(64, 24)
    weight = weight.astype(np.float32)
    scale = Origin("scales", "float16", scales.nbytes, values=lambda: scales)
    origin = Origin(parents=(Origin("packed", "uint8", weight.size // 2), scale))
    before = network(weight)
    graph = with_stored_origins(before, {"w": origin})
    operand = graph.operands["w"]
    assert operand.type.storage == Storage("int4", 16, axis=1)
    assert operand.type.nbytes == weight.size // 2 + scales.nbytes
    assert unpack(initial_value(operand), operand.type).tobytes() == weight.tobytes()
    plan = arenaplan.plan(graph)
    assert arenaplan.validate(graph, plan, steps=2).identical
    wide = Origin(parents=(Origin("w", "float32", weight.nbytes), scale))
    for origins in ({}, {"w": Origin("w", "float32", weight.nbytes)}, {"gain": wide}):
        assert with_stored_origins(before, origins).operands == before.operands


def test_scales_that_are_not_finite_are_named() -> None:
    weight, scales = np.ones((8, 8), np.float32), np.ones((8, 1), np.float32)
    scales[3], weight[:, 3] = np.nan, np.nan
    scale = Origin("layer.scales", "float32", 32, values=lambda: scales)
    origin = Origin(parents=(Origin("layer.q", "int8", 64), scale))
    with pytest.raises(
        StorageError, match=r"'layer\.scales', from which the model computes 'w', .* not finite"
    ):
        with_stored_origins(network(weight), {"w": origin})
    finite = replace(scale, values=lambda: np.ones((8, 1), np.float32))
    graph = with_stored_origins(network(weight), {"w": Origin(parents=(origin.parents[0], finite))})
    assert graph.operands["w"].type.storage == Storage("bfloat16", axis=1)


# ------------------------------------------------------------------------------------------------------ notes


FLOATS = TensorType((64, 64), DType.FLOAT32)


def test_half_precision() -> None:
    (note,) = widening_notes([(FLOATS, Origin("w", "float16", 8192))])
    assert "1 weight is stored in 8,192 bytes (float16) and planned in 16,384 bytes" in note
    assert "'w'" in note


def test_packed_integers_and_scales_count_once() -> None:
    """Two weights computed from one packed tensor: its bytes are there once."""
    packed, scales = Origin("packed", "uint8", 4096), Origin("scales", "float32", 256)
    unpacked = Origin(parents=(packed,))
    first = Origin(parents=(unpacked, scales))
    second = Origin(parents=(Origin(parents=(unpacked,)), scales))
    (note,) = widening_notes([(FLOATS, first), (FLOATS, second)])
    assert "2 weights are stored in 4,352 bytes (float32, uint8) and planned in 32,768 bytes" in note


def test_nothing_to_say() -> None:
    indices = TensorType((64,), DType.INT64)
    assert not widening_notes(
        [
            (FLOATS, Origin("plain", "float32", 16384)),
            (FLOATS, Origin(parents=(Origin("row", "float32", 256),))),
            (FLOATS, Origin(parents=(Origin("mask", "bool", 4096),))),
            (FLOATS, Origin(parents=(Origin("positions", "int64", 512),))),
            (FLOATS, Origin()),
            (indices, Origin("integers", "int8", 64)),
            (FLOATS, Origin("w", "int32", 65536)),
        ]
    )


def test_many_names() -> None:
    (note,) = widening_notes([(FLOATS, Origin(f"w{k}", "int8", 4096)) for k in range(5)])
    assert note.endswith("'w0', 'w1', 'w2' and 2 more.")


# ------------------------------------------------------------------------------------- products along an axis


Array = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@grid("axis", [0, 1])
@grid("size", [1, 2, 3, 7, 8, 30, 31])
def test_every_slice_counts_once(axis: int, size: int) -> None:
    called: list[str] = []

    def cut(x: Array, axis: int, begin: int, end: int) -> Array:
        called.append("cut")
        return x.take(range(begin, end), axis)

    def multiply(a: Array, b: Array) -> Array:
        called.append("multiply")
        assert a.shape == b.shape
        return a * b

    shape = [2, 2]
    shape[axis] = size
    x = np.random.default_rng(size).choice([1, 2, -1], shape).astype(np.int64)
    found = product_of_slices(x, axis, size, cut, multiply)
    assert np.array_equal(found, x.prod(axis=axis, keepdims=True))
    assert len(called) <= 5 * math.log2(size)
