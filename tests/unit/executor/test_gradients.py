"""Whole programs against central differences in float64: what the kernels' own tests cannot see.

Accumulation over branches, tied weights and the seed of the backward pass are right only if the
gradient of the loss with respect to every parameter is.
"""

from __future__ import annotations

import numpy as np
import pytest

from solver.executor import Trainer, synthetic_batch
from solver.graph import DType, Initializer, TrainableGraph
from solver.pipeline import plan
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
