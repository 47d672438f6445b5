"""Each operator of the format, imported and run, against NumPy."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from solver.errors import DocumentError
from solver.executor import Trainer
from solver.graph import OptimizerSpec
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, load_circle
from solver.importers.circle.operators import OPERATORS
from solver.pipeline import plan
from tests.support.circle_cases import CASES, CircleCase, written
from tests.support.circle_models import CircleFile

#: No learning: what is read behind a step is what the step computed from the file's weights.
STILL = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 1e-30}), "mean-squared-error")

#: Operators that have a test of their own below, or that only integers and conditions use.
ELSEWHERE = {
    *("CUSTOM Convolution2DTransposeBias", "UNIDIRECTIONAL_SEQUENCE_LSTM", "QUANTIZE", "DEQUANTIZE"),
    *("CAST", "EMBEDDING_LOOKUP", "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NOT_EQUAL", "SELECT", "SELECT_V2"),
}


def answer(data: bytes, x: Array, batch: int | None = None) -> Array:
    graph = load_circle(data, batch=batch, training=STILL).graph
    label = np.zeros(graph.operands[graph.outputs[0]].shape, np.float32)
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step({"x": x, "label": label})
        return np.array(trainer.read(graph.outputs[0]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_like_numpy(case: CircleCase) -> None:
    x = np.random.default_rng(1).uniform(0.5, 2.0, case.shape).astype(np.float32)
    np.testing.assert_allclose(answer(written(case), x), case.expected(x), rtol=2e-5, atol=2e-6)


def test_every_operator_has_a_case() -> None:
    assert {case.code for case in CASES} | ELSEWHERE == set(OPERATORS)


@pytest.mark.parametrize("size", [(2, 3), (3, 4)])
@pytest.mark.parametrize(
    ("padding", "kernel", "stride"), [(1, 2, 2), (1, 3, 2), (2, 3, 2), (1, 4, 3), (2, 2, 1)]
)
def test_the_transposed_convolution_of_mediapipe(
    size: tuple[int, int], padding: int, kernel: int, stride: int
) -> None:
    """MediaPipe adds each product to the outputs that it falls on; SAME cuts half of it in front."""
    random = np.random.default_rng(2)
    weight, bias = (random.standard_normal(s).astype("f4") for s in ((2, kernel, kernel, 3), (2,)))
    x = random.standard_normal((2, *size, 3)).astype("f4")
    whole = np.zeros((2, *((n - 1) * stride + kernel for n in size), 2))
    for i, j in np.ndindex(size):
        whole[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel] += np.einsum(
            "nc,ohwc->nhwo", x[:, i, j], weight
        )
    cuts = [max(0, kernel - (n - 1) % stride - 1) if padding == 1 else 0 for n in size]
    (top, left), (height, width) = (c // 2 for c in cuts), (whole.shape[k + 1] - cuts[k] for k in range(2))
    expected = whole[:, top : top + height, left : left + width] + bias

    file = CircleFile()
    image, given = file.input("x", x.shape), [file.constant("w", weight), file.constant("b", bias)]
    y = file.tensor("y", expected.shape)
    options = struct.pack("<iii", padding, stride, stride)
    file.operator("CUSTOM", [image, *given], [y], custom="Convolution2DTransposeBias", custom_options=options)
    np.testing.assert_allclose(answer(file.write(y), x), expected, rtol=1e-5, atol=1e-6)
    assert load_circle(file.write(y), training=STILL).graph.trainable == ("w", "b")


@pytest.mark.parametrize("options", [b"", struct.pack("<iii", 0, 2, 2), struct.pack("<iii", 1, 0, 2)])
def test_options_that_the_transposed_convolution_of_mediapipe_cannot_have(options: bytes) -> None:
    file = CircleFile()
    image, weight = file.input("x", (1, 2, 2, 1)), file.constant("w", np.ones((1, 2, 2, 1), np.float32))
    bias, y = file.constant("b", np.ones(1, np.float32)), file.tensor("y", (1, 4, 4, 1))
    name = "Convolution2DTransposeBias"
    file.operator("CUSTOM", [image, weight, bias], [y], custom=name, custom_options=options)
    with pytest.raises(DocumentError, match="has not the options or inputs"):
        load_circle(file.write(y), training=STILL)
