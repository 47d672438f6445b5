"""ProductLogSumExp: results, refusals that name what does not agree, needs of backward, chunks, scratch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.head import head
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of

HEAD = "ProductLogSumExp"


def classes(rows: int, dtype: DType = DType.INT64) -> TensorType:
    return TensorType((rows,), dtype)


@grid("trans_b", [0, 1])
def test_two_numbers_of_each_row(trans_b: int) -> None:
    node = node_of(HEAD, [(4, 3), (9, 3) if trans_b else (3, 9), classes(4), (9,)], outputs=2, transB=trans_b)
    assert node.outputs == (TensorType((4,), DType.FLOAT32),) * 2


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([(4, 3), (2, 9), classes(4)], r"inner dimensions 3 and 2 differ \(transB=0\)"),
        ([(2, 4, 3), (3, 9), classes(8)], "two matrices"),
        ([(4, 3), (3, 0), classes(4)], "at least one column"),
        ([(4, 3), (3, 9), classes(5)], r"classes of shape \[4\]"),
        ([(4, 3), (3, 9), (4,)], "int32 or int64 classes"),
        ([(4, 3), (3, 9), classes(4), (1, 9)], r"a bias of shape \[9\]"),
        ([(4, 3), TensorType((3, 9), DType.FLOAT64), classes(4)], "one floating element type"),
    ],
)
def test_what_does_not_agree_is_refused(inputs: list[Input], words: str) -> None:
    with pytest.raises(ShapeMismatchError, match=words):
        node_of(HEAD, inputs, outputs=2)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"classes": 8}, "is 8, but it must be at least 9"),
        ({"classes": 9, "first_class": 1}, "is 9, but it must be at least 10"),
        ({"chunk_rows": 0}, "'chunk_rows' .* must be at least 1"),
        ({"first_class": -1}, "'first_class' .* must be at least 0"),
    ],
)
def test_attributes_out_of_range_are_refused(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(AttributeRuleError, match=words):
        node_of(HEAD, [(4, 3), (3, 9), classes(4)], outputs=2, **attributes)


@pytest.mark.parametrize("wanted", [(0,), (1,), (3,), (0, 1, 3)])
def test_backward_reads_all_inputs_and_the_log_sum_exp(wanted: tuple[int, ...]) -> None:
    """Nothing but L is kept for it; what is added up has scratch where there are several chunks."""
    inputs: list[Input] = [(200, 30), (30, 900), classes(200), (900,)]
    read, outputs, needs = needs_of(HEAD, inputs, wanted, outputs=2, chunk_rows=100, chunk_columns=300)
    assert (read, outputs, needs.saved) == ({0, 1, 2, 3}, {0}, frozenset())
    parts = {0: "part_of_dx", 1: "part_of_dw", 3: "part_of_dbias"}
    assert {request.name for request in needs.scratch} & {*parts.values()} == {parts[i] for i in wanted}
    _, _, whole = needs_of(HEAD, inputs, wanted, outputs=2, chunk_rows=200, chunk_columns=900)
    assert not {request.name for request in whole.scratch} & {*parts.values()}


@grid("sizes", [(256, 896, 151_936), (256, 64, 100), (4, 896, 151_936), (8192, 4096, 32_000), (16, 8, 16)])
@grid("budget", [1, 1 << 18, 1 << 21, 1 << 25])
def test_the_scratch_budget_bounds_a_chunk(sizes: tuple[int, int, int], budget: int) -> None:
    """Down to 64 x 64; and no chunk has rows or columns that are not there."""
    rows, inner, columns = sizes
    node = node_of(HEAD, [(rows, inner), (inner, columns), classes(rows)], outputs=2)
    chunk = head(replace(node, scratch_budget=budget))
    assert 1 <= chunk.chunk_rows <= rows
    assert 1 <= chunk.chunk_columns <= columns
    taken = chunk.chunk_rows * chunk.chunk_columns + (chunk.chunk_rows + chunk.chunk_columns) * inner
    least = min(rows, 64), min(columns, 64)
    assert 4 * taken <= budget or min(chunk.chunk_rows - least[0], chunk.chunk_columns - least[1]) == 0


def test_one_chunk_where_the_logits_are_within_the_budget() -> None:
    chunk = head(node_of(HEAD, [(64, 8), (8, 700), classes(64)], outputs=2))
    assert (chunk.chunk_rows, chunk.chunk_columns) == (64, 700)
    assert not chunk.splits_rows
    assert not chunk.splits_columns


def test_scratch_is_chunks_and_vectors_of_rows() -> None:
    node = node_of(HEAD, [(256, 896), (896, 151_936), classes(256)], outputs=2, ignore_index=-100)
    kind = lookup(HEAD)
    for requests in (kind.forward_scratch(node), kind.backward(node, frozenset({0})).scratch):
        assert sum(request.type.nbytes for request in requests) <= 1 << 21
        assert ("ignored", (256,)) in [(request.name, request.type.shape) for request in requests]
