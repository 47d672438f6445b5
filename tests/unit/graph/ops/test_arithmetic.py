"""Arithmetic: shapes, refusals, what backward reads, scratch of a block."""

from __future__ import annotations

import numpy as np
import pytest

from solver.errors import ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

INTEGER = TensorType((2, 3), DType.INT64)
DOUBLE = TensorType((2, 3), DType.FLOAT64)
ARITHMETIC = ["Add", "Sub", "Mul", "Div"]


@grid("type_", ARITHMETIC)
@grid(
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


@grid(
    ("type_", "left", "right"),
    [("Add", set(), set()), ("Sub", set(), set()), ("Mul", {1}, {0}), ("Div", {1}, {0, 1})],
)
@grid("activation", ["None", "Sigmoid"])
def test_arithmetic_reads_the_least(type_: str, left: set[int], right: set[int], activation: str) -> None:
    expected = {(0,): left, (1,): right, (0, 1): left | right}
    for wanted, reads in expected.items():
        inputs, outputs, _ = needs_of(type_, [(2, 3), (3,)], wanted, activation=activation)
        assert inputs == reads
        assert outputs == ({0} if activation == "Sigmoid" else set())


@grid("type_", ARITHMETIC)
@grid("activation", ["None", "Sigmoid"])
def test_scratch_of_arithmetic_is_blocks(type_: str, activation: str) -> None:
    _, _, needs = needs_of(type_, [(1000, 1000), (1000, 1)], (0, 1), activation=activation)
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in needs.scratch)
    assert ("inner" in {r.name for r in needs.scratch}) == (activation != "None")


def test_pow() -> None:
    assert output_of("Pow", [(2, 1), (3,)]) == (2, 3)
    assert node_of("Pow", [(2, 3), INTEGER]).outputs[0].dtype is DType.FLOAT32
    assert lookup("Pow").differentiable(node_of("Pow", [(2, 3), INTEGER])) == {0}
    for wanted, inputs, outputs in [((0,), {0, 1}, set()), ((1,), {0}, {0}), ((0, 1), {0, 1}, {0})]:
        assert needs_of("Pow", [(2, 3), (3,)], wanted)[:2] == (inputs, outputs)
    with pytest.raises(ShapeMismatchError, match="numbers as exponent"):
        node_of("Pow", [(2, 3), TensorType((2, 3), DType.BOOL)])
    refused: list[list[Input]] = [[(2, 3), DOUBLE], [INTEGER, (2, 3)]]
    for given in refused:
        with pytest.raises(ShapeMismatchError, match="one floating element type"):
            node_of("Pow", given)
