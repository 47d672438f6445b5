"""Each operator of the format, imported and run, against NumPy."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from solver.errors import DocumentError, UnknownOperatorError
from solver.executor import Trainer
from solver.graph import OptimizerSpec
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, load_circle
from solver.importers.circle.operators import OPERATORS
from solver.pipeline import plan
from tests.support.circle_cases import CASES, CircleCase, written
from tests.support.circle_models import CircleFile
from tests.support.every import grid

#: No learning: what is read behind a step is what the step computed from the file's weights.
STILL = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 1e-30}), "mean-squared-error")

#: Operators that have a test of their own below, or that only integers and conditions use.
ELSEWHERE = {
    *("CUSTOM Convolution2DTransposeBias", "UNIDIRECTIONAL_SEQUENCE_LSTM", "QUANTIZE", "DEQUANTIZE"),
    *("COMPLEX_ABS", "FILL", "IMAG", "REAL", "RFFT2D"),
    *("CAST", "EMBEDDING_LOOKUP", "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NOT_EQUAL", "SELECT", "SELECT_V2"),
}


def answer(data: bytes, x: Array, batch: int | None = None) -> Array:
    graph = load_circle(data, batch=batch, training=STILL).graph
    label = np.zeros(graph.operands[graph.outputs[0]].shape, np.float32)
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step({"x": x, "label": label})
        return np.array(trainer.read(graph.outputs[0]))


@grid("case", CASES)
def test_like_numpy(case: CircleCase) -> None:
    x = np.random.default_rng(1).uniform(0.5, 2.0, case.shape).astype(np.float32)
    np.testing.assert_allclose(answer(written(case), x), case.expected(x), rtol=2e-5, atol=2e-6)


def test_every_operator_has_a_case() -> None:
    assert {case.code for case in CASES} | ELSEWHERE == set(OPERATORS)


@grid("size", [(2, 3), (3, 4)])
@grid(("padding", "kernel", "stride"), [(1, 2, 2), (1, 3, 2), (2, 3, 2), (1, 4, 3), (2, 2, 1)])
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


def spectrum(code: str, length: int, *, moves: bool = True) -> bytes:
    """x [2, 1, 6] -> RFFT2D -> moves of complex numbers -> magnitude or a part of them -> a slope of 1."""
    file, count = CircleFile(), length // 2 + 1
    z = file.tensor("z", (2, 1, count), "complex64")
    file.operator(
        "RFFT2D", [file.input("x", (2, 1, 6)), file.constant("n", np.array([1, length], "i4"))], [z]
    )
    if moves:
        flat, turned = (
            file.tensor("flat", (2, count), "complex64"),
            file.tensor("turned", (count, 2), "complex64"),
        )
        file.operator("SQUEEZE", [z], [flat], "SqueezeOptions", {"squeezeDims": [1]})
        file.operator("TRANSPOSE", [flat, file.constant("perm", np.array([1, 0], "i4"))], [turned])
        z = turned
    shape = (count, 2) if moves else (2, 1, count)
    part, y = file.tensor("part", shape), file.tensor("y", shape)
    file.operator(code, [z], [part])
    file.operator("PRELU", [part, file.constant("slope", np.ones(shape[-1], np.float32))], [y])
    return file.write(y)


@grid("length", [6, 5, 4, 8])
@grid(("code", "part"), [("COMPLEX_ABS", np.abs), ("REAL", np.real), ("IMAG", np.imag), ("CAST", np.real)])
def test_fourier_transforms(code: str, part: Callable[[Array], Array], length: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, 1, 6)).astype("f4")
    expected = part(np.fft.rfft(x.astype("f8"), length))
    np.testing.assert_allclose(answer(spectrum(code, length, moves=False), x), expected, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(answer(spectrum(code, length), x), expected[:, 0].T, rtol=2e-5, atol=2e-6)


def test_a_transform_of_two_axes_is_refused() -> None:
    file = CircleFile()
    z, y = file.tensor("z", (2, 4, 4), "complex64"), file.tensor("y", (2, 4, 4))
    size = file.constant("size", np.array([4, 6], np.int32))
    file.operator("RFFT2D", [file.input("x", (2, 4, 6)), size], [z])
    file.operator("COMPLEX_ABS", [z], [y])
    with pytest.raises(UnknownOperatorError, match="transforms two axes"):
        load_circle(file.write(y), training=STILL)
    file = CircleFile()
    x, y = file.input("x", (2, 4)), file.tensor("y", (2, 4))
    file.operator("COMPLEX_ABS", [x], [y])
    with pytest.raises(UnknownOperatorError, match="reads 'x', which is FLOAT32"):
        load_circle(file.write(y), training=STILL)


@pytest.mark.parametrize("length", [0, 1 << 30])
def test_a_transform_without_a_table(length: int) -> None:
    file = CircleFile()
    z, y = file.tensor("z", (2, 1, 4), "complex64"), file.tensor("y", (2, 1, 4))
    size = file.constant("size", np.array([1, length], np.int32))
    file.operator("RFFT2D", [file.input("x", (2, 1, 6)), size], [z])
    file.operator("COMPLEX_ABS", [z], [y])
    with pytest.raises(UnknownOperatorError, match="a table of cosines is too large"):
        load_circle(file.write(y), training=STILL)


def test_a_shape_that_is_split_and_a_filled_tensor() -> None:
    """Front ends work sizes out of a shape, by a split with an empty part and a constant without elements."""
    file = CircleFile()
    x, shape = file.input("x", (3, 4)), file.tensor("shape", (2,), "int32")
    file.operator("SHAPE", [x], [shape])
    rows, columns, rest = (
        file.tensor(n, s, "int32") for n, s in (("rows", (1,)), ("columns", (1,)), ("rest", (0,)))
    )
    sizes, axis = file.constant("sizes", np.array([1, 1, 0], "i4")), file.constant("axis", np.array(0, "i4"))
    file.operator("SPLIT_V", [shape, sizes, axis], [rows, columns, rest], "SplitVOptions", {"numSplits": 3})
    scalar, empty = file.tensor("scalar", (), "int32"), file.tensor("empty", (0,), "int32")
    file.operator("RESHAPE", [columns, empty], [scalar], "ReshapeOptions")
    two, dims = file.constant("two", np.array(2, "i4")), file.tensor("dims", (2,), "int32")
    file.operator("PACK", [two, scalar], [dims], "PackOptions", {"axis": 0, "valuesCount": 2})
    filled, whole = file.tensor("filled", (2, 4)), file.tensor("whole", (5, 4))
    file.operator("FILL", [dims, file.constant("value", np.full((), 2.5, np.float32))], [filled])
    file.operator("CONCATENATION", [filled, x], [whole], "ConcatenationOptions", {"axis": 0})
    y = file.tensor("y", (5, 4))
    file.operator("PRELU", [whole, file.constant("slope", np.ones(4, np.float32))], [y])
    values = np.random.default_rng(3).standard_normal((3, 4)).astype("f4")
    np.testing.assert_array_equal(answer(file.write(y), values)[:2], np.full((2, 4), 2.5))


@pytest.mark.parametrize("code", ["SPACE_TO_DEPTH", "DEPTH_TO_SPACE"])
def test_blocks_of_no_elements_are_refused(code: str) -> None:
    file = CircleFile()
    image, y = file.input("x", (1, 4, 4, 4)), file.tensor("y", (1, 4, 4, 4))
    table = "SpaceToDepthOptions" if code == "SPACE_TO_DEPTH" else "DepthToSpaceOptions"
    file.operator(code, [image], [y], table, {"blockSize": 0})
    with pytest.raises(DocumentError, match="has not the options or inputs"):
        load_circle(file.write(y), training=STILL)
