"""Gemm and MatMul: shapes, refusals that name operation and shapes, what backward reads."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

DOUBLE = TensorType((3, 4), DType.FLOAT64)
INTEGER = TensorType((3, 4), DType.INT32)


def test_shapes_of_gemm() -> None:
    assert output_of("Gemm", [(2, 3), (3, 4)]) == (2, 4)
    assert output_of("Gemm", [(3, 2), (3, 4)], transA=1) == (2, 4)
    assert output_of("Gemm", [(2, 3), (4, 3), (4,)], transB=1) == (2, 4)
    assert output_of("Gemm", [(2, 3), (3, 4), None]) == (2, 4)


@grid(
    ("inputs", "attributes", "reason"),
    [
        ([(2, 3), (4, 3)], {}, r"inner dimensions 3 and 4 differ \(transA=0, transB=0\)"),
        ([(2, 3), (3, 4)], {"transB": 1}, "inner dimensions 3 and 4 differ"),
        ([(2, 3, 1), (3, 4)], {}, "expected two matrices"),
        ([(2, 3), (3,)], {}, "expected two matrices"),
        ([(2, 3), (3, 4), (5,)], {}, r"bias does not broadcast to \[2, 4\]"),
        ([(2, 3), (3, 4), (2,)], {}, "bias does not broadcast"),
        ([(2, 3), (3, 4), (1, 1, 4)], {}, "bias does not broadcast"),
        ([(2, 3), DOUBLE], {}, "one floating element type"),
        ([(2, 3), INTEGER], {}, "one floating element type"),
        ([INTEGER, INTEGER], {}, "one floating element type"),
        ([(2, 3), None], {}, "lacks input 1"),
    ],
)
def test_gemm_refuses(inputs: list[Input], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=reason) as caught:
        node_of("Gemm", inputs, **attributes)
    assert "'dense1' (Gemm)" in str(caught.value)


def test_a_mismatch_names_operands_and_shapes() -> None:
    with pytest.raises(ShapeMismatchError) as caught:
        node_of("Gemm", [(2, 3), (4, 5), (5,)])
    assert "x0 is float32[2, 3], x1 is float32[4, 5], x2 is float32[5]" in str(caught.value)


@pytest.mark.parametrize(
    "attributes", [{"transA": 2}, {"alpha": "1"}, {"activation": "Gelu"}, {"gamma": 1.0}]
)
def test_gemm_refuses_attributes(attributes: dict[str, Any]) -> None:
    with pytest.raises(AttributeRuleError, match="dense1"):
        node_of("Gemm", [(2, 3), (3, 4)], **attributes)


@grid(
    ("wanted", "reads"),
    [
        ((0,), {1}),
        ((1,), {0}),
        ((2,), set()),
        ((0, 1), {0, 1}),
        ((0, 2), {1}),
        ((1, 2), {0}),
        ((0, 1, 2), {0, 1}),
    ],
)
@grid("activation", ["None", "Relu"])
def test_gemm_reads_the_other_operand(wanted: tuple[int, ...], reads: set[int], activation: str) -> None:
    inputs, outputs, _ = needs_of("Gemm", [(2, 3), (3, 4), (4,)], wanted, activation=activation)
    assert inputs == reads
    assert outputs == ({0} if activation == "Relu" else set())


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


@grid(
    ("left", "right"),
    [
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((3,), (5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((2, 3), (1, 1, 3, 4)),
        ((1, 2, 3), (1, 3, 4)),
    ],
)
def test_shapes_of_matmul_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    expected = np.matmul(np.zeros(left), np.zeros(right)).shape
    assert output_of("MatMul", [left, right]) == expected


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ((2, 3), (2, 3), "inner dimensions 3 and 2 differ"),
        ((3,), (2,), "inner dimensions 3 and 2 differ"),
        ((2, 2, 3), (3, 3, 4), "batches do not broadcast"),
        ((), (3,), "scalar cannot be multiplied"),
        ((3,), (), "scalar cannot be multiplied"),
    ],
)
def test_matmul_refuses(left: tuple[int, ...], right: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \(MatMul\).*{reason}"):
        node_of("MatMul", [left, right])


@pytest.mark.parametrize(("wanted", "reads"), [((0,), {1}), ((1,), {0}), ((0, 1), {0, 1})])
@pytest.mark.parametrize("activation", ["None", "Tanh"])
def test_matmul_reads_the_other_operand(wanted: tuple[int, ...], reads: set[int], activation: str) -> None:
    inputs, outputs, _ = needs_of("MatMul", [(5, 2, 3), (5, 3, 4)], wanted, activation=activation)
    assert inputs == reads
    assert outputs == ({0} if activation == "Tanh" else set())


def test_a_batch_that_shares_an_operand_sums_through_one_matrix() -> None:
    _, _, needs = needs_of("MatMul", [(1, 2, 3), (5, 3, 4)], (0, 1))
    assert [(request.name, request.type.shape) for request in needs.scratch] == [("partial_left", (2, 3))]
    _, _, needs = needs_of("MatMul", [(6, 5, 2, 3), (5, 3, 4)], (0, 1))
    assert [(request.name, request.type.shape) for request in needs.scratch] == [("partial_right", (3, 4))]
    _, _, needs = needs_of("MatMul", [(6, 5, 2, 3), (3, 4)], (0, 1))
    assert needs.scratch == ()
