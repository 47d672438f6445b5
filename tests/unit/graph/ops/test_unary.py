"""Functions of one operand: types, what backward reads, scratch."""

from __future__ import annotations

from solver.graph.ops import FAMILIES, lookup
from solver.graph.ops.base import BackwardNeeds
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from tests.support.every import grid
from tests.support.one_node import needs_of, node_of


def test_neg_needs_nothing() -> None:
    assert needs_of("Neg", [(2, 3)], (0,))[2] == BackwardNeeds()


@grid("type_", FAMILIES["unary"])
def test_scratch_is_blocks(type_: str) -> None:
    node = node_of(type_, [(2000, 2000)])
    kind = lookup(type_)
    requests = kind.forward_scratch(node) + kind.backward(node, frozenset({0})).scratch
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in requests)
