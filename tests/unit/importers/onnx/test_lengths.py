"""Recurrent operators on sequences of several lengths, against ONNX's evaluator on each sequence alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from solver.errors import GraphError
from solver.executor import Trainer, validate
from solver.graph import Array, OptimizerSpec
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.every import grid
from tests.support.onnx_models import imported, model_of, node

STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 3, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTHS = np.array([2, 4, 1])
RNG = np.random.default_rng(8)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape) * 0.7


def weights_of(op: str, directions: int, *, has_states: bool) -> dict[str, Array]:
    rows = GATES[op] * HIDDEN
    weights = {"W": floats(directions, rows, INPUTS), "R": floats(directions, rows, HIDDEN)}
    weights["B"] = floats(directions, 2 * rows)
    if has_states:
        weights |= {f"{state}0": floats(directions, BATCH, HIDDEN) for state in "HC"[: 1 + (op == "LSTM")]}
    return weights


def names_of(op: str) -> list[str]:
    return ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]


def sequences(
    op: str,
    weights: dict[str, Array],
    *,
    lengths: Array | None = None,
    batch: int = BATCH,
    steps: int = STEPS,
    **attributes: Any,
) -> onnx.ModelProto:
    """The operator on x. Its lengths are an input, or constants; a batch of another size has none."""
    states = [name for name in weights if name[1:] == "0"]
    inputs: dict[str, Any] = {"x": ("float64", (steps, batch, INPUTS))}
    if attributes.get("layout"):
        inputs["x"] = ("float64", (batch, steps, INPUTS))
    has_lengths = batch == BATCH
    if has_lengths and lengths is None:
        inputs["lengths"] = ("int64", (batch,))
    operands = ["x", "W", "R", "B", "lengths" if has_lengths else "", *states]
    nodes = [node(op, operands, names_of(op), hidden_size=HIDDEN, **attributes)]
    held = weights if lengths is None else {**weights, "lengths": lengths.astype(np.int32)}
    model = model_of(nodes, inputs, held, outputs=names_of(op))
    for value in model.graph.input:
        if value.name == "lengths":
            value.type.tensor_type.elem_type = onnx.TensorProto.INT32
    return model


def alone(op: str, weights: dict[str, Array], x: Array, **attributes: Any) -> list[Array]:
    """The outputs of one direction, each sequence run without what lies behind its end."""
    whole = [
        np.zeros((STEPS, 1, BATCH, HIDDEN)),
        *[np.zeros((1, BATCH, HIDDEN))] * (1 + (op == "LSTM")),
    ]
    whole = [value.copy() for value in whole]
    for k, length in enumerate(LENGTHS):
        own = {name: w[:, k : k + 1] if name[1:] == "0" else w for name, w in weights.items()}
        model = sequences(op, own, batch=1, steps=int(length), **attributes)
        results: Any = ReferenceEvaluator(model).run(None, {"x": x[:length, k : k + 1]})
        whole[0][:length, :, k] = results[0][:, :, 0]
        for state, found in zip(whole[1:], results[1:], strict=True):
            state[:, k] = found[:, 0]
    return whole


@grid("has_states", [False, True])
@grid("direction", ["forward", "reverse", "bidirectional"])
@grid("op", GATES)
def test_outputs_are_those_of_each_sequence_alone(op: str, direction: str, has_states: bool) -> None:
    more: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" and has_states else {}
    weights = weights_of(op, 1 + (direction == "bidirectional"), has_states=has_states)
    x = floats(STEPS, BATCH, INPUTS)
    expected = forward_and_reverse(op, weights, x, direction, **more)
    for lengths in (None, LENGTHS):
        model = sequences(op, weights, lengths=lengths, direction=direction, **more)
        graph = imported(model, loss="none").graph
        fed = {"x": x} | ({"lengths": LENGTHS.astype(np.int32)} if lengths is None else {})
        with Trainer(graph, plan(graph)) as trainer:
            found = trainer.infer(fed)
        for name, value in zip(names_of(op), expected, strict=True):
            np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-9)


def forward_and_reverse(
    op: str, weights: dict[str, Array], x: Array, direction: str, **more: Any
) -> list[Array]:
    """As `alone`; the evaluator runs forward only, so in reverse it reads each sequence from its end."""
    parts = []
    for d, backward in enumerate({"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[direction]):
        own = {name: w[d : d + 1] for name, w in weights.items()}
        parts.append(turned(*alone(op, own, turned(x)[0], **more)) if backward else alone(op, own, x, **more))
    return [np.concatenate(values, axis=-3) for values in zip(*parts, strict=True)]


def turned(values: Array, *states: Array) -> list[Array]:
    """Steps in time from the end of each sequence; the batch is the last axis but one."""
    result = values.copy()
    for k, length in enumerate(LENGTHS):
        result[:length, ..., k, :] = values[:length, ..., k, :][::-1]
    return [result, *states]


@grid("op", GATES)
@grid("direction", ["forward", "bidirectional"])
def test_derivatives_are_finite_differences(op: str, direction: str) -> None:
    """Of the mean square of all outputs, with the loss of labels that are zeros."""
    weights = weights_of(op, 1 + (direction == "bidirectional"), has_states=True)
    x, rate = floats(STEPS, BATCH, INPUTS), 1e-3
    for output in names_of(op):
        model = sequences(op, weights, direction=direction)
        graph = imported(model, output=output, optimizer=OptimizerSpec("SGD", {"learning_rate": rate})).graph
        place = names_of(op).index(output)

        def loss(changed: dict[str, Array], place: int = place) -> float:
            return float(np.mean(forward_and_reverse(op, changed, x, direction)[place] ** 2))

        with Trainer(graph, plan(graph)) as trainer:
            label = np.zeros(graph.operands["label"].shape)
            found = trainer.step({"x": x, "lengths": LENGTHS.astype(np.int32), "label": label})
            assert found == pytest.approx(loss(weights), rel=1e-9)
            steps = {name: (weights[name] - trainer.read(name)) / rate for name in weights}
        for name, gradient in steps.items():
            place_ = tuple(RNG.integers(size) for size in gradient.shape)
            shift = np.zeros(gradient.shape)
            shift[place_] = 1e-5
            up, down = (loss({**weights, name: weights[name] + sign * shift}) for sign in (1, -1))
            assert gradient[place_] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-8), (output, name)


@grid("target", ["reference", "c"])
@grid("op", GATES)
def test_plans_train_alike(op: str, target: str) -> None:
    weights = {name: w.astype(np.float32) for name, w in weights_of(op, 2, has_states=False).items()}
    model = sequences(op, weights, direction="bidirectional")
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = imported(model).graph
    made = plan(graph, PlanOptions(target=target))
    assert validate(graph, made, steps=2, kernels="c" if target == "c" else "numpy").identical


def test_the_batch_may_come_first() -> None:
    weights = weights_of("GRU", 1, has_states=False)
    graph = imported(sequences("GRU", weights, layout=1), loss="none").graph
    x = floats(STEPS, BATCH, INPUTS)
    with Trainer(graph, plan(graph)) as trainer:
        found = trainer.infer({"x": x.transpose(1, 0, 2), "lengths": LENGTHS.astype(np.int32)})
    expected = alone("GRU", weights, x)
    np.testing.assert_allclose(found["Y"], expected[0].transpose(2, 0, 1, 3), rtol=1e-6)
    np.testing.assert_allclose(found["Y_h"], expected[1].transpose(1, 0, 2), rtol=1e-6)


def test_lengths_of_another_batch_are_refused() -> None:
    model = sequences("GRU", weights_of("GRU", 1, has_states=False), lengths=np.array([2, 3]))
    with pytest.raises(GraphError, match=r"lengths of shape \[2\] for a batch of 3"):
        imported(model)
