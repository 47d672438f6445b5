"""Reductions: shapes, refusals, what backward reads."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops.base import BackwardNeeds
from solver.graph.types import DType, TensorType
from tests.support.one_node import Input, needs_of, node_of, output_of

INTEGERS = TensorType((2, 3), DType.INT32)
DYNAMIC = TensorType((2,), DType.INT64)
SHAPE = (2, 3, 4)


@pytest.mark.parametrize(
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
def test_reduce_mean(inputs: list[Input], attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert output_of("ReduceMean", inputs, **attributes) == shape
    assert needs_of("ReduceMean", inputs, (0,), **attributes)[2] == BackwardNeeds()


def test_reduce_mean_refuses() -> None:
    with pytest.raises(AttributeRuleError, match="also given as input 1"):
        node_of("ReduceMean", [SHAPE, [1]], axes=(1,))
    with pytest.raises(ShapeMismatchError, match=r"axes \[3\] must lie in \[-3, 2\]"):
        node_of("ReduceMean", [SHAPE, [3]])
    with pytest.raises(ShapeMismatchError, match="name an axis twice"):
        node_of("ReduceMean", [SHAPE], axes=(1, -2))
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of("ReduceMean", [INTEGERS])


def test_the_axes_must_be_constant() -> None:
    with pytest.raises(ShapeMismatchError, match=r"Input 1 of operation 'dense1' .*integer constant"):
        node_of("ReduceMean", [SHAPE, DYNAMIC])
