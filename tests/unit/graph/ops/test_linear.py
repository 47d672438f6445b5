"""Gemm and MatMul: shapes, refusals that name operation and shapes, what backward reads."""

from __future__ import annotations

from itertools import combinations

import pytest

from solver.errors import ShapeMismatchError
from tests.support.one_node import Input, needs_of, node_of


def test_a_mismatch_names_operands_and_shapes() -> None:
    with pytest.raises(ShapeMismatchError) as caught:
        node_of("Gemm", [(2, 3), (4, 5), (5,)])
    assert "x0 is float32[2, 3], x1 is float32[4, 5], x2 is float32[5]" in str(caught.value)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gemm_without_activation_stages_nothing_but_the_bias_sum(size: int) -> None:
    for wanted in combinations(range(3), size):
        _, _, needs = needs_of("Gemm", [(2, 3), (3, 4), (4,)], wanted)
        assert [request.name for request in needs.scratch] == (["partial"] if 2 in wanted else [])


def test_the_scratch_budget_bounds_what_is_staged() -> None:
    """Without the derivative of B, rows of dZ fit the budget of 2 MiB; with it, all are needed."""
    inputs: list[Input] = [(10_000, 8), (8, 1000)]
    _, _, needs = needs_of("Gemm", inputs, (0,), activation="Relu")
    assert [request.type.shape for request in needs.scratch] == [(524, 1000)]
    assert needs.scratch[0].type.nbytes <= 2 * 1024 * 1024
    _, _, needs = needs_of("Gemm", inputs, (1,), activation="Relu")
    assert [request.type.shape for request in needs.scratch] == [(10_000, 1000)]


def test_a_batch_that_shares_an_operand_sums_through_one_matrix() -> None:
    _, _, needs = needs_of("MatMul", [(1, 2, 3), (5, 3, 4)], (0, 1))
    assert [(request.name, request.type.shape) for request in needs.scratch] == [("partial_left", (2, 3))]
    _, _, needs = needs_of("MatMul", [(6, 5, 2, 3), (5, 3, 4)], (0, 1))
    assert [(request.name, request.type.shape) for request in needs.scratch] == [("partial_right", (3, 4))]
    _, _, needs = needs_of("MatMul", [(6, 5, 2, 3), (3, 4)], (0, 1))
    assert needs.scratch == ()
