"""Whole programs against central differences in float64, and the examples against PyTorch's autograd.

Accumulation over branches, tied weights and the seed of the backward pass are right only if the
gradient of the loss with respect to every parameter is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from solver.documents import load_graph
from solver.executor import Trainer, synthetic_batch
from solver.graph import DType, Initializer, TrainableGraph
from solver.pipeline import plan
from tests.benchmarks.eager import eager_step
from tests.support.every import grid
from tests.support.graphs import Sketch, batch_normalised
from tests.support.operator_graphs import attention, convolved, elementwise, recurrent
from tests.support.sequence_graphs import GATES, classifier

LEARNING_RATE = 1.0
STEP = 1e-6


def branched() -> TrainableGraph:
    s = Sketch("branched", DType.FLOAT64)
    x, w1, w2 = s.input("x", 3, 4), s.parameter("w1", 5, 4), s.parameter("w2", 5, 5)
    h1 = s.op("Gemm", [x, w1, s.parameter("b1", 5)], "h1", transB=1, activation="Tanh")
    h2 = s.op("Gemm", [h1, w2], "h2", transB=1, activation="Sigmoid")
    h3 = s.op("Gemm", [s.op("Add", [h1, h2], "sum"), w2], "h3", transB=1)
    h4 = s.op("Mul", [h3, s.op("Sub", [h1, h3], "difference")], "h4")
    s.op("CategoricalCrossEntropy", [h4, s.label("t", 3, 5)], "loss", from_logits=1, label_smoothing=0.1)
    return s.graph(learning_rate=LEARNING_RATE)


def vision(layout: str) -> TrainableGraph:
    s = Sketch("vision", DType.FLOAT64)
    shape, depthwise = ((6, 6, 2), (4, 3, 3, 1)) if layout == "NHWC" else ((2, 6, 6), (4, 1, 3, 3))
    kernel = (4, 3, 3, 2) if layout == "NHWC" else (4, 2, 3, 3)
    h = s.op(
        "Conv", [s.input("x", 2, *shape), s.parameter("k1", *kernel), s.parameter("c1", 4)], "a",
        data_layout=layout, auto_pad="SAME_UPPER", activation="Tanh",
    )  # fmt: skip
    g = s.op("Conv", [h, s.parameter("k2", *depthwise)], "b", data_layout=layout, group=4, pads=(1, 1, 1, 1))
    h = s.op("Add", [g, h], "c")
    h = s.op("MaxPool", [h], "d", data_layout=layout, kernel_shape=(2, 2), strides=(2, 2))
    h = s.op("GlobalAveragePool", [h], "e", data_layout=layout)
    h = s.op("Flatten", [h], "f")
    h = s.op("Softmax", [s.op("Gemm", [h, s.parameter("k3", 4, 3)], "g")], "p")
    s.op("CategoricalCrossEntropy", [h, s.label("t", 2, 3)], "loss")
    return s.graph(learning_rate=LEARNING_RATE)


def regression() -> TrainableGraph:
    s = Sketch("regression", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 2, 3, 4), s.parameter("w", 4, 2)], "h")
    h = s.op("Add", [h, s.parameter("bias", 1, 3, 1)], "shifted")
    h = s.op(
        "Div", [h, s.parameter("scale", 2, initializer=Initializer("uniform", scale=2.0, seed=3))], "scaled"
    )
    h = s.op("ReduceMean", [s.op("Transpose", [h], "turned", perm=(0, 2, 1))], "mean", axes=(2,), keepdims=0)
    s.op("MeanSquaredError", [h, s.label("t", 2, 2)], "loss")
    return s.graph(learning_rate=LEARNING_RATE)


GRAPHS = [
    *(branched(), vision("NHWC"), vision("NCHW"), regression()),
    *(make(learning_rate=LEARNING_RATE) for make in (elementwise, attention, recurrent)),
    *(
        batch_normalised(mode=mode, dtype=DType.FLOAT64, optimizer="SGD", learning_rate=LEARNING_RATE)
        for mode in (0, 1)
    ),
    *(convolved(layout, learning_rate=LEARNING_RATE) for layout in ("NCHW", "NHWC")),
    *(classifier(type_, learning_rate=LEARNING_RATE) for type_ in GATES),
    classifier("LSTM", direction="bidirectional", layout=1, learning_rate=LEARNING_RATE),
    classifier("GRU", direction="reverse", sequence={"linear_before_reset": 1}, learning_rate=LEARNING_RATE),
    classifier(
        "RNN", direction="bidirectional", sequence={"nonlinearity": "Sigmoid"}, learning_rate=LEARNING_RATE
    ),
]


@grid("graph", GRAPHS)
def test_a_plain_sgd_step_is_minus_the_numerical_gradient(graph: TrainableGraph) -> None:
    rng, batch = np.random.default_rng(0), synthetic_batch(graph, 5, 1)
    with Trainer(graph, plan(graph)) as trainer:
        before = {name: trainer.read(name) for name in graph.trainable}

        def loss(name: str, position: int, change: float) -> float:
            for each, value in before.items():
                trainer.runner.value(each)[...] = value
            trainer.runner.value(name).reshape(-1)[position] += change
            return trainer.step(batch)

        trainer.step(batch)
        steps = {name: (value - trainer.read(name)).reshape(-1) for name, value in before.items()}
        for name, step in steps.items():
            for position in rng.choice(step.size, min(6, step.size), replace=False):
                up, down = (loss(name, int(position), sign * STEP) for sign in (1, -1))
                found = step[position] / LEARNING_RATE
                assert found == pytest.approx((up - down) / (2 * STEP), rel=2e-5, abs=1e-8), name


# ---------------------------------------------------------------------------------------------------- PyTorch


EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parity
@pytest.mark.parametrize(("name", "batch"), [("mnist", 4), ("mobilenet_v2", 2)])
def test_losses_follow_pytorch_step_by_step(name: str, batch: int) -> None:
    """In float64, so that rounding cannot hide a wrong gradient: Adam's first steps amplify both."""
    document = (EXAMPLES / f"{name}.json").read_bytes().replace(b"float32", b"float64")
    graph = load_graph(document, batch=batch)
    trainer = Trainer(graph, plan(graph))
    data = synthetic_batch(graph, 0, 1)
    eager = eager_step(graph, data)
    assert eager is not None
    for _ in range(3):
        assert trainer.step(data) == pytest.approx(eager(), rel=1e-9)


@pytest.mark.parity
@pytest.mark.parametrize("mode", [0, 1])
def test_batch_normalisation_follows_pytorch_step_by_step(mode: int) -> None:
    """Losses, and the running statistics that three steps leave; theirs have the unbiased variance."""
    import torch

    graph = batch_normalised(mode=mode, dtype=DType.FLOAT64, learning_rate=0.01)
    trainer, f = Trainer(graph, plan(graph)), torch.nn.functional
    weights = {name: torch.tensor(trainer.read(name), requires_grad=True) for name in graph.trainable}
    k, scale, shift, w = weights.values()
    mean, variance = (torch.tensor(trainer.read(name)) for name in ("mean", "variance"))
    optimizer = torch.optim.Adam(weights.values(), lr=0.01)
    for step in range(1, 4):
        data = synthetic_batch(graph, 0, step)
        h = f.conv2d(torch.tensor(data["x"]), k)
        h = f.batch_norm(h, mean, variance, scale, shift, training=bool(mode), momentum=0.2)
        loss = f.mse_loss(torch.relu(h).mean(dim=(2, 3)) @ w.T, torch.tensor(data["t"]))
        assert trainer.step(data) == pytest.approx(loss.item(), rel=1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert trainer.read("mean") == pytest.approx(mean.numpy(), rel=1e-9)
    count = 4 * 4 * 4
    unbiased = (
        0.8**3 + (trainer.read("variance") - 0.8**3) * count / (count - 1) if mode else variance.numpy()
    )
    assert variance.numpy() == pytest.approx(unbiased, rel=1e-9)
