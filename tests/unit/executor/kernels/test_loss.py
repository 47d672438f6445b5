"""Losses: forward against their formulas, derivatives against central differences, extremes, memory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from solver.errors import GraphError
from solver.graph.ops.loss import PROBABILITY_EPSILON
from solver.graph.types import Array
from tests.support.one_operation import OneOperation, allocated

REDUCTIONS = ["mean", "sum", "none"]
VARIANTS = [
    {"from_logits": logits, "sparse": sparse, "label_smoothing": smoothing, "reduction": reduction}
    for logits, sparse, smoothing, reduction in itertools.product((0, 1), (0, 1), (0.0, 0.2), REDUCTIONS)
]


def name_of(variant: dict[str, Any]) -> str:
    return "-".join(map(str, variant.values()))


def probabilities(*shape: int, seed: int = 0) -> Array:
    raw = np.random.default_rng(seed).uniform(0.1, 1, shape)
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


def cross_entropy_values(variant: dict[str, Any], *shape: int, labels: str = "int32") -> list[Array]:
    rng = np.random.default_rng(1)
    prediction = rng.standard_normal(shape) if variant["from_logits"] else probabilities(*shape)
    if variant["sparse"]:
        return [prediction, rng.integers(0, shape[-1], shape[:-1]).astype(labels)]
    return [prediction, probabilities(*shape, seed=2)]


def cross_entropy(prediction: Array, target: Array, variant: dict[str, Any]) -> Array:
    """The definition, in NumPy, with no care for extremes."""
    classes = prediction.shape[-1]
    if variant["sparse"]:
        target = (np.arange(classes) == target[..., None]).astype(prediction.dtype)
    target = (1 - variant["label_smoothing"]) * target + variant["label_smoothing"] / classes
    if variant["from_logits"]:
        prediction = np.exp(prediction) / np.exp(prediction).sum(axis=-1, keepdims=True)
    losses = -(target * np.log(prediction)).sum(axis=-1)
    return np.asarray({"mean": losses.mean(), "sum": losses.sum(), "none": losses}[variant["reduction"]])


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 4), (4,)])
@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_cross_entropy_is_its_formula(variant: dict[str, Any], shape: tuple[int, ...]) -> None:
    values = cross_entropy_values(variant, *shape)
    found = OneOperation("CategoricalCrossEntropy", values, **variant).forward()
    expected = cross_entropy(values[0], values[1], variant)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_derivatives_of_cross_entropy(variant: dict[str, Any]) -> None:
    """Of the prediction and, where the target is dense, of the target too."""
    values = cross_entropy_values(variant, 2, 3, 4, labels="int64")
    OneOperation("CategoricalCrossEntropy", values, **variant).assert_derivatives()


def test_a_target_that_sums_to_something_else_is_taken_at_its_word() -> None:
    values = [
        np.random.default_rng(1).standard_normal((3, 4)),
        np.random.default_rng(2).uniform(0, 2, (3, 4)),
    ]
    OneOperation("CategoricalCrossEntropy", values, from_logits=1).assert_derivatives()


@pytest.mark.parametrize("logits", [0, 1])
def test_sparse_labels_are_one_hot_labels(logits: int) -> None:
    variant = {"from_logits": logits, "sparse": 1}
    prediction, labels = cross_entropy_values(variant, 7, 5)
    common: dict[str, Any] = {"from_logits": logits, "label_smoothing": 0.1}
    sparse = OneOperation("CategoricalCrossEntropy", [prediction, labels], sparse=1, **common)
    dense = OneOperation("CategoricalCrossEntropy", [prediction, np.eye(5)[labels]], **common)
    assert sparse.forward() == dense.forward()
    dy = np.asarray(1.0)
    np.testing.assert_allclose(sparse.backward(dy, 0)[0], dense.backward(dy, 0)[0], rtol=1e-14)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_squared_error(reduction: str) -> None:
    values = [
        np.random.default_rng(1).standard_normal((3, 4)),
        np.random.default_rng(2).standard_normal((3, 4)),
    ]
    operation = OneOperation("MeanSquaredError", values, reduction=reduction)
    squares = (values[0] - values[1]) ** 2
    expected = {"mean": squares.mean(), "sum": squares.sum(), "none": squares}[reduction]
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-12)
    operation.assert_derivatives()


def test_a_probability_of_zero_costs_the_bound_and_still_learns() -> None:
    prediction = np.array([[0.0, 1.0]], np.float32)
    operation = OneOperation("CategoricalCrossEntropy", [prediction, np.array([[1.0, 0.0]], np.float32)])
    np.testing.assert_allclose(operation.forward(), -np.log(PROBABILITY_EPSILON), rtol=1e-6)
    found = operation.backward(np.asarray(1.0, np.float32), 0)[0]
    np.testing.assert_allclose(found, [[-1 / PROBABILITY_EPSILON, 0]], rtol=1e-6)


def test_logits_of_any_size_give_a_finite_loss() -> None:
    logits = np.array([[1e4, -1e4], [-1e30, 1e30]], np.float32)
    operation = OneOperation("CategoricalCrossEntropy", [logits, np.array([0, 1])], from_logits=1, sparse=1)
    assert operation.forward() == 0
    assert not operation.backward(np.asarray(1.0, np.float32), 0)[0].any()


def test_confident_logits_keep_their_small_loss() -> None:
    """log softmax is computed as such: the logarithm of a softmax rounded to 1 would be 0."""
    logits = np.array([[20.0, 0.0]], np.float64)
    found = OneOperation(
        "CategoricalCrossEntropy", [logits, np.array([0])], from_logits=1, sparse=1
    ).forward()
    np.testing.assert_allclose(found, np.log1p(np.exp(-20.0)), rtol=1e-6)


@pytest.mark.parametrize("label", [-1, 5, 2**40])
@pytest.mark.parametrize("logits", [0, 1])
def test_a_label_outside_the_classes_is_named(label: int, logits: int) -> None:
    prediction = np.full((3, 5), 0.2)
    operation = OneOperation(
        "CategoricalCrossEntropy", [prediction, np.array([0, label, 1])], sparse=1, from_logits=logits
    )
    with pytest.raises(GraphError, match=rf"'op' is {label}\. Labels must lie in \[0, 4\]"):
        operation.forward()


@pytest.mark.parametrize("logits", [0, 1])
@pytest.mark.parametrize("shape", [(20011, 7), (3, 40000), (70001, 1)])
def test_examples_in_blocks(shape: tuple[int, ...], logits: int) -> None:
    variant: dict[str, Any] = {
        "from_logits": logits,
        "sparse": 1,
        "label_smoothing": 0.1,
        "reduction": "mean",
    }
    values = cross_entropy_values(variant, *shape)
    found = OneOperation("CategoricalCrossEntropy", values, **variant)
    np.testing.assert_allclose(found.forward(), cross_entropy(values[0], values[1], variant), rtol=1e-10)
    dx = found.backward(np.asarray(1.0), 0)[0]
    first = OneOperation(
        "CategoricalCrossEntropy", [v[-2:] for v in values], **{**variant, "reduction": "sum"}
    ).backward(np.asarray(1 / shape[0]), 0)[0]
    np.testing.assert_allclose(dx[-2:], first, rtol=1e-12)


LARGE: list[tuple[str, bool, dict[str, Any]]] = [
    ("MeanSquaredError", False, {}),
    ("MeanSquaredError", False, {"reduction": "none"}),
    *(("CategoricalCrossEntropy", bool(v["sparse"]), v) for v in VARIANTS if v["label_smoothing"]),
]


@pytest.mark.parametrize(("type_", "sparse", "attributes"), LARGE)
def test_nothing_of_tensor_size_is_allocated(type_: str, sparse: bool, attributes: dict[str, Any]) -> None:
    prediction = probabilities(20000, 12).astype(np.float32)
    target = np.zeros(20000, np.int64) if sparse else prediction
    operation = OneOperation(type_, [prediction, target], **attributes)
    assert allocated(operation.prepare_forward()[1]) < 64 * 1024
    dy = np.ones(operation.types[0].shape, np.float32)
    for wanted in [(0,)] if sparse else [(0,), (1,), (0, 1)]:
        assert allocated(operation.prepare_backward(dy, *wanted)[1]) < 64 * 1024


def test_pytorch_agrees() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer to compare with")
    logits, labels = np.random.default_rng(1).standard_normal((6, 5)), np.arange(6) % 5
    operation = OneOperation(
        "CategoricalCrossEntropy", [logits, labels], sparse=1, from_logits=1, label_smoothing=0.1
    )
    tensor = torch.tensor(logits, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(tensor, torch.tensor(labels), label_smoothing=0.1)
    loss.backward()
    np.testing.assert_allclose(operation.forward(), loss.item(), rtol=1e-12)
    np.testing.assert_allclose(operation.backward(np.asarray(1.0), 0)[0], tensor.grad.numpy(), rtol=1e-10)
