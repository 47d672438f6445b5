"""Activations: shapes, refusals, what backward reads, scratch of a block."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.activation import softmax_block
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

INTEGER = TensorType((2, 3), DType.INT64)
DOUBLE = TensorType((2, 3), DType.FLOAT64)


@grid(
    "type_",
    ["Relu", "Sigmoid", "Tanh", "Clip", "Softmax", "LogSoftmax", "LeakyRelu", "Elu", "HardSigmoid"],
)
def test_activations_keep_the_type_and_read_y_alone(type_: str) -> None:
    assert node_of(type_, [DOUBLE]).outputs == (DOUBLE,)
    inputs, outputs, needs = needs_of(type_, [(2, 3)], (0,))
    assert (inputs, outputs) == (set(), {0})
    assert not needs.saved
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of(type_, [INTEGER])


@pytest.mark.parametrize(
    ("type_", "attributes"),
    [
        ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("Swish", {}),
        ("HardSwish", {}),
        ("LeakyRelu", {"alpha": 0.0}),
        ("LeakyRelu", {"alpha": -0.1}),
        ("Elu", {"alpha": -1.0}),
    ],
)
def test_what_falls_and_rises_reads_x(type_: str, attributes: dict[str, Any]) -> None:
    """One value of Y comes from two of X, with two slopes: Y cannot tell them apart."""
    inputs, outputs, needs = needs_of(type_, [(2000, 2000)], (0,), **attributes)
    assert (inputs, outputs) == ({0}, set())
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in needs.scratch)


def test_prelu() -> None:
    assert output_of("PRelu", [(2, 3, 4), (3, 1)]) == (2, 3, 4)
    assert needs_of("PRelu", [(2, 3), (3,)], (0,))[0] == {0, 1}
    assert needs_of("PRelu", [(2, 3), (3,)], (1,))[0] == {0}
    with pytest.raises(ShapeMismatchError, match="slope that broadcasts to the shape of the input"):
        node_of("PRelu", [(2, 1), (2, 3)])
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of("PRelu", [(2, 3), DOUBLE])


def test_gelu_refuses_what_it_does_not_know() -> None:
    with pytest.raises(AttributeRuleError, match=r"'approximate'.*'sigmoid'"):
        node_of("Gelu", [(2, 3)], approximate="sigmoid")


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


@pytest.mark.parametrize(
    ("type_", "name", "default", "other"),
    [("Clip", "inclusive", 0, 1), ("BinaryCrossEntropy", "clamp", "probability", "logarithm")],
)
def test_attributes_that_were_added_later_stand_only_where_they_differ(
    type_: str, name: str, default: Any, other: Any
) -> None:
    """A plan holds the attributes of its steps, and plans that were made before must stay as they are."""
    shapes = [(2, 3)] * (1 if type_ == "Clip" else 2)
    assert name not in node_of(type_, shapes).attributes
    as_before: dict[str, Any] = {name: default}
    differing: dict[str, Any] = {name: other}
    assert name not in node_of(type_, shapes, **as_before).attributes
    assert node_of(type_, shapes, **differing).attributes[name] == other
