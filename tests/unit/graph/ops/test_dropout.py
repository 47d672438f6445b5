"""Dropout: type, range of the ratio, what is kept from forward to backward (nothing)."""

from __future__ import annotations

from solver.graph.ops import lookup
from solver.graph.ops.dropout import BLOCK
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import needs_of, node_of

KIND = lookup("Dropout")


def test_nothing_is_kept_for_the_backward_step() -> None:
    reads, outputs, needs = needs_of("Dropout", [(3, 4)], (0,))
    assert (reads, outputs, needs.saved) == (set(), set(), frozenset())
    assert KIND.saved(node_of("Dropout", [(3, 4)])) == ()


@grid("dtype", [DType.FLOAT32, DType.FLOAT64])
@grid("elements", [1, 2, 7, BLOCK, 10 * BLOCK])
def test_scratch_is_a_block(elements: int, dtype: DType) -> None:
    requests = KIND.forward_scratch(node_of("Dropout", [TensorType((elements,), dtype)]))
    sizes = {request.name: request.type for request in requests}
    assert sizes["bits"].elements * 2 >= min(elements, BLOCK)
    assert sizes["words"].dtype.itemsize == dtype.itemsize
    assert sum(type_.nbytes for type_ in sizes.values()) <= 24 * BLOCK


def test_the_identity_takes_no_scratch() -> None:
    assert KIND.forward_scratch(node_of("Dropout", [(3,)], ratio=0.0)) == ()
