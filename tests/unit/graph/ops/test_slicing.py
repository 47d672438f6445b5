"""Concat, Split and Slice: shapes, refusals, no needs."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.base import BackwardNeeds
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

INTEGERS = TensorType((2, 3), DType.INT32)


@pytest.mark.parametrize(
    ("inputs", "axis", "shape"),
    [
        ([(2, 3)], 0, (2, 3)),
        ([(2, 3), (2, 3)], 0, (4, 3)),
        ([(2, 3), (2, 5), (2, 1)], 1, (2, 9)),
        ([(2, 3), (2, 5)], -1, (2, 8)),
        ([(4,), (1,)], -1, (5,)),
    ],
)
def test_concat(inputs: list[Input], axis: int, shape: tuple[int, ...]) -> None:
    assert output_of("Concat", inputs, axis=axis) == shape


def test_concat_refuses() -> None:
    refused: list[list[Input]] = [[(2, 3), (3, 3)], [(2, 3), (2, 3, 1)], [(2, 3), INTEGERS]]
    for inputs in refused:
        with pytest.raises(ShapeMismatchError, match="agree in all but axis 1"):
            node_of("Concat", inputs, axis=1)
    with pytest.raises(AttributeRuleError, match=r"'axis'.*\[-2, 1\]"):
        node_of("Concat", [(2, 3), (2, 3)], axis=2)
    with pytest.raises(AttributeRuleError, match=r"'axis'.* is required"):
        node_of("Concat", [(2, 3), (2, 3)])
    with pytest.raises(ShapeMismatchError, match="lacks input 1"):
        node_of("Concat", [(2, 3), None], axis=0)
    with pytest.raises(AttributeRuleError, match="input of rank 0"):
        node_of("Concat", [(), ()], axis=0)


@pytest.mark.parametrize(
    ("inputs", "attributes", "outputs", "sizes"),
    [
        ([(6, 2)], {}, 2, [3, 3]),
        ([(6, 2)], {}, 1, [6]),
        ([(6, 2), [1, 5]], {}, 2, [1, 5]),
        ([(6, 2)], {"split": (2, 2, 2)}, 3, [2, 2, 2]),
        ([(7, 2)], {"num_outputs": 3}, 3, [3, 3, 1]),
        ([(6, 2)], {"num_outputs": 3}, 3, [2, 2, 2]),
    ],
)
def test_split(inputs: list[Input], attributes: dict[str, Any], outputs: int, sizes: list[int]) -> None:
    node = node_of("Split", inputs, outputs=outputs, **attributes)
    assert [type_.shape for type_ in node.outputs] == [(size, 2) for size in sizes]


@pytest.mark.parametrize(
    ("inputs", "attributes", "outputs", "reason"),
    [
        ([(7, 2)], {}, 2, r"sizes \[4, 4\] do not make up the 7 of axis 0"),
        ([(6, 2), [2, 2]], {}, 2, r"sizes \[2, 2\] do not make up the 6"),
        ([(6, 2), [7, -1]], {}, 2, r"sizes \[7, -1\] do not make up"),
        ([(6, 2), [3, 3]], {}, 3, "a size for each of the 3 outputs, not 2"),
        ([(4, 2)], {"num_outputs": 3, "axis": 0}, 3, r"sizes \[2, 2, 0\]"),
    ],
)
def test_split_refuses(inputs: list[Input], attributes: dict[str, Any], outputs: int, reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=reason):
        node_of("Split", inputs, outputs=outputs, **attributes)


def test_split_refuses_attributes() -> None:
    with pytest.raises(AttributeRuleError, match="must be the number of outputs, 2"):
        node_of("Split", [(6, 2)], outputs=2, num_outputs=3)
    with pytest.raises(AttributeRuleError, match="must be the number of outputs, 2, without sizes"):
        node_of("Split", [(6, 2), [3, 3]], outputs=2, num_outputs=2)
    with pytest.raises(AttributeRuleError, match="also given as input 1"):
        node_of("Split", [(6, 2), [3, 3]], outputs=2, split=(3, 3))


BIG = 2**63 - 1


@grid(
    ("parts", "shape"),
    [
        ([[1], [3]], (2, 3)),
        ([[0, 1], [4, 3]], (4, 2)),
        ([[-2], [BIG], [1]], (4, 2)),
        ([[0], [BIG], [0], [3]], (2, 3)),
        ([[BIG], [-BIG - 1], [-1], [-1]], (4, 3)),
        ([[3], [0], [0], [-2]], (2, 3)),
        ([[-100], [100]], (4, 3)),
        ([[], []], (4, 3)),
        ([[1, 0], [2, 1], [1, 0]], (1, 1)),
    ],
)
def test_slice(parts: list[Input], shape: tuple[int, ...]) -> None:
    assert output_of("Slice", [(4, 3), *parts]) == shape


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([[0], [3], [0], [0]], "a step must not be 0"),
        ([[0, 0], [3]], "as many starts as ends, axes and steps"),
        ([[0], [3], [0, 1]], "as many starts as ends, axes and steps"),
        ([[0], [3], [2]], r"axes \[2\] must lie in"),
        ([[0, 0], [1, 1], [0, -2]], "name an axis twice"),
    ],
)
def test_slice_refuses(parts: list[Input], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \(Slice\).*{reason}"):
        node_of("Slice", [(4, 3), *parts])


@pytest.mark.parametrize("position", [1, 2, 3, 4])
def test_what_slice_cuts_must_be_constant(position: int) -> None:
    inputs: list[Input] = [(4, 3), [0], [1], [0], [1]]
    inputs[position] = TensorType((1,), DType.INT64)
    with pytest.raises(ShapeMismatchError, match=f"Input {position} of operation 'dense1'"):
        node_of("Slice", inputs)


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes"),
    [("Concat", [(2, 3), (2, 3)], {"axis": 0}), ("Split", [(2, 3)], {}), ("Slice", [(2, 3), [0], [1]], {})],
)
def test_backward_needs_nothing(type_: str, inputs: list[Input], attributes: dict[str, Any]) -> None:
    assert needs_of(type_, inputs, (0,), **attributes)[2] == BackwardNeeds()
    integers: list[Input] = [INTEGERS if each == (2, 3) else each for each in inputs]
    assert lookup(type_).differentiable(node_of(type_, integers, **attributes)) == set()
