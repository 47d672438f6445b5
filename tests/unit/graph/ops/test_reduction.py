"""Reductions: shapes, refusals, what backward reads."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import FAMILIES, lookup
from solver.graph.ops.base import BackwardNeeds
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

INTEGERS = TensorType((2, 3), DType.INT32)
DYNAMIC = TensorType((2,), DType.INT64)
SHAPE = (2, 3, 4)


@grid(
    ("inputs", "attributes", "shape"),
    [
        ([SHAPE], {}, (1, 1, 1)),
        ([SHAPE], {"keepdims": 0}, ()),
        ([SHAPE, [1]], {}, (2, 1, 4)),
        ([SHAPE, [-1, 0]], {"keepdims": 0}, (3,)),
        ([SHAPE], {"axes": (1, 2), "keepdims": 0}, (2,)),
        ([SHAPE, []], {}, (1, 1, 1)),
        ([SHAPE, []], {"noop_with_empty_axes": 1}, SHAPE),
        ([SHAPE, None], {"noop_with_empty_axes": 1, "keepdims": 0}, SHAPE),
    ],
)
def test_shapes(inputs: list[Input], attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    for type_ in FAMILIES["reduction"]:
        assert output_of(type_, inputs, **attributes) == shape
    for type_ in ("ReduceMean", "ReduceSum"):
        assert needs_of(type_, inputs, (0,), **attributes)[2] == BackwardNeeds()


def test_the_maximum_reads_x_and_y() -> None:
    inputs, outputs, needs = needs_of("ReduceMax", [(2000, 300), [1]], (0,))
    assert (inputs, outputs) == ({0}, {0})
    assert {request.name: request.type.shape for request in needs.scratch} == {
        "share": (2000,),
        "partial": (2000,),
    }


def test_the_maximum_keeps_any_type() -> None:
    for dtype in DType:
        node = node_of("ReduceMax", [TensorType((2, 3), dtype)])
        assert node.outputs[0].dtype is dtype
        assert lookup("ReduceMax").differentiable(node) == ({0} if dtype.is_floating else set())


@pytest.mark.parametrize("type_", ["ReduceMean", "ReduceSum"])
def test_sums_are_of_floating_elements(type_: str) -> None:
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of(type_, [INTEGERS])


def test_refusals() -> None:
    with pytest.raises(AttributeRuleError, match="also given as input 1"):
        node_of("ReduceMean", [SHAPE, [1]], axes=(1,))
    with pytest.raises(ShapeMismatchError, match=r"axes \[3\] must lie in \[-3, 2\]"):
        node_of("ReduceMean", [SHAPE, [3]])
    with pytest.raises(ShapeMismatchError, match="name an axis twice"):
        node_of("ReduceMean", [SHAPE], axes=(1, -2))


def test_the_axes_must_be_constant() -> None:
    with pytest.raises(ShapeMismatchError, match=r"Input 1 of operation 'dense1' .*must be a constant"):
        node_of("ReduceMean", [SHAPE, DYNAMIC])
