"""Arithmetic: shapes, refusals, what backward reads, scratch of a block."""

from __future__ import annotations

from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from tests.support.every import grid
from tests.support.one_node import needs_of

ARITHMETIC = ["Add", "Sub", "Mul", "Div"]


@grid("type_", ARITHMETIC)
@grid("activation", ["None", "Sigmoid"])
def test_scratch_of_arithmetic_is_blocks(type_: str, activation: str) -> None:
    _, _, needs = needs_of(type_, [(1000, 1000), (1000, 1)], (0, 1), activation=activation)
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in needs.scratch)
    assert ("inner" in {r.name for r in needs.scratch}) == (activation != "None")
