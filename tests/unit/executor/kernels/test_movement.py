"""Reshape, Flatten, Transpose and Pad: forward against ONNX, derivatives, memory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from solver.graph.ops.base import BackwardNeeds
from solver.graph.types import Array
from tests.support.one_operation import OneOperation, allocated
from tests.support.onnx_reference import onnx_reference

CASES: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    ("Reshape", [np.array([4, 6])], {}),
    ("Reshape", [np.array([-1])], {}),
    ("Reshape", [np.array([0, -1])], {}),
    ("Reshape", [np.array([2, 0, 4, 1])], {}),
    *(("Flatten", list[Array | None](), {"axis": axis}) for axis in (-3, -1, 0, 1, 2, 3)),
    *(("Transpose", list[Array | None](), {"perm": perm}) for perm in itertools.permutations(range(3))),
    ("Transpose", [], {}),
    ("Pad", [np.array([1, 0, 2, 0, 3, 1])], {}),
    ("Pad", [np.array([0, 0, 0, 0, 0, 0])], {}),
    ("Pad", [np.array([1, 2]), None, np.array([1])], {}),
    ("Pad", [np.array([1, 2, 3, 4]), np.asarray(1.5), np.array([-1, 0])], {}),
]
NAMES = [f"{type_}-{i}" for i, (type_, _, _) in enumerate(CASES)]


def normal(*shape: int, dtype: str = "float64") -> Array:
    return np.asarray(np.random.default_rng((9, *shape)).standard_normal(shape), dtype)


@pytest.mark.parametrize(("type_", "more", "attributes"), CASES, ids=NAMES)
def test_forward_is_onnx(type_: str, more: list[Array | None], attributes: dict[str, Any]) -> None:
    values = [normal(2, 3, 4), *more]
    found = OneOperation(type_, values, **attributes).forward()
    expected = onnx_reference(type_, values, attributes)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("type_", "more", "attributes"), CASES, ids=NAMES)
def test_derivatives(type_: str, more: list[Array | None], attributes: dict[str, Any]) -> None:
    OneOperation(type_, [normal(2, 3, 4), *more], **attributes).assert_derivatives()


@pytest.mark.parametrize(("type_", "more", "attributes"), CASES, ids=NAMES)
def test_backward_reads_nothing_but_the_derivative(
    type_: str, more: list[Array | None], attributes: dict[str, Any]
) -> None:
    needs = OneOperation(type_, [normal(2, 3, 4), *more], **attributes).needs(0)
    assert needs == BackwardNeeds()


def test_pad_by_attribute_value() -> None:
    found = OneOperation("Pad", [np.ones(2, np.float32), np.array([1, 2])], constant_value=7.0).forward()
    assert found.tolist() == [7, 1, 1, 7, 7]


def test_a_scalar_becomes_a_vector_and_back() -> None:
    assert OneOperation("Reshape", [np.asarray(3.0), np.array([1, 1])]).forward().tolist() == [[3.0]]
    found = OneOperation("Reshape", [np.array([[3.0]]), np.array([], np.int64)]).forward()
    assert found.shape == ()


@pytest.mark.parametrize(
    ("type_", "more", "attributes"),
    [
        ("Reshape", [np.array([-1])], {}),
        ("Flatten", [], {}),
        ("Transpose", [], {"perm": (2, 0, 1)}),
        ("Pad", [np.array([0, 1, 2, 0, 1, 2])], {}),
    ],
)
def test_nothing_of_tensor_size_is_allocated(
    type_: str, more: list[Array], attributes: dict[str, Any]
) -> None:
    operation = OneOperation(type_, [normal(20, 100, 150, dtype="float32"), *more], **attributes)
    assert allocated(operation.prepare_forward()[1]) < 64 * 1024
    dy = normal(*operation.types[0].shape, dtype="float32")
    assert allocated(operation.prepare_backward(dy, 0)[1]) < 64 * 1024
