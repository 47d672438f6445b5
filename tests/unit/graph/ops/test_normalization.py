"""Normalisation: shapes, refusals, rows and blocks, what backward reads."""

from __future__ import annotations

from typing import Any

import pytest

from solver.graph.ops import lookup
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.ops.normalization import INVERSE_DEVIATION, MEAN, Normalisation, Rows
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


def test_the_root_of_squares_saves_one_statistic() -> None:
    """The mean stays in the rows, so nothing has to remember it."""
    inputs: list[Input] = [(2, 3, 4), (3, 4)]
    assert output_of(RMS, inputs, axis=1) == (2, 3, 4)
    saved = lookup(RMS).saved(node_of(RMS, inputs, axis=1))
    assert [(request.name, request.type.shape) for request in saved] == [(INVERSE_DEVIATION, (2, 1, 1))]
    for wanted, reads in (((0,), {0, 1}), ((1,), {0}), ((0, 1), {0, 1})):
        found, outputs, needs = needs_of(RMS, inputs, wanted, axis=1)
        assert (found, outputs, set(needs.saved)) == (reads, set(), {INVERSE_DEVIATION})
