"""Normalisation: shapes, refusals, rows and blocks, what backward reads."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.ops.normalization import INVERSE_DEVIATION, MEAN, Normalisation, Rows
from solver.graph.types import DType, TensorType
from tests.support.one_node import Input, needs_of, node_of, output_of

LAYER, INSTANCE, GROUP = "LayerNormalization", "InstanceNormalization", "GroupNormalization"
RMS = "RMSNormalization"


def rows_of(type_: str, inputs: list[Input], **attributes: Any) -> Rows:
    operator = lookup(type_)
    assert isinstance(operator, Normalisation)
    return operator.rows(node_of(type_, inputs, **attributes))


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes", "rows", "statistics"),
    [
        (LAYER, [(2, 3, 4), (4,), (4,)], {}, Rows(6, 1, 4, 1), (2, 3, 1)),
        (LAYER, [(2, 3, 4), (3, 4)], {"axis": 1}, Rows(2, 1, 12, 1), (2, 1, 1)),
        (LAYER, [(2, 3, 4), (2, 3, 4)], {"axis": -3}, Rows(1, 1, 24, 1), (1, 1, 1)),
        (INSTANCE, [(2, 6, 4, 5), (6,), (6,)], {}, Rows(2, 6, 1, 20), (2, 6)),
        (INSTANCE, [(2, 4, 5, 6), (6,), (6,)], {"data_layout": "NHWC"}, Rows(2, 6, 1, 20, True), (2, 6)),
        (GROUP, [(2, 6, 4, 5), (6,), (6,)], {"num_groups": 2}, Rows(2, 2, 3, 20), (2, 2)),
        (GROUP, [(2, 6), (6,), (6,)], {"num_groups": 3}, Rows(2, 3, 2, 1), (2, 3)),
    ],
)
def test_rows(
    type_: str, inputs: list[Input], attributes: dict[str, Any], rows: Rows, statistics: tuple[int, ...]
) -> None:
    assert output_of(type_, inputs, **attributes) == inputs[0]
    assert rows_of(type_, inputs, **attributes) == rows
    saved = lookup(type_).saved(node_of(type_, inputs, **attributes))
    assert [(r.name, r.type.shape) for r in saved] == [(MEAN, statistics), (INVERSE_DEVIATION, statistics)]


@pytest.mark.parametrize(
    ("rows", "step"),
    [
        (Rows(1000, 1, 768, 1), (42, 1)),
        (Rows(4, 1, 768, 1), (4, 1)),
        (Rows(8, 64, 1, 56 * 56), (1, 10)),
        (Rows(8, 8, 4, 16), (8, 8)),
        (Rows(64, 8, 4, 256), (4, 8)),
        (Rows(8, 4, 16, 224 * 224), (1, 1)),
    ],
)
def test_blocks_are_whole_rows(rows: Rows, step: tuple[int, int]) -> None:
    assert rows.step == step
    assert step[0] * step[1] * rows.size <= max(BLOCK_ELEMENTS, rows.size)


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes", "reason"),
    [
        (LAYER, [(2, 3), (2,)], {}, r"scale and shift of shape \[3\]"),
        (LAYER, [(2, 3), (3,), (1,)], {}, r"scale and shift of shape \[3\]"),
        (RMS, [(2, 3), (2,)], {}, r"a scale of shape \[3\]"),
        (LAYER, [(2, 3), TensorType((3,), DType.FLOAT64)], {}, "one floating element type"),
        (INSTANCE, [(2, 3, 4), (4,), (4,)], {}, r"scale and shift of shape \[3\]"),
        (INSTANCE, [(3,), (3,), (3,)], {}, "a batch and channels"),
        (GROUP, [(2, 6, 4), (2,), (2,)], {"num_groups": 2}, r"scale and shift of shape \[6\]"),
    ],
)
def test_refusals(type_: str, inputs: list[Input], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \({type_}\).*{reason}"):
        node_of(type_, inputs, **attributes)


@pytest.mark.parametrize(
    ("type_", "attributes", "reason"),
    [
        (LAYER, {"axis": 3}, r"'axis'.*\[-3, 2\]"),
        (LAYER, {"epsilon": -1.0}, "'epsilon'"),
        (LAYER, {"stash_type": 16}, "'stash_type'"),
        (GROUP, {"num_groups": 4}, r"'num_groups'.*must divide the 6 channels"),
        (GROUP, {"num_groups": 0}, r"'num_groups'.*at least 1"),
        (GROUP, {}, r"'num_groups'.* is required"),
    ],
)
def test_attributes(type_: str, attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(AttributeRuleError, match=reason):
        node_of(type_, [(2, 6, 4), (6,), (6,)], **attributes)


@pytest.mark.parametrize("type_", [LAYER, INSTANCE, GROUP])
def test_what_backward_reads(type_: str) -> None:
    inputs: list[Input] = [(2, 6, 6), (6,), (6,)]
    attributes = {"num_groups": 2} if type_ == GROUP else {}
    saved = {MEAN, INVERSE_DEVIATION}
    cases: list[tuple[tuple[int, ...], set[int], set[str]]] = [
        ((0,), {0, 1}, saved),
        ((1,), {0}, saved),
        ((1, 2), {0}, saved),
        ((2,), set(), set()),
        ((0, 1, 2), {0, 1}, saved),
    ]
    for wanted, reads, kept in cases:
        found, outputs, needs = needs_of(type_, inputs, wanted, **attributes)
        assert (found, outputs, set(needs.saved)) == (reads, set(), kept)


def test_the_root_of_squares_saves_one_statistic() -> None:
    """The mean stays in the rows, so nothing has to remember it."""
    inputs: list[Input] = [(2, 3, 4), (3, 4)]
    assert output_of(RMS, inputs, axis=1) == (2, 3, 4)
    saved = lookup(RMS).saved(node_of(RMS, inputs, axis=1))
    assert [(request.name, request.type.shape) for request in saved] == [(INVERSE_DEVIATION, (2, 1, 1))]
    for wanted, reads in (((0,), {0, 1}), ((1,), {0}), ((0, 1), {0, 1})):
        found, outputs, needs = needs_of(RMS, inputs, wanted, axis=1)
        assert (found, outputs, set(needs.saved)) == (reads, set(), {INVERSE_DEVIATION})
