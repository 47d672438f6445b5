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


ELEMENTWISE: list[tuple[str, dict[str, Any]]] = [
    ("MeanAbsoluteError", {}),
    ("Huber", {}),
    ("Huber", {"delta": 0.4}),
    ("BinaryCrossEntropy", {}),
    ("BinaryCrossEntropy", {"from_logits": 1}),
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


@pytest.mark.parametrize("shape", [(3, 4), (), (2, 1, 3), (70_001,)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("type_", "attributes"), ELEMENTWISE)
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


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("logits", [0, 1])
@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 4), (4,)])
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


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("type_", "attributes"), [*ELEMENTWISE, ("KLDivergence", {}), ("KLDivergence", {"from_logits": 1})]
)
def test_other_losses_allocate_nothing_of_tensor_size(
    type_: str, attributes: dict[str, Any], reduction: str
) -> None:
    values = [
        probabilities(20000, 12).astype(np.float32),
        probabilities(20000, 12, seed=2).astype(np.float32),
    ]
    operation = OneOperation(type_, values, reduction=reduction, **attributes)
    assert allocated(operation.prepare_forward()[1]) < 64 * 1024
    dy = np.ones(operation.types[0].shape, np.float32)
    for wanted in [(0,), (1,), (0, 1)]:
        assert allocated(operation.prepare_backward(dy, *wanted)[1]) < 64 * 1024


@pytest.mark.parity
def test_pytorch_agrees_on_the_other_losses() -> None:
    import torch

    f = torch.nn.functional
    pairs: list[tuple[str, dict[str, Any], Any, list[Array]]] = [
        ("MeanAbsoluteError", {}, f.l1_loss, elementwise_values("Huber", {}, 6, 5)),
        (
            "Huber",
            {"delta": 0.5},
            lambda p, t: f.huber_loss(p, t, delta=0.5),
            elementwise_values("Huber", {}, 6, 5),
        ),
        (
            "BinaryCrossEntropy",
            {"from_logits": 1},
            f.binary_cross_entropy_with_logits,
            elementwise_values("BinaryCrossEntropy", {"from_logits": 1}, 6, 5),
        ),
        (
            "KLDivergence",
            {},
            lambda p, t: f.kl_div(p.log(), t, reduction="batchmean"),
            [probabilities(6, 5), probabilities(6, 5, seed=2)],
        ),
    ]
    for type_, attributes, function, (prediction, target) in pairs:
        operation = OneOperation(type_, [prediction, target], **attributes)
        tensor = torch.tensor(prediction, requires_grad=True)
        loss = function(tensor, torch.tensor(target))
        loss.backward()
        np.testing.assert_allclose(operation.forward(), loss.item(), rtol=1e-12)
        np.testing.assert_allclose(operation.backward(np.asarray(1.0), 0)[0], tensor.grad.numpy(), rtol=1e-10)


@pytest.mark.parity
def test_pytorch_agrees() -> None:
    import torch

    logits, labels = np.random.default_rng(1).standard_normal((6, 5)), np.arange(6) % 5
    operation = OneOperation(
        "CategoricalCrossEntropy", [logits, labels], sparse=1, from_logits=1, label_smoothing=0.1
    )
    tensor = torch.tensor(logits, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(tensor, torch.tensor(labels), label_smoothing=0.1)
    loss.backward()
    np.testing.assert_allclose(operation.forward(), loss.item(), rtol=1e-12)
    np.testing.assert_allclose(operation.backward(np.asarray(1.0), 0)[0], tensor.grad.numpy(), rtol=1e-10)
