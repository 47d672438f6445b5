"""Recurrent layers through time: gradients, arenas, PyTorch, and a task that takes memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from solver.executor import Trainer, synthetic_batch
from solver.graph import Operation, TrainableGraph
from solver.graph.types import Array
from solver.pipeline import plan
from solver.program import Kind, Phase
from solver.training import derive
from tests.support.graphs import Sketch
from tests.support.sequence_graphs import GATES, classifier


def test_nothing_is_computed_for_a_state_that_is_given() -> None:
    """Initial states that are constant, and frozen layers, cost no derivative."""
    program = derive(classifier("LSTM", trainable=1))
    steps = {
        label
        for label, step in zip(program.step_labels, program.steps, strict=True)
        if step.phase is not Phase.FORWARD
    }
    assert not {step for step in steps if step.startswith("one.")}
    whole = derive(classifier("LSTM"))
    assert "start@grad" not in whole.by_label


def test_gradients_of_shared_weights_are_accumulated_step_by_step() -> None:
    """One partial at a time, however long the sequence is."""
    program = derive(classifier("RNN", steps=5))
    partials = [v for v in program.values if v.kind is Kind.PARTIAL and v.origin == "w1"]
    assert len(partials) == 4


LONG = 12


def recall(type_: str) -> TrainableGraph:
    """The class is the sign of the first input; the others are noise."""
    s = Sketch(f"recall-{type_}")
    rows, hidden = GATES[type_] * 8, 8
    weights = [s.parameter("w", rows, 1), s.parameter("r", rows, hidden), s.parameter("b", 2 * rows)]
    s.operations.append(Operation("rnn", type_, (s.input("x", LONG, 16, 1), *weights), ("", "last")))
    h = s.op("Reshape", ["last", s.integers("flat", 16, hidden)], "flat_last")
    logits = s.op("Gemm", [h, s.parameter("v", 2, hidden), s.parameter("c", 2)], "logits", transB=1)
    s.op("CategoricalCrossEntropy", [logits, s.label("t", 16, 2)], "loss", from_logits=1)
    return s.graph(optimizer="Adam", learning_rate=0.02)


def signs(rng: np.random.Generator) -> dict[str, Array]:
    x = rng.standard_normal((LONG, 16, 1)).astype(np.float32)
    x[0] = np.where(x[0] < 0, -2, 2)
    return {"x": x, "t": np.eye(2, dtype=np.float32)[(x[0, :, 0] > 0).astype(int)]}


@pytest.mark.parametrize("type_", ["LSTM", "GRU"])
def test_what_stood_first_is_remembered(type_: str) -> None:
    graph, rng = recall(type_), np.random.default_rng(0)
    trainer = Trainer(graph, plan(graph))
    losses = [trainer.step(signs(rng)) for _ in range(200)]
    assert losses[0] > 0.6
    assert np.mean(losses[-10:]) < 0.1


def reordered(array: Array, order: tuple[int, ...]) -> Array:
    """Rows of the gates in PyTorch's order."""
    return np.concatenate([np.split(array, len(order))[i] for i in order])


def parts(trainer: Trainer, operands: Sequence[str]) -> Iterator[Array]:
    """W, R and both biases of each direction."""
    values = [trainer.read(name) for name in operands]
    for direction in zip(*(v if len(operands) > 2 else v[None] for v in values), strict=True):
        yield from direction[:2]
        yield from np.split(direction[2], 2) if len(direction) > 2 else ()


@pytest.mark.parity
@pytest.mark.parametrize(
    ("type_", "order", "own"),
    [("LSTM", (0, 2, 3, 1), {}), ("GRU", (1, 0, 2), {"linear_before_reset": 1}), ("RNN", (0,), {})],
)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_losses_follow_pytorch(
    type_: str, order: tuple[int, ...], own: dict[str, Any], direction: str
) -> None:
    """Training steps of both layers with plain SGD, in float64."""
    import torch

    graph = classifier(type_, direction=direction, sequence=own, learning_rate=0.5)
    trainer = Trainer(graph, plan(graph))
    count, data = 2 if direction == "bidirectional" else 1, synthetic_batch(graph, 5, 1)
    common = {"dtype": torch.float64}
    one = getattr(torch.nn, type_)(3, 4, bidirectional=count == 2, **common)
    two = getattr(torch.nn, type_)(4 * count, 2, bias=False, **common)
    for layer, operands in ((one, ("w1", "r1", "b1")), (two, ("w2", "r2"))):
        given = [reordered(part, order) for part in parts(trainer, operands)]
        for parameter, value in zip(layer.parameters(), given, strict=True):
            parameter.data = torch.tensor(value)
    start = torch.tensor(trainer.read("start"))
    state = (start, torch.zeros_like(start)) if type_ == "LSTM" else start
    optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.5)
    for _ in range(4):
        last = two(one(torch.tensor(data["x"]), state)[0])[0][-1]
        loss = torch.nn.functional.cross_entropy(last, torch.tensor(data["t"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step(data) == pytest.approx(loss.item(), rel=1e-9)
