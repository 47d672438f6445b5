"""Kernels that read stored weights, beside the elements that the bytes stand for; and quantisation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.graph.packing import unpack
from solver.graph.storage import Storage
from solver.graph.types import Array
from tests.support.every import every
from tests.support.one_operation import OneOperation, normal
from tests.support.operator_cases import CASES, STORAGES
from tests.support.operator_steps import Case

STORED = [case for case in CASES if case.stored]


def unpacked(case: Case, dtype: str) -> OneOperation:
    """The operation of `case` with the elements of its stored inputs, floats of this type."""
    packed = case.operation()
    values: list[Array | None] = []
    for i, value in enumerate(packed.values):
        if value is not None and i in case.stored:
            value = unpack(value, packed.node.input(i))
        floats = value is not None and value.dtype == np.float32
        values.append(np.asarray(value, dtype) if floats else value)
    return replace(case, values=tuple(values), stored={}).operation()


def results(operation: OneOperation, positions: tuple[int, ...], dtype: str) -> dict[str, Array]:
    """Y, and the derivatives at these positions."""
    dy = [normal(*type_.shape, dtype=dtype) for type_ in operation.types]
    derivatives = operation.backward(dy, *positions) if positions else {}
    outputs = {f"y{k}": value for k, value in enumerate(operation.forward_all())}
    return {**outputs, **{f"dx{i}": value for i, value in derivatives.items()}}


def test_one_tile_has_the_bits_of_the_elements() -> None:
    """Where rows are those of axis 0; of axis 1 the products take the matrix that is transposed in memory."""
    with every() as check:
        for case in STORED:
            if any(storage.axis for storage in case.stored.values()):
                continue
            operation = case.operation()
            tiles = [
                r.type.shape[0] for r in operation.kind.forward_scratch(operation.node) if r.name == "tile"
            ]
            rows = operation.node.input(1).shape
            if case.type != "Gather" and tiles != [rows[case.stored[1].axis]]:
                continue
            positions = tuple(sorted(operation.kind.differentiable(operation.node)))
            with check(case):
                found = results(operation, positions, "float32")
                expected = results(unpacked(case, "float32"), positions, "float32")
                assert {k: v.tobytes() for k, v in found.items()} == {
                    k: v.tobytes() for k, v in expected.items()
                }


def test_any_tiles_compute_what_float64_computes() -> None:
    with every() as check:
        for case in STORED:
            operation = case.operation()
            positions = tuple(sorted(operation.kind.differentiable(operation.node)))
            with check(case):
                found = results(operation, positions, "float32")
                expected = results(unpacked(case, "float64"), positions, "float64")
                for name, value in expected.items():
                    scale = float(np.abs(value).max())
                    np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * scale, err_msg=name)


def test_there_are_cases_of_one_tile_and_of_several() -> None:
    counts = set()
    for case in STORED:
        operation = case.operation()
        for request in operation.kind.forward_scratch(operation.node):
            if request.name == "tile":
                rows = operation.node.input(1).shape[case.stored[1].axis]
                counts.add((case.type, -(-rows // request.type.shape[0]) > 1))
    types = {case.type for case in STORED} - {"Gather"}
    assert types >= {"Gemm", "MatMul", "Conv", "ConvTranspose"}
    assert counts == {(type_, several) for type_ in types for several in (False, True)}


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_unpacking_allocates_nothing_of_the_size_of_a_tile(storage: Storage) -> None:
    """A tile is 1 MiB here, and a packed one 256 KiB and more, but for scales of bfloat16, of 64 KiB."""
    stored = replace(storage, group=64 if storage.group else 0)
    more = {"scratch_budget": 1 << 20}
    x, w, image = normal(64, 1024), normal(1024, 1024), normal(2, 256, 9, 9)
    x, w, image = (value.astype(np.float32) for value in (x, w, image))
    filters = w.reshape(512, 256, 4, 2)
    operations = [
        OneOperation("Gemm", [x, w], transB=1, stored={1: stored}, **more),
        OneOperation("MatMul", [x, w], stored={1: replace(stored, axis=1)}, **more),
        OneOperation("Conv", [image, filters], stored={1: stored}, **more),
        OneOperation("Conv", [image, filters], stored={1: stored}, strides=(2, 2), **more),
        OneOperation(
            "ConvTranspose", [normal(1, 512, 3, 3).astype(np.float32), filters], stored={1: stored}, **more
        ),
        OneOperation("Gather", [w, np.arange(4096) % 1024], stored={0: stored}, **more),
        OneOperation("ProductLogSumExp", [x, w, np.arange(64)], transB=1, stored={1: stored}, **more),
    ]
    with every() as check:
        for operation in operations:
            with check(operation.type):
                operation.assert_lean(96 * 1024)


# ----------------------------------------------------------------------------------------------- quantisation


def test_halves_go_to_the_even_number_or_away_from_zero() -> None:
    x, one = (
        np.array([-2.5, -1.5, -0.5, -0.4, 0.49999997, 0.5, 1.5, 2.5], np.float32),
        np.ones((), np.float32),
    )
    even = OneOperation("QuantizeLinear", [x, one], output_dtype=3).forward()
    away = OneOperation("QuantizeLinear", [x, one], output_dtype=3, rounding="away").forward()
    assert even.tolist() == [-2, -2, 0, 0, 0, 0, 2, 2]
    assert away.tolist() == [-3, -2, -1, 0, 0, 1, 2, 3]


def test_values_beyond_the_range_are_its_ends_and_nan_is_the_least() -> None:
    x = np.array([-1e30, 1e30, np.inf, -np.inf, np.nan], np.float32)
    found = OneOperation("QuantizeLinear", [x, np.asarray(0.5, np.float32), np.asarray(7, np.int8)]).forward()
    assert found.tolist() == [-128, 127, 127, -128, -128]
