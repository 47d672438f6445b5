"""Losses: forward against their formulas, derivatives against central differences, extremes, memory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from solver.errors import GraphError
from solver.graph.ops.loss import PROBABILITY_EPSILON
from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation

REDUCTIONS = ["mean", "sum", "none"]
VARIANTS = [
    {"from_logits": logits, "sparse": sparse, "label_smoothing": smoothing, "reduction": reduction}
    for logits, sparse, smoothing, reduction in itertools.product((0, 1), (0, 1), (0.0, 0.2), REDUCTIONS)
]


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


@grid("shape", [(6, 5), (2, 3, 4), (4,)])
@grid("variant", VARIANTS)
def test_cross_entropy_is_its_formula(variant: dict[str, Any], shape: tuple[int, ...]) -> None:
    """So are the derivatives of the prediction and, where the target is dense, of the target."""
    values = cross_entropy_values(variant, *shape, labels="int64" if len(shape) == 3 else "int32")
    operation = OneOperation("CategoricalCrossEntropy", values, **variant)
    expected = cross_entropy(values[0], values[1], variant)
    assert operation.forward().shape == expected.shape
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-10)
    operation.assert_derivatives()


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


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "sum_of_means"])
def test_squared_error(reduction: str) -> None:
    values = [
        np.random.default_rng(1).standard_normal((3, 4)),
        np.random.default_rng(2).standard_normal((3, 4)),
    ]
    operation = OneOperation("MeanSquaredError", values, reduction=reduction)
    squares = (values[0] - values[1]) ** 2
    expected = {
        "mean": squares.mean(),
        "sum": squares.sum(),
        "sum_of_means": squares.mean(axis=1).sum(),
        "none": squares,
    }[reduction]
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-12)
    operation.assert_derivatives()


@pytest.mark.parametrize("epsilon", [PROBABILITY_EPSILON, 1e-20, 1e-30])
def test_a_probability_of_zero_costs_the_bound_and_still_learns(epsilon: float) -> None:
    prediction = np.array([[0.0, 1.0]], np.float32)
    operation = OneOperation(
        "CategoricalCrossEntropy", [prediction, np.array([[1.0, 0.0]], np.float32)], epsilon=epsilon
    )
    np.testing.assert_allclose(operation.forward(), -np.log(epsilon), rtol=1e-6)
    found = operation.backward(np.asarray(1.0, np.float32), 0)[0]
    np.testing.assert_allclose(found, [[-1 / epsilon, 0]], rtol=1e-6)


def test_a_small_probability_above_epsilon_is_taken_as_it_is() -> None:
    prediction = np.array([[1e-12, 1.0]], np.float32)
    operation = OneOperation(
        "CategoricalCrossEntropy", [prediction, np.array([[1.0, 0.0]], np.float32)], epsilon=1e-20
    )
    np.testing.assert_allclose(operation.forward(), -np.log(1e-12), rtol=1e-6)


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


ELEMENTWISE: list[tuple[str, dict[str, Any]]] = [
    ("MeanAbsoluteError", {}),
    ("Huber", {}),
    ("Huber", {"delta": 0.4}),
    ("BinaryCrossEntropy", {}),
    ("BinaryCrossEntropy", {"from_logits": 1}),
    ("BinaryCrossEntropy", {"clamp": "logarithm"}),
]


def elementwise_values(type_: str, attributes: dict[str, Any], *shape: int) -> list[Array]:
    rng = np.random.default_rng(1)
    if type_ == "BinaryCrossEntropy":
        low, high = (-3, 3) if attributes.get("from_logits") else (0.05, 0.95)
        return [rng.uniform(low, high, shape), rng.uniform(0, 1, shape)]
    return [rng.standard_normal(shape), rng.standard_normal(shape)]


def elementwise_losses(type_: str, attributes: dict[str, Any], p: Array, t: Array) -> Array:
    """The definitions, in NumPy."""
    if type_ == "BinaryCrossEntropy":
        p = 1 / (1 + np.exp(-p)) if attributes.get("from_logits") else p
        return np.asarray(-(t * np.log(p) + (1 - t) * np.log(1 - p)))
    distance, delta = np.abs(p - t), attributes.get("delta", 1.0)
    if type_ == "MeanAbsoluteError":
        return np.asarray(distance)
    return np.asarray(np.where(distance <= delta, distance**2 / 2, delta * (distance - delta / 2)))


@grid("shape", [(3, 4), (), (2, 1, 3), (70_001,)])
@grid("reduction", REDUCTIONS)
@grid(("type_", "attributes"), ELEMENTWISE)
def test_elementwise_losses(
    type_: str, attributes: dict[str, Any], reduction: str, shape: tuple[int, ...]
) -> None:
    values = elementwise_values(type_, attributes, *shape)
    operation = OneOperation(type_, values, reduction=reduction, **attributes)
    losses = elementwise_losses(type_, attributes, *values)
    expected = {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-10)
    if len(shape) != 1:
        operation.assert_derivatives()


@pytest.mark.parametrize("type_", ["MeanAbsoluteError", "Huber"])
def test_the_derivative_at_a_distance_of_zero_is_zero(type_: str) -> None:
    found = OneOperation(type_, [np.ones(2), np.ones(2)]).backward(np.asarray(1.0), 0, 1)
    assert found[0].tolist() == found[1].tolist() == [0, 0]


def test_binary_probabilities_of_zero_and_one_cost_the_bound_and_still_learn() -> None:
    for dtype in ("float32", "float64"):
        prediction, target = np.array([0.0, 1.0], dtype), np.array([1.0, 0.0], dtype)
        operation = OneOperation("BinaryCrossEntropy", [prediction, target], reduction="sum")
        np.testing.assert_allclose(operation.forward(), -2 * np.log(PROBABILITY_EPSILON), rtol=2e-2)
        found = operation.backward(np.asarray(1.0, dtype), 0)[0] * PROBABILITY_EPSILON
        np.testing.assert_allclose(found, [-1, 1], rtol=0.3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_logits_of_any_size_are_finite_and_silent(dtype: str) -> None:
    x = np.array([-1e4, -50, 0, 50, 1e4], dtype)
    with np.errstate(all="raise", under="ignore"):
        values = [x, np.ones_like(x)]
        operation = OneOperation("BinaryCrossEntropy", values, from_logits=1, reduction="none")
        np.testing.assert_allclose(operation.forward(), [1e4, 50, np.log(2), 0, 0], rtol=1e-6, atol=1e-20)
        found = operation.backward(np.ones(5, dtype), 0)[0]
    np.testing.assert_allclose(found, [-1, -1, -0.5, 0, 0], rtol=1e-6, atol=1e-20)


@grid("reduction", REDUCTIONS)
@grid("logits", [0, 1])
@grid("shape", [(6, 5), (2, 3, 4), (4,)])
def test_divergence(shape: tuple[int, ...], logits: int, reduction: str) -> None:
    rng = np.random.default_rng(1)
    prediction = rng.standard_normal(shape) if logits else probabilities(*shape)
    target = probabilities(*shape, seed=2)
    operation = OneOperation("KLDivergence", [prediction, target], from_logits=logits, reduction=reduction)
    p = np.exp(prediction) / np.exp(prediction).sum(axis=-1, keepdims=True) if logits else prediction
    losses = (target * np.log(target / p)).sum(axis=-1)
    expected = {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]
    assert operation.forward().shape == expected.shape
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-9)
    operation.assert_derivatives()


def test_divergence_from_itself_is_zero_also_where_a_probability_is_zero() -> None:
    p = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])
    operation = OneOperation("KLDivergence", [p, p])
    np.testing.assert_allclose(operation.forward(), 0, atol=1e-15)
    assert np.isfinite(operation.backward(np.asarray(1.0), 0, 1)[0]).all()


# ------------------------------------------------------------------ classes that are masked or ignored


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_masked_class_costs_nothing_unless_it_is_the_label(dtype: str, reduction: str) -> None:
    logits = np.array([[1.0, -np.inf, 3.0], [-np.inf, 0.5, 0.5], [2.0, 1.0, 0.0]], dtype)
    labels = np.array([2, 1, 0])
    losses = -log_softmax(logits)[np.arange(3), labels]
    expected = {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]
    operation = OneOperation(
        "CategoricalCrossEntropy", [logits, labels], from_logits=1, sparse=1, reduction=reduction
    )
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-6)
    dy = np.ones(operation.types[0].shape, dtype)
    scale = 1 / 3 if reduction == "mean" else 1
    dx = operation.backward(dy, 0)[0]
    np.testing.assert_allclose(dx, (np.exp(log_softmax(logits)) - np.eye(3)[labels]) * scale, atol=1e-6)


def test_a_masked_label_costs_infinity() -> None:
    logits = np.array([[1.0, -np.inf]], np.float32)
    operation = OneOperation("CategoricalCrossEntropy", [logits, np.array([1])], from_logits=1, sparse=1)
    assert operation.forward() == np.inf


IGNORING = [
    {**variant, "ignore_index": ignored}
    for variant, ignored in itertools.product((v for v in VARIANTS if v["sparse"]), (-100, 2))
]


@grid("variant", IGNORING)
def test_ignored_examples_have_no_loss_and_no_derivative(variant: dict[str, Any]) -> None:
    """The others are as they are without them, whatever the scores of those ignored."""
    prediction, labels = cross_entropy_values({**variant, "sparse": 1}, 9, 4)
    ignored, kept = [1, 4, 5], [0, 2, 3, 6, 7, 8]
    labels[kept] = np.array([0, 1, 3, 1, 0, 3])
    labels[ignored] = variant["ignore_index"]
    prediction[4] = np.nan
    operation = OneOperation("CategoricalCrossEntropy", [prediction, labels], **variant)
    others = {key: value for key, value in variant.items() if key != "ignore_index"}
    alone = OneOperation("CategoricalCrossEntropy", [prediction[kept], labels[kept]], **others)
    losses, expected = operation.forward(), alone.forward()
    if variant["reduction"] == "none":
        assert not losses[ignored].any()
        losses = losses[kept]
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    dy = np.asarray(1.0) if variant["reduction"] != "none" else np.arange(1.0, 10)
    dx = operation.backward(dy, 0)[0]
    assert not dx[ignored].any()
    np.testing.assert_allclose(
        dx[kept], alone.backward(dy[kept] if dy.ndim else dy, 0)[0], rtol=1e-12, atol=1e-15
    )


def test_the_mean_of_no_example_is_no_number_and_teaches_nothing() -> None:
    operation = OneOperation(
        "CategoricalCrossEntropy",
        [np.zeros((2, 3)), np.array([-100, -100])],
        from_logits=1,
        sparse=1,
        ignore_index=-100,
    )
    assert np.isnan(operation.forward())
    assert not operation.backward(np.asarray(1.0), 0)[0].any()


def test_ignoring_no_example_changes_no_bit() -> None:
    values = cross_entropy_values({"from_logits": 1, "sparse": 1}, 20011, 7)
    common: dict[str, Any] = {"from_logits": 1, "sparse": 1}
    plain = OneOperation("CategoricalCrossEntropy", values, **common)
    ignoring = OneOperation("CategoricalCrossEntropy", values, ignore_index=-100, **common)
    assert plain.forward().tobytes() == ignoring.forward().tobytes()
    dy = np.asarray(1.0)
    assert plain.backward(dy, 0)[0].tobytes() == ignoring.backward(dy, 0)[0].tobytes()


def test_a_label_that_is_no_class_says_which_one_is_ignored() -> None:
    values = [np.full((3, 5), 0.2), np.array([0, -100, -1])]
    operation = OneOperation("CategoricalCrossEntropy", values, sparse=1, ignore_index=-100)
    with pytest.raises(GraphError, match=r"'op' is -1\. .*lie in \[0, 4\], or be -100, which is ignored"):
        operation.forward()


def test_only_classes_can_be_ignored() -> None:
    with pytest.raises(GraphError, match="sparse targets only"):
        OneOperation("CategoricalCrossEntropy", [np.ones((2, 3)), np.ones((2, 3))], ignore_index=0)


def test_clamped_logarithms_are_those_of_pytorch() -> None:
    """log p and log(1 - p) are at least -100; the derivative divides by p (1 - p), at least 1e-12."""
    prediction = np.array([0.0, 1.0, 1.0, 0.25], np.float32)
    target = np.array([1.0, 0.0, 1.0, 0.5], np.float32)
    operation = OneOperation("BinaryCrossEntropy", [prediction, target], clamp="logarithm", reduction="none")
    expected = [100, 100, 0, -(np.log(0.25) + np.log(0.75)) / 2]
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-6)
    dx = operation.backward(np.ones(4, np.float32), 0)[0]
    np.testing.assert_allclose(dx, [-1e12, 1e12, 0, -0.25 / (0.25 * 0.75)], rtol=1e-6)
