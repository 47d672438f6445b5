"""Concat, Split and Slice: shapes, refusals, no needs."""

from __future__ import annotations

from typing import Any

import pytest

from solver.graph.ops import lookup
from solver.graph.ops.base import BackwardNeeds
from solver.graph.types import DType, TensorType
from tests.support.one_node import Input, needs_of, node_of

INTEGERS = TensorType((2, 3), DType.INT32)


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes"),
    [("Concat", [(2, 3), (2, 3)], {"axis": 0}), ("Split", [(2, 3)], {}), ("Slice", [(2, 3), [0], [1]], {})],
)
def test_backward_needs_nothing(type_: str, inputs: list[Input], attributes: dict[str, Any]) -> None:
    assert needs_of(type_, inputs, (0,), **attributes)[2] == BackwardNeeds()
    integers: list[Input] = [INTEGERS if each == (2, 3) else each for each in inputs]
    assert lookup(type_).differentiable(node_of(type_, integers, **attributes)) == set()
