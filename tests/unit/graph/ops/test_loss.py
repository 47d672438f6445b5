"""Losses: shapes of every reduction, refusals, what backward reads, scratch."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

LABELS = TensorType((6, 5), DType.INT64)
CROSS = "CategoricalCrossEntropy"


@pytest.mark.parametrize(("reduction", "shape"), [("mean", ()), ("sum", ()), ("none", (6, 5, 4))])
def test_squared_error(reduction: str, shape: tuple[int, ...]) -> None:
    assert output_of("MeanSquaredError", [(6, 5, 4), (6, 5, 4)], reduction=reduction) == shape


@pytest.mark.parametrize(("reduction", "shape"), [("mean", ()), ("sum", ()), ("none", (6, 5))])
def test_cross_entropy(reduction: str, shape: tuple[int, ...]) -> None:
    assert output_of(CROSS, [(6, 5, 4), (6, 5, 4)], reduction=reduction) == shape
    assert output_of(CROSS, [(6, 5, 4), LABELS], reduction=reduction, sparse=1) == shape


@grid(
    ("type_", "inputs", "attributes", "reason"),
    [
        ("MeanSquaredError", [(2, 3), (3,)], {}, "prediction and target of one shape"),
        ("MeanSquaredError", [(2, 3), TensorType((2, 3), DType.FLOAT64)], {}, "one floating element type"),
        ("MeanSquaredError", [(), ()], {"reduction": "sum_of_means"}, "a first axis of examples"),
        (CROSS, [(2, 3), (2, 4)], {}, "target of the type and shape of the prediction"),
        (CROSS, [(6, 5), LABELS], {}, "target of the type and shape of the prediction"),
        (CROSS, [(6, 5), LABELS], {"sparse": 1}, r"int32 or int64 classes of shape \[6\]"),
        (CROSS, [(6, 5, 4), (6, 5)], {"sparse": 1}, "int32 or int64 classes"),
        (CROSS, [(), ()], {}, "an axis of classes"),
        (CROSS, [LABELS, LABELS], {}, "one floating element type"),
    ],
)
def test_refusals(type_: str, inputs: list[Input], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \({type_}\): .*{reason}"):
        node_of(type_, inputs, **attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"label_smoothing": 1.5},
        {"label_smoothing": -0.1},
        {"reduction": "max"},
        {"from_logits": 2},
        {"epsilon": 0.0},
        {"epsilon": 1e-31},
        {"epsilon": 1.0},
    ],
)
def test_attributes_out_of_range(attributes: dict[str, Any]) -> None:
    (key,) = attributes
    with pytest.raises(AttributeRuleError, match=f"Attribute '{key}' of operation 'dense1'"):
        node_of(CROSS, [(2, 3), (2, 3)], **attributes)


def test_labels_have_no_derivative() -> None:
    sparse = node_of(CROSS, [(6, 5, 4), LABELS], sparse=1)
    assert lookup(CROSS).differentiable(sparse) == {0}
    assert lookup(CROSS).differentiable(node_of(CROSS, [(2, 3), (2, 3)])) == {0, 1}


@pytest.mark.parametrize("logits", [0, 1])
@pytest.mark.parametrize(("wanted", "reads"), [((0,), {0, 1}), ((1,), {0}), ((0, 1), {0, 1})])
def test_cross_entropy_reads(wanted: tuple[int, ...], reads: set[int], logits: int) -> None:
    inputs, outputs, needs = needs_of(CROSS, [(6, 5), (6, 5)], wanted, from_logits=logits)
    assert (inputs, outputs) == (reads, set())
    assert needs.reads_output_derivatives


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


ELEMENTWISE = ["MeanSquaredError", "MeanAbsoluteError", "Huber", "BinaryCrossEntropy"]


@pytest.mark.parametrize("type_", [*ELEMENTWISE, "KLDivergence"])
def test_all_losses_are_scalars_of_two_operands_alike(type_: str) -> None:
    assert lookup(type_).is_loss
    assert output_of(type_, [(6, 5, 4), (6, 5, 4)]) == ()
    assert output_of(type_, [(6, 5, 4), (6, 5, 4)], reduction="sum") == ()
    each = (6, 5) if type_ == "KLDivergence" else (6, 5, 4)
    assert output_of(type_, [(6, 5, 4), (6, 5, 4)], reduction="none") == each
    refused: list[list[Input]] = [[(2, 3), (3,)], [(2, 3), TensorType((2, 3), DType.FLOAT64)]]
    for inputs in refused:
        with pytest.raises(ShapeMismatchError, match=rf"'dense1' \({type_}\)"):
            node_of(type_, inputs)


def test_divergence_needs_classes() -> None:
    with pytest.raises(ShapeMismatchError, match="an axis of classes"):
        node_of("KLDivergence", [(), ()])


@pytest.mark.parametrize("delta", [0, -1.0, float("inf"), float("nan")])
def test_delta_is_positive(delta: float) -> None:
    with pytest.raises(AttributeRuleError, match=r"'delta'.*greater than 0"):
        node_of("Huber", [(2, 3), (2, 3)], delta=delta)


@pytest.mark.parametrize("type_", [*ELEMENTWISE, "KLDivergence"])
def test_what_the_losses_read(type_: str) -> None:
    alone = {0} if type_ == "BinaryCrossEntropy" else {0, 1}
    for wanted, reads in [((0,), {0, 1}), ((1,), alone), ((0, 1), {0, 1})]:
        inputs, outputs, needs = needs_of(type_, [(600, 500), (600, 500)], wanted)
        assert (inputs, outputs) == (reads, set())
        assert all(request.type.elements <= BLOCK_ELEMENTS for request in needs.scratch)
