"""Arithmetic and activations: shapes, refusals, what backward reads, scratch of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops._shared import BLOCK_ELEMENTS
from solver.graph.ops.activation import softmax_block
from solver.graph.types import DType, TensorType
from tests.support.one_node import Input, needs_of, node_of, output_of

INTEGER = TensorType((2, 3), DType.INT64)
DOUBLE = TensorType((2, 3), DType.FLOAT64)
ARITHMETIC = ["Add", "Sub", "Mul", "Div"]


@pytest.mark.parametrize("type_", ARITHMETIC)
@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3), (3,)), ((), (2,)), ((2, 1), (1, 5)), ((4, 1, 3), (2, 1)), ((), ()), ((1,), (1, 1))],
)
def test_arithmetic_broadcasts_as_numpy(type_: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert output_of(type_, [left, right]) == np.broadcast_shapes(left, right)


@pytest.mark.parametrize("type_", ARITHMETIC)
def test_arithmetic_refuses(type_: str) -> None:
    with pytest.raises(
        ShapeMismatchError, match=rf"'dense1' \({type_}\).*broadcast.*float32\[2, 3\].*float32\[2\]"
    ):
        node_of(type_, [(2, 3), (2,)])
    for other in (INTEGER, DOUBLE):
        with pytest.raises(ShapeMismatchError, match="one floating element type"):
            node_of(type_, [(2, 3), other])


@pytest.mark.parametrize(
    ("type_", "left", "right"),
    [("Add", set(), set()), ("Sub", set(), set()), ("Mul", {1}, {0}), ("Div", {1}, {0, 1})],
)
@pytest.mark.parametrize("activation", ["None", "Sigmoid"])
def test_arithmetic_reads_the_least(type_: str, left: set[int], right: set[int], activation: str) -> None:
    expected = {(0,): left, (1,): right, (0, 1): left | right}
    for wanted, reads in expected.items():
        inputs, outputs, _ = needs_of(type_, [(2, 3), (3,)], wanted, activation=activation)
        assert inputs == reads
        assert outputs == ({0} if activation == "Sigmoid" else set())


@pytest.mark.parametrize("type_", ARITHMETIC)
@pytest.mark.parametrize("activation", ["None", "Sigmoid"])
def test_scratch_of_arithmetic_is_blocks(type_: str, activation: str) -> None:
    _, _, needs = needs_of(type_, [(1000, 1000), (1000, 1)], (0, 1), activation=activation)
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in needs.scratch)
    assert ("inner" in {r.name for r in needs.scratch}) == (activation != "None")


@pytest.mark.parametrize("type_", ["Relu", "Sigmoid", "Tanh", "Clip", "Softmax"])
def test_activations_keep_the_type_and_read_y_alone(type_: str) -> None:
    assert node_of(type_, [DOUBLE]).outputs == (DOUBLE,)
    inputs, outputs, needs = needs_of(type_, [(2, 3)], (0,))
    assert (inputs, outputs) == (set(), {0})
    assert not needs.saved
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of(type_, [INTEGER])


def test_bounds_of_clip() -> None:
    node = node_of("Clip", [(2, 3), (), (1,)])
    assert lookup("Clip").differentiable(node) == {0}
    assert needs_of("Clip", [(2, 3), (), None], (0,))[0] == {1}
    assert needs_of("Clip", [(2, 3), None, ()], (0,))[0] == {2}
    with pytest.raises(ShapeMismatchError, match="scalar for the bound 'max'"):
        node_of("Clip", [(2, 3), None, (3,)])
    with pytest.raises(AttributeRuleError, match="also given as input 1"):
        node_of("Clip", [(2, 3), ()], min=0.0)
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of("Clip", [(2, 3), TensorType((), DType.FLOAT64)])


@pytest.mark.parametrize("axis", [2, -3])
def test_softmax_refuses_an_axis_it_lacks(axis: int) -> None:
    with pytest.raises(
        AttributeRuleError, match=rf"'axis' of operation 'dense1' \(Softmax\) is {axis}.*\[-2, 1\]"
    ):
        node_of("Softmax", [(2, 3)], axis=axis)


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((4, 10), 1, (4, 10, 1)),
        ((100_000, 10), 1, (3276, 10, 1)),
        ((10, 100_000), 1, (1, 100_000, 1)),
        ((10, 100_000), 0, (1, 10, 3276)),
        ((2, 10, 8, 8), 1, (2, 10, 64)),
        ((2, 20, 512, 512), 1, (1, 20, 1638)),
    ],
)
def test_a_block_of_softmax_spans_all_classes(
    shape: tuple[int, ...], axis: int, expected: tuple[int, int, int]
) -> None:
    assert softmax_block(shape, axis) == expected


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes"),
    [("Relu", [(2000, 2000)], {}), ("Clip", [(2000, 2000)], {}), ("Softmax", [(2000, 2000)], {"axis": 0})],
)
def test_scratch_of_activations_is_blocks(
    type_: str, inputs: list[Input], attributes: dict[str, Any]
) -> None:
    _, _, needs = needs_of(type_, inputs, (0,), **attributes)
    assert needs.scratch
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in needs.scratch)
