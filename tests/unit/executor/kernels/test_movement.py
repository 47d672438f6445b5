"""Movement of elements: forward against ONNX, derivatives, memory."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.graph.ops.base import BackwardNeeds
from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal
from tests.support.onnx_reference import assert_onnx

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
    *(
        ("Pad", list[Array | None]([np.array(pads)]), {"mode": mode})
        for mode in ("reflect", "edge", "wrap")
        for pads in ([1, 2, 3, 1, 2, 3], [0, 0, 2, 0, 1, 0], [1, 0, 0, 0, 0, 1], [0] * 6)
    ),
    ("Pad", [np.array([5, 0, 7, 3, 9, 0])], {"mode": "edge"}),
    ("Pad", [np.array([2, 4]), None, np.array([2])], {"mode": "edge"}),
    ("Pad", [np.array([2, 3]), None, np.array([-1])], {"mode": "wrap"}),
    ("Pad", [np.array([2, 1, 3, 0]), np.asarray(7.0), np.array([-1, 0])], {"mode": "reflect"}),
    ("Unsqueeze", [np.array([0])], {}),
    ("Unsqueeze", [np.array([-1, 1, 0])], {}),
    ("Expand", [np.array([2, 3, 4])], {}),
    ("Expand", [np.array([1])], {}),
    ("Expand", [np.array([5, 1, 1, 4])], {}),
    ("Cast", [], {"to": 1}),
    ("Cast", [], {"to": 6}),
    ("Cast", [], {"to": 7}),
    ("Cast", [], {"to": 11}),
]


@grid(("type_", "more", "attributes"), CASES)
def test_forward_is_onnx_and_derivatives_are_right(
    type_: str, more: list[Array | None], attributes: dict[str, Any]
) -> None:
    """The backward step reads nothing but dY."""
    operation = OneOperation(type_, [normal(2, 3, 4), *more], **attributes)
    assert_onnx(operation, opset=19)
    # The tolerance of a difference of float32 numbers is wider.
    operation.assert_derivatives(1e-6 if attributes.get("to") != 1 else 1e-1)
    needs = operation.needs(0)
    assert replace(needs, scratch=()) == BackwardNeeds()
    assert not needs.scratch or type_ == "Expand" or attributes["mode"] == "edge"


def test_pad_by_attribute_value() -> None:
    found = OneOperation("Pad", [np.ones(2, np.float32), np.array([1, 2])], constant_value=7.0).forward()
    assert found.tolist() == [7, 1, 1, 7, 7]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_a_scalar_has_no_axis_to_pad(mode: str) -> None:
    operation = OneOperation("Pad", [np.asarray(3.0), np.array([], np.int64)], mode=mode)
    assert operation.forward().item() == 3.0
    assert operation.backward(np.asarray(2.0), 0)[0].item() == 2.0


@grid(
    ("mode", "padded"),
    [
        ("reflect", [3, 2, 1, 2, 3, 4, 3, 2]),
        ("edge", [1, 1, 1, 2, 3, 4, 4, 4]),
        ("wrap", [3, 4, 1, 2, 3, 4, 1, 2]),
    ],
)
@grid("dtype", ["int32", "uint8", "float32"])
def test_borders_of_any_element_type(mode: str, padded: list[int], dtype: str) -> None:
    found = OneOperation("Pad", [np.array([1, 2, 3, 4], dtype), np.array([2, 2])], mode=mode).forward()
    assert found.tolist() == padded


def test_a_scalar_becomes_a_vector_and_back() -> None:
    assert OneOperation("Reshape", [np.asarray(3.0), np.array([1, 1])]).forward().tolist() == [[3.0]]
    found = OneOperation("Reshape", [np.array([[3.0]]), np.array([], np.int64)]).forward()
    assert found.shape == ()


@pytest.mark.parametrize(
    ("shape", "more", "attributes"),
    [
        ((1, 3, 1, 4), [np.array([0])], {}),
        ((1, 3, 1, 4), [np.array([-2, 0])], {}),
        ((1, 3, 1, 4), [], {}),
        ((1, 1), [], {}),
        ((3, 1, 4), [], {"axes": (1,)}),
    ],
)
def test_squeeze(shape: tuple[int, ...], more: list[Array], attributes: dict[str, Any]) -> None:
    operation = OneOperation("Squeeze", [normal(*shape), *more], **attributes)
    assert_onnx(operation, opset=11 if attributes else 18)
    operation.assert_derivatives()


@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        ((3, 1), [3, 4]),
        ((1,), [2, 3]),
        ((), [2, 3]),
        ((4, 1, 3), [2, 1, 5, 1]),
        ((70, 1), [70, 1200]),
        ((1200,), [70, 1200]),
    ],
)
def test_expand_sums_what_it_spread(shape: tuple[int, ...], asked: list[int]) -> None:
    operation = OneOperation("Expand", [normal(*shape), np.array(asked)])
    y = np.broadcast_to(normal(*shape), np.broadcast_shapes(shape, tuple(asked)))
    np.testing.assert_array_equal(operation.forward(), y)
    dy = normal(*y.shape)
    padded = (1,) * (dy.ndim - len(shape)) + shape
    axes = tuple(i for i, size in enumerate(padded) if size == 1)
    expected = dy.sum(axis=axes, keepdims=True).reshape(shape)
    np.testing.assert_allclose(operation.backward(dy, 0)[0], expected, rtol=1e-9, atol=1e-10)


@grid("to", [1, 2, 6, 7, 9, 11])
@grid("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_cast_from_every_type_to_every_type(dtype: str, to: int) -> None:
    operation = OneOperation("Cast", [np.array([0, 1, 2, 100]).astype(dtype)], to=to)
    assert_onnx(operation)
    floating = dtype.startswith("float") and to in (1, 11)
    assert operation.kind.differentiable(operation.node) == ({0} if floating else set())


def test_the_derivative_of_a_cast_is_cast_back() -> None:
    found = OneOperation("Cast", [np.ones(3, np.float32)], to=11).backward(np.array([1.0, 0.1, -2]), 0)[0]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array([1.0, 0.1, -2], np.float32))
