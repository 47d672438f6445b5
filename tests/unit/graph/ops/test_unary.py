"""Functions of one operand: types, what backward reads, scratch."""

from __future__ import annotations

import pytest

from solver.errors import ShapeMismatchError
from solver.graph.ops import FAMILIES, lookup
from solver.graph.ops.base import BackwardNeeds
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import needs_of, node_of

DOUBLE = TensorType((2, 3), DType.FLOAT64)


@grid("type_", FAMILIES["unary"])
def test_the_type_is_kept_and_integers_are_refused(type_: str) -> None:
    assert node_of(type_, [DOUBLE]).outputs == (DOUBLE,)
    with pytest.raises(ShapeMismatchError, match="one floating element type"):
        node_of(type_, [TensorType((2, 3), DType.INT32)])


@grid(
    ("type_", "inputs", "outputs"),
    [
        ("Exp", set(), {0}),
        ("Sqrt", set(), {0}),
        ("Reciprocal", set(), {0}),
        ("Log", {0}, set()),
        ("Abs", {0}, set()),
        ("Erf", {0}, set()),
        ("Sin", {0}, set()),
        ("Cos", {0}, set()),
        ("Softplus", {0}, set()),
        *((name, {0}, set()) for name in ("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh")),
        ("Neg", set(), set()),
    ],
)
def test_backward_reads_the_least(type_: str, inputs: set[int], outputs: set[int]) -> None:
    assert needs_of(type_, [(2, 3)], (0,))[:2] == (inputs, outputs)


def test_neg_needs_nothing() -> None:
    assert needs_of("Neg", [(2, 3)], (0,))[2] == BackwardNeeds()


@grid("type_", FAMILIES["unary"])
def test_scratch_is_blocks(type_: str) -> None:
    node = node_of(type_, [(2000, 2000)])
    kind = lookup(type_)
    requests = kind.forward_scratch(node) + kind.backward(node, frozenset({0})).scratch
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in requests)
