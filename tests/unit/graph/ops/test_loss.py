"""Losses: shapes of every reduction, refusals, what backward reads, scratch."""

from __future__ import annotations

from typing import Any

import pytest

from solver.graph.ops import lookup
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import DType, TensorType
from tests.support.one_node import needs_of, node_of

CROSS = "CategoricalCrossEntropy"


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_squared_error_reads_both_and_needs_no_scratch(wanted: tuple[int, ...]) -> None:
    inputs, outputs, needs = needs_of("MeanSquaredError", [(6, 5), (6, 5)], wanted)
    assert (inputs, outputs, needs.scratch) == ({0, 1}, set(), ())


@pytest.mark.parametrize("attributes", [{}, {"from_logits": 1}, {"sparse": 1}, {"reduction": "none"}])
def test_scratch_is_blocks(attributes: dict[str, Any]) -> None:
    target = TensorType((100_000,), DType.INT32) if attributes.get("sparse") else (100_000, 10)
    node = node_of(CROSS, [(100_000, 10), target], **attributes)
    kind = lookup(CROSS)
    requests = kind.forward_scratch(node) + kind.backward(node, frozenset({0})).scratch
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in requests)
