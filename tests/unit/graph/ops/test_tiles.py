"""TileGather and LogAddExp: results, refusals, and that nothing goes back through a tile."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.types import DType, TensorType
from tests.support.one_node import Input, needs_of, node_of

INDICES = TensorType((2, 5), DType.INT64)


def test_rows_at_the_indices() -> None:
    node = node_of("TileGather", [(4, 3), INDICES], first_row=2, rows=9)
    assert node.outputs == (TensorType((2, 5, 3), DType.FLOAT32),)
    assert lookup("TileGather").differentiable(node) == frozenset()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([(4, 3), (2, 5)], "int32 or int64 indices"),
        ([(), INDICES], "rows of a table"),
        ([(4, 3), INDICES, (2, 5, 4)], r"rows from before of type float32\[2, 5, 3\]"),
    ],
)
def test_what_does_not_agree_is_refused(inputs: list[Input], words: str) -> None:
    with pytest.raises(ShapeMismatchError, match=words):
        node_of("TileGather", inputs, first_row=0, rows=9)


@pytest.mark.parametrize("attributes", [{"first_row": 6, "rows": 9}, {"first_row": 0}, {"rows": 9}])
def test_tiles_lie_in_the_table(attributes: dict[str, Any]) -> None:
    with pytest.raises(AttributeRuleError):
        node_of("TileGather", [(4, 3), INDICES], **attributes)


def test_joined_logarithms() -> None:
    node = node_of("LogAddExp", [(4, 3)] * 3)
    assert node.outputs == (TensorType((4, 3), DType.FLOAT32),)
    read, outputs, _ = needs_of("LogAddExp", [(4, 3)] * 3, [0, 2])
    assert read == {0, 2}
    assert outputs == {0}
    with pytest.raises(ShapeMismatchError, match="one shape"):
        node_of("LogAddExp", [(4, 3), (3,)])
