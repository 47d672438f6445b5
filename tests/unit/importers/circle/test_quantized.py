"""Quantised tensors: a trunk that runs forward before a head that is trained, against integers in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solver.errors import DocumentError, LossError, TrainableError, UnknownOperatorError
from solver.executor import Trainer, validate
from solver.graph import OptimizerSpec
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, load_circle, load_circle_model
from solver.importers.options import import_options
from solver.pipeline import plan
from tests.support.circle_models import CircleFile

SGD = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 0.1}), "mean-squared-error")
STILL = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 1e-30}), "mean-squared-error")


def integers(*shape: int, seed: int = 1, dtype: str = "int8") -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def rounded(values: Array, scale: float, zero: int, dtype: str = "int8") -> Array:
    """As TensorFlow Lite rounds: halves away from zero."""
    info = np.iinfo(dtype)
    whole = np.copysign(np.floor(np.abs(values / np.float32(scale)) + 0.5), values)
    return np.asarray(np.clip(whole + zero, info.min, info.max).astype(dtype))


def head(file: CircleFile, trunk: int, shape: tuple[int, ...]) -> bytes:
    """Floats of the quantised `trunk`, and a slope of 1 that is trained."""
    floats, y = file.tensor("floats", shape), file.tensor("y", shape)
    file.operator("DEQUANTIZE", [trunk], [floats])
    file.operator("PRELU", [floats, file.constant("slope", np.ones(shape[-1], np.float32))], [y])
    return file.write(y)


def answer(data: bytes, x: Array) -> Array:
    """The quantised trunk as floats, which the slope of 1 leaves as they are."""
    graph = load_circle(data, training=STILL).graph
    assert graph.trainable == ("slope",)
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step({"x": x, "label": np.zeros(graph.operands["y"].shape, np.float32)})
        return np.array(trainer.read("y"))


def floats(elements: Array, scale: float, zero: int) -> Array:
    return (elements.astype(np.int32) - zero) * np.float32(scale)


def close_to(found: Array, elements: Array, scale: float, zero: int) -> None:
    """Equal, but where the sum lies on the border between two whole numbers, which floats move it over."""
    away = np.abs(found - floats(elements, scale, zero)) / scale
    assert away.max() <= 1.001
    assert (away < 1e-3).mean() > 0.9


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_and_back(dtype: str) -> None:
    file = CircleFile()
    x, q = file.input("x", (2, 5)), file.scaled(file.tensor("q", (2, 5), dtype), [0.5], [7])
    file.operator("QUANTIZE", [x], [q])
    values = np.array([[-0.25, 0.25, 0.75, 1.0, -1.25], [1e6, -1e6, 0, 3.3, -64.1]], np.float32)
    expected = rounded(values, 0.5, 7, dtype)
    np.testing.assert_array_equal(answer(head(file, q, (2, 5)), values), floats(expected, 0.5, 7))


@pytest.mark.parametrize("axis", [0, 3])
def test_a_product_with_scales_by_row_and_a_bias_of_32_bits(axis: int) -> None:
    """Some files give the bias, which has one axis, the axis of the filter."""
    file = CircleFile()
    weight, bias = integers(3, 6), np.array([40, -900, 3000], np.int32)
    scales = [0.02, 0.01, 0.005]
    x = file.scaled(file.input("x", (4, 6), "int8"), [0.1], [-3])
    w = file.scaled(file.constant("w", weight), scales, [0, 0, 0])
    b = file.scaled(file.constant("b", bias), [0.1 * scale for scale in scales], [0, 0, 0], axis)
    q = file.scaled(file.tensor("q", (4, 3), "int8"), [0.8], [11])
    options = {"fusedActivationFunction": "RELU"}
    file.operator("FULLY_CONNECTED", [x, w, b], [q], "FullyConnectedOptions", options)
    values = integers(4, 6, seed=2)
    sums = (values.astype(np.int64) + 3) @ weight.T.astype(np.int64) + bias
    expected = rounded(np.maximum(sums * (0.1 * np.array(scales)), 0), 0.8, 11)
    close_to(answer(head(file, q, (4, 3)), values), expected, 0.8, 11)


def test_a_depthwise_convolution_has_scales_by_channel() -> None:
    file = CircleFile()
    weight = integers(1, 2, 2, 3)
    scales = [0.01, 0.1, 1.0]
    x = file.scaled(file.input("x", (1, 3, 3, 3), "int8"), [1.0])
    w = file.scaled(file.constant("w", weight), scales, axis=3)
    q = file.scaled(file.tensor("q", (1, 2, 2, 3), "int8"), [64.0], [-2])
    options = {"padding": "VALID", "strideH": 1, "strideW": 1, "depthMultiplier": 1}
    file.operator("DEPTHWISE_CONV_2D", [x, w, -1], [q], "DepthwiseConv2DOptions", options)
    values = integers(1, 3, 3, 3, seed=2)
    windows = np.lib.stride_tricks.sliding_window_view(values[0].astype(np.int64), (2, 2), axis=(0, 1))
    sums = np.einsum("hwcij,ijc->hwc", windows, weight[0].astype(np.int64))[None]
    expected = rounded(sums * np.array(scales), 64.0, -2)
    close_to(answer(head(file, q, (1, 2, 2, 3)), values), expected, 64.0, -2)


def test_a_sum_of_tensors_with_other_scales_and_a_split() -> None:
    file = CircleFile()
    x = file.scaled(file.input("x", (2, 4), "int8"), [0.25], [1])
    other = file.scaled(file.constant("other", integers(2, 4, seed=3)), [0.5], [-1])
    total = file.scaled(file.tensor("total", (2, 4), "int8"), [1.0], [0])
    file.operator("ADD", [x, other], [total])
    parts = [file.scaled(file.tensor(f"part{k}", (2, 2), "int8"), [1.0], [0]) for k in range(2)]
    axis = file.constant("axis", np.array([1], np.int32))
    file.operator("SPLIT", [axis, total], parts, "SplitOptions", {"numSplits": 2})
    values = integers(2, 4, seed=2)
    constant = (integers(2, 4, seed=3).astype(np.int32) + 1) * 0.5
    expected = rounded((values.astype(np.int32) - 1) * 0.25 + constant, 1.0, 0)
    found = answer(head(file, parts[1], (2, 2)), values)
    np.testing.assert_array_equal(found, floats(expected[:, 2:], 1.0, 0))


@pytest.mark.parametrize(("dtype", "zero"), [("int8", -128), ("int8", 5), ("uint8", 100)])
def test_a_mean_over_windows_rounds_the_elements_themselves(dtype: str, zero: int) -> None:
    """Halves of elements away from zero, wherever the zero point is: a quarter of all means is one."""
    file = CircleFile()
    x = file.scaled(file.input("x", (2, 8, 8, 3), dtype), [0.5], [zero])
    q = file.scaled(file.tensor("q", (2, 4, 4, 3), dtype), [0.5], [zero])
    options = {"padding": "VALID", "strideH": 2, "strideW": 2, "filterHeight": 2, "filterWidth": 2}
    file.operator("AVERAGE_POOL_2D", [x], [q], "Pool2DOptions", options)
    values = integers(2, 8, 8, 3, seed=2, dtype=dtype)
    sums = values.astype(np.int64).reshape(2, 4, 2, 4, 2, 3).sum(axis=(2, 4))
    means = np.where(sums > 0, (sums + 2) // 4, -((2 - sums) // 4))
    np.testing.assert_array_equal(answer(head(file, q, (2, 4, 4, 3)), values), floats(means, 0.5, zero))


def mixed() -> bytes:
    """Weights of 8 bits between float layers, as a dynamic range has them."""
    file, random = CircleFile(), np.random.default_rng(4)
    x, sizes = file.input("x", (2, 3)), [3, 4, 5, 2]
    for k, (width, units) in enumerate(itertools.pairwise(sizes)):
        value = random.standard_normal((units, width)).astype("f4") if k != 1 else integers(units, width)
        weight = file.constant(f"w{k}", value)
        if k == 1:
            file.scaled(weight, [0.01] * units)
        bias, y = file.constant(f"b{k}", np.zeros(units, np.float32)), file.tensor(f"y{k}", (2, units))
        file.operator("FULLY_CONNECTED", [x, weight, bias], [y], "FullyConnectedOptions")
        x = y
    return file.write(x)


def test_quantised_weights_between_trained_ones() -> None:
    found = load_circle_model(mixed(), options=import_options({"loss": "mse", "optimizer": "sgd"}))
    assert found.graph.trainable == ("w0", "b0", "b1", "w2", "b2")
    untrained, widened = found.notes
    assert untrained == "1 quantised weight is not trained: 'w1'."
    assert "stored in 20 bytes (int8) and planned in 80 bytes as floats" in widened
    assert found.summary == "5 tensors trained, 0 floating tensors not trained."
    with pytest.raises(TrainableError, match="'w1' is quantised, and quantised weights are not trained"):
        load_circle_model(mixed(), options=import_options({"loss": "mse", "trainable": "w1"}))
    report = validate(found.graph, plan(found.graph), steps=2)
    assert report.identical


def test_a_model_that_is_quantised_through_and_through() -> None:
    file = CircleFile()
    x = file.scaled(file.input("x", (1, 4), "int8"), [0.1])
    w = file.scaled(file.constant("w", integers(2, 4)), [0.1])
    b = file.scaled(file.constant("b", np.zeros(2, np.int32)), [0.01])
    q = file.scaled(file.tensor("q", (1, 2), "int8"), [0.1])
    file.operator("FULLY_CONNECTED", [x, w, b], [q], "FullyConnectedOptions")
    y = file.tensor("y", (1, 2))
    file.operator("DEQUANTIZE", [q], [y])
    with pytest.raises(
        TrainableError, match=r"All 2 weights of the model are quantised \(INT32, INT8\), and"
    ):
        load_circle(file.write(y), training=SGD)
    graph = load_circle_model(file.write(y), options=import_options({"loss": "none"})).graph
    with Trainer(graph, plan(graph)) as trainer:
        found = trainer.infer({"x": np.array([[10, -20, 30, 40]], np.int8)})["y"]
    product = np.array([10, -20, 30, 40]) @ integers(2, 4).T.astype(int)
    close_to(found, np.clip(np.round(product[None] * 0.1 * 0.1 / 0.1), -128, 127), 0.1, 0)


def test_what_stands_before_a_quantised_operator_has_no_derivative() -> None:
    file = CircleFile()
    x, y = file.input("x", (1, 3)), file.tensor("y", (1, 3))
    file.operator("PRELU", [x, file.constant("early", np.ones(3, np.float32))], [y])
    q = file.scaled(file.tensor("q", (1, 3), "int8"), [0.1])
    file.operator("QUANTIZE", [y], [q])
    data = head(file, q, (1, 3))
    found = load_circle_model(data, options=import_options({"loss": "mse"}))
    assert found.graph.trainable == ("slope",)
    assert found.notes == ("The loss has no derivative with respect to 'early': not trained.",)
    with pytest.raises(TrainableError, match="No parameter is called 'early'"):
        load_circle_model(data, options=import_options({"loss": "mse", "trainable": "early"}))
    with pytest.raises(LossError, match="'q' is int8"):
        load_circle_model(data, options=import_options({"loss": "mse", "output": "q"}))


def test_a_float_operator_without_a_scale() -> None:
    file = CircleFile()
    x, y = file.input("x", (1, 3), "int8"), file.tensor("y", (1, 3))
    file.operator("DEQUANTIZE", [x], [y])
    z = file.tensor("z", (1, 3))
    file.operator("PRELU", [y, file.constant("slope", np.ones(3, np.float32))], [z])
    with pytest.raises(UnknownOperatorError, match="needs a scale of 'x'"):
        load_circle(file.write(z), training=SGD)


@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((4, 3), 2, 3), ((4, 3), 0, 3), ((4,), 0, 3), ((), 0, 2)]
)
def test_scales_that_fit_no_axis_are_named(shape: tuple[int, ...], axis: int, count: int) -> None:
    file = CircleFile()
    q = file.scaled(file.input("q", shape, "int8"), [0.1] * count, [0] * count, axis)
    with pytest.raises(DocumentError, match=f"'q' of shape .* has {count} scales along axis {axis}"):
        load_circle(head(file, q, shape or (1,)), training=SGD)
