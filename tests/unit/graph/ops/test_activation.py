"""Activations: shapes, refusals, what backward reads, scratch of a block."""

from __future__ import annotations

from typing import Any

import pytest

from solver.graph.ops.activation import softmax_block
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from tests.support.one_node import Input, needs_of, node_of


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
