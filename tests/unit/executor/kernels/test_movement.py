"""Movement of elements: what backward steps read, borders, scalars."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.graph.ops import FAMILIES
from solver.graph.ops.base import BackwardNeeds
from tests.support.every import grid
from tests.support.one_operation import OneOperation
from tests.support.operator_cases import CASES


@grid("type_", FAMILIES["movement"])
def test_the_backward_step_reads_nothing_but_dy(type_: str) -> None:
    """Only what was spread, or repeated at a border, is summed in scratch."""
    for case in (case for case in CASES if case.type == type_):
        operation = case.operation()
        if operation.kind.differentiable(operation.node):
            needs = operation.needs(0)
            assert replace(needs, scratch=()) == BackwardNeeds()
            assert not needs.scratch or type_ == "Expand" or case.attributes["mode"] == "edge"


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


def test_the_derivative_of_a_cast_is_cast_back() -> None:
    found = OneOperation("Cast", [np.ones(3, np.float32)], to=11).backward(np.array([1.0, 0.1, -2]), 0)[0]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array([1.0, 0.1, -2], np.float32))
