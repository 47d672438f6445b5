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
LENGTHS = np.array([2, 4, 1], np.int32)
WAYS = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}
RNG = np.random.default_rng(8)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape) * 0.7


def weights_of(op: str, direction: str, *, has_states: bool) -> dict[str, Array]:
    count, rows = len(WAYS[direction]), GATES[op] * HIDDEN
    shapes = {"W": (count, rows, INPUTS), "R": (count, rows, HIDDEN), "B": (count, 2 * rows)}
    states = dict.fromkeys(["H0", "C0"][: len(names_of(op)) - 1], (count, BATCH, HIDDEN))
    return {name: floats(*shape) for name, shape in (shapes | states if has_states else shapes).items()}


def names_of(op: str) -> list[str]:
    return ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]


def sequences(
    op: str, weights: dict[str, Array], *, lengths: Array | None = LENGTHS, x: tuple[int, ...], **more: Any
) -> onnx.ModelProto:
    """The operator on x. Its lengths are constants, or an input if they are empty, or left out."""
    inputs: dict[str, Any] = {"x": ("float64", x), "lengths": ("int64", (BATCH,))}
    states = [name for name in weights if name[1:] == "0"]
    operands = ["x", "W", "R", "B", "" if lengths is None else "lengths", *states]
    nodes = [node(op, operands, names_of(op), hidden_size=HIDDEN, **more)]
    held = weights if lengths is None or not lengths.size else {**weights, "lengths": lengths}
    if lengths is None or lengths.size:
        del inputs["lengths"]
    model = model_of(nodes, inputs, held, outputs=names_of(op))
    for value in model.graph.input[1:]:
        value.type.tensor_type.elem_type = onnx.TensorProto.INT32
    return model


def alone(
    op: str, weights: dict[str, Array], x: Array, direction: str = "forward", **more: Any
) -> list[Array]:
    """The outputs of each sequence without what lies behind its end; in reverse it is read from there."""
    parts = []
    for d, backward in enumerate(WAYS[direction]):
        shapes = [(STEPS, 1, BATCH, HIDDEN), *[(1, BATCH, HIDDEN)] * (len(names_of(op)) - 1)]
        whole = [np.zeros(shape) for shape in shapes]
        for k, length in enumerate(LENGTHS):
            order = slice(None, None, -1 if backward else 1)
            own = {n: w[d : d + 1, k : k + 1] if n[1:] == "0" else w[d : d + 1] for n, w in weights.items()}
            model = sequences(op, own, lengths=None, x=(int(length), 1, INPUTS), **more)
            results: Any = ReferenceEvaluator(model).run(None, {"x": x[:length, k : k + 1][order]})
            y, *last = results
            whole[0][:length, :, k] = y[order, :, 0]
            for state, value in zip(whole[1:], last, strict=True):
                state[:, k] = value[:, 0]
        parts.append(whole)
    return [np.concatenate(values, axis=-3) for values in zip(*parts, strict=True)]


@grid("has_states", [False, True])
@grid("direction", WAYS)
@grid("op", GATES)
def test_outputs_are_those_of_each_sequence_alone(op: str, direction: str, has_states: bool) -> None:
    more: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" and has_states else {}
    weights, x = weights_of(op, direction, has_states=has_states), floats(STEPS, BATCH, INPUTS)
    expected = alone(op, weights, x, direction, **more)
    for lengths in (LENGTHS, LENGTHS[:0]):
        model = sequences(op, weights, lengths=lengths, x=x.shape, direction=direction, **more)
        graph = imported(model, loss="none").graph
        with Trainer(graph, plan(graph)) as trainer:
            found = trainer.infer({"x": x} | ({} if lengths.size else {"lengths": LENGTHS}))
        for name, value in zip(names_of(op), expected, strict=True):
            np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-9)


@grid("direction", ["forward", "bidirectional"])
@grid("op", GATES)
def test_derivatives_are_finite_differences(op: str, direction: str) -> None:
    """Of the mean square of each output, in one place of each weight."""
    weights, x, rate = weights_of(op, direction, has_states=True), floats(STEPS, BATCH, INPUTS), 1e-3
    model = sequences(op, weights, lengths=LENGTHS[:0], x=x.shape, direction=direction)
    for k, output in enumerate(names_of(op)):
        optimizer = OptimizerSpec("SGD", {"learning_rate": rate})
        graph = imported(model, output=output, optimizer=optimizer).graph
        with Trainer(graph, plan(graph)) as trainer:
            trainer.step({"x": x, "lengths": LENGTHS, "label": np.zeros(graph.operands["label"].shape)})
            gradients = {name: (weights[name] - trainer.read(name)) / rate for name in weights}
        for name, gradient in gradients.items():
            place = tuple(RNG.integers(size) for size in gradient.shape)
            shift = np.zeros(gradient.shape)
            shift[place] = 1e-5
            changed = ({**weights, name: weights[name] + sign * shift} for sign in (1, -1))
            up, down = (np.mean(alone(op, values, x, direction)[k] ** 2) for values in changed)
            assert gradient[place] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-8), (output, name)


@grid("target", ["reference", "c"])
@grid("op", GATES)
def test_plans_train_alike(op: str, target: str) -> None:
    weights = weights_of(op, "bidirectional", has_states=False)
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    shape = (STEPS, BATCH, INPUTS)
    model = sequences(op, weights, lengths=LENGTHS[:0], x=shape, direction="bidirectional")
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = imported(model).graph
    made = plan(graph, PlanOptions(target=target))
    assert validate(graph, made, steps=2, kernels="c" if target == "c" else "numpy").identical


def test_the_batch_may_come_first() -> None:
    weights, x = weights_of("GRU", "forward", has_states=False), floats(STEPS, BATCH, INPUTS)
    model = sequences("GRU", weights, x=(BATCH, STEPS, INPUTS), layout=1)
    graph = imported(model, loss="none").graph
    with Trainer(graph, plan(graph)) as trainer:
        found = trainer.infer({"x": x.transpose(1, 0, 2)})
    y, last = alone("GRU", weights, x)
    np.testing.assert_allclose(found["Y"], y.transpose(2, 0, 1, 3), rtol=1e-6)
    np.testing.assert_allclose(found["Y_h"], last.transpose(1, 0, 2), rtol=1e-6)


def test_lengths_of_another_batch_are_refused() -> None:
    weights = weights_of("GRU", "forward", has_states=False)
    with pytest.raises(GraphError, match=r"lengths of shape \[2\] for a batch of 3"):
        imported(sequences("GRU", weights, lengths=LENGTHS[:2], x=(STEPS, BATCH, INPUTS)))
