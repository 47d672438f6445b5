"""Biases move into products and convolutions where they lie along the channels, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from solver.graph import DType, TrainableGraph
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.rewritable import constant
from tests.support.rewriting import everywhere, only, outputs, same_after, types

RULE = "fuse-bias"


def finished(s: Sketch, h: str, **hyper: Any) -> TrainableGraph:
    """The mean of the squares behind `h`, whatever its shape."""
    s.op("ReduceMean", [s.op("Mul", [h, h], "squared")], "loss", keepdims=0)
    return s.graph(**hyper)


def matrices(
    type_: str = "MatMul", bias: tuple[int, ...] = (5,), *, swapped: bool = False, **attributes: Any
) -> TrainableGraph:
    s = Sketch("matrices", DType.FLOAT64)
    h = s.op(type_, [s.input("x", 3, 4), s.parameter("w", 4, 5)], "h", "product", **attributes)
    pair = [h, s.parameter("b", *bias)]
    return finished(s, s.op("Add", pair[::-1] if swapped else pair, "y", "sum"))


def images(
    bias: tuple[int, ...], layout: str = "NCHW", size: tuple[int, int] = (4, 6), filters: int = 3
) -> TrainableGraph:
    s = Sketch("images", DType.FLOAT64)
    nchw = layout == "NCHW"
    x = s.input("x", 2, *((2, *size) if nchw else (*size, 2)))
    w = s.parameter("w", filters, *((2, 3, 3) if nchw else (3, 3, 2)))
    h = s.op("Conv", [x, w], "h", "conv", data_layout=layout, pads=(1, 1, 1, 1))
    return finished(s, s.op("Add", [h, s.parameter("b", *bias)], "y", "sum"), outputs=("y",))


@grid("swapped", [False, True])
@grid("type_", ["MatMul", "Gemm"])
@grid("bias", [(5,), (1, 5)])
def test_a_product_becomes_a_gemm(type_: str, bias: tuple[int, ...], swapped: bool) -> None:
    after = same_after(matrices(type_, bias, swapped=swapped), RULE, rtol=1e-12)
    assert types(after) == ["Gemm", "Mul", "ReduceMean"]
    gemm = after.operations[0]
    assert (gemm.id, gemm.inputs, gemm.outputs) == ("product", ("x", "w", "b"), ("y",))
    assert set(after.operands) == {"x", "w", "b", "y", "squared", "loss"}


def test_attributes_of_a_gemm_survive_but_for_beta() -> None:
    s = Sketch("gemm", DType.FLOAT64)
    inputs = [s.input("x", 4, 3), s.parameter("w", 5, 4)]
    h = s.op("Gemm", inputs, "h", "product", transA=1, transB=1, alpha=2.0, beta=0.5)
    after = same_after(finished(s, s.op("Add", [h, s.parameter("b", 5)], "y")), RULE, rtol=1e-12)
    assert after.operations[0].attributes == {"transA": 1, "transB": 1, "alpha": 2.0}


def test_an_activation_of_the_sum_stays() -> None:
    s = Sketch("activated", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "h", "product")
    before = finished(s, s.op("Add", [h, s.parameter("b", 5)], "y", activation="Tanh"))
    after = same_after(before, RULE, rtol=1e-12)
    assert after.operations[0].attributes["activation"] == "Tanh"


@pytest.mark.parametrize("bias", [(3, 1, 1), (1, 3, 1, 1)], ids=lambda shape: "x".join(map(str, shape)))
def test_under_nchw_the_bias_is_reshaped_and_stays_the_parameter(bias: tuple[int, ...]) -> None:
    before = images(bias)
    after = same_after(before, RULE, rtol=1e-12)
    assert types(after) == ["Reshape", "Conv", "Mul", "ReduceMean"]
    assert after.operands["b"] == before.operands["b"]
    assert after.operations[0].inputs[0] == "b"


def test_under_nhwc_a_vector_is_taken_as_it_is() -> None:
    after = same_after(images((3,), "NHWC"), RULE, rtol=1e-12)
    assert types(after) == ["Conv", "Mul", "ReduceMean"]
    assert after.operations[0].inputs == ("x", "w", "b")


def test_a_row_of_channels_is_reshaped_under_nhwc() -> None:
    after = same_after(images((1, 1, 3), "NHWC"), RULE, rtol=1e-12)
    assert types(after)[:2] == ["Reshape", "Conv"]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_transposed_convolutions_take_a_bias_too(layout: str) -> None:
    s = Sketch("transposed", DType.FLOAT64)
    nchw = layout == "NCHW"
    x = s.input("x", 2, *((2, 4, 4) if nchw else (4, 4, 2)))
    w = s.parameter("w", 2, *((3, 2, 2) if nchw else (2, 2, 3)))
    h = s.op("ConvTranspose", [x, w], "h", strides=(2, 2), data_layout=layout)
    b = s.parameter("b", *((3, 1, 1) if nchw else (3,)))
    after = same_after(finished(s, s.op("Add", [h, b], "y")), RULE, rtol=1e-12)
    assert "Add" not in types(after)


def test_a_tied_bias_collects_all_its_derivatives() -> None:
    s = Sketch("tied", DType.FLOAT64)
    x, w, b = s.input("x", 3, 4), s.parameter("w", 4, 4), s.parameter("b", 4)
    h = s.op("Add", [s.op("MatMul", [x, w], "a"), b], "c")
    h = s.op("Add", [s.op("MatMul", [h, w], "d"), b], "e")
    after = same_after(finished(s, s.op("Mul", [h, b], "y")), RULE, rtol=1e-12)
    assert types(after) == ["Gemm", "Gemm", "Mul", "Mul", "ReduceMean"]


def test_a_frozen_bias_and_a_frozen_weight_stay_frozen() -> None:
    s = Sketch("frozen", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 3, 4), s.parameter("w", 4, 5, trainable=False)], "h")
    h = s.op("Add", [h, s.parameter("b", 5, trainable=False)], "y")
    after = same_after(finished(s, s.op("MatMul", [h, s.parameter("v", 5, 2)], "z")), RULE, bitwise=True)
    assert (after.trainable, types(after)[0]) == (("v",), "Gemm")


# ------------------------------------------------------------------------ where it must not happen


def _two_readers() -> TrainableGraph:
    s = Sketch("readers", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "h")
    return finished(s, s.op("Mul", [s.op("Add", [h, s.parameter("b", 5)], "y"), h], "z"))


def _read_twice() -> TrainableGraph:
    s = Sketch("twice", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "h")
    return finished(s, s.op("Add", [h, h], "y"))


def _asked_for() -> TrainableGraph:
    s = Sketch("asked", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "h")
    return finished(s, s.op("Add", [h, s.parameter("b", 5)], "y"), outputs=("h",))


def _already_biased() -> TrainableGraph:
    s = Sketch("biased", DType.FLOAT64)
    h = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 5), s.parameter("c", 5)], "h")
    return finished(s, s.op("Add", [h, s.parameter("b", 5)], "y"))


def _batched() -> TrainableGraph:
    s = Sketch("batched", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 2, 3, 4), s.parameter("w", 4, 5)], "h")
    return finished(s, s.op("Add", [h, s.parameter("b", 5)], "y"))


@pytest.mark.parametrize(
    "make",
    [
        *(_two_readers, _read_twice, _asked_for, _already_biased, _batched),
        pytest.param(lambda: matrices(activation="Relu"), id="activated before the sum"),
        pytest.param(lambda: matrices(bias=(3, 1)), id="along the rows"),
        pytest.param(lambda: matrices(bias=(3, 5)), id="a matrix"),
        pytest.param(lambda: matrices(bias=(1,)), id="one value"),
        pytest.param(lambda: matrices(bias=()), id="a scalar"),
        pytest.param(lambda: matrices(bias=(2, 1, 5)), id="that enlarges the sum"),
        pytest.param(lambda: images((3,), size=(4, 3)), id="a vector along the width of NCHW"),
        pytest.param(lambda: images((3, 1, 1), "NHWC", size=(3, 4)), id="channels first under NHWC"),
        pytest.param(lambda: images((1, 4, 1)), id="along the height"),
        pytest.param(lambda: images((2, 3, 1, 1)), id="for each example"),
        pytest.param(lambda: images((1, 1, 1)), id="one value for all channels"),
        pytest.param(lambda: images((3, 4, 6)), id="for each position"),
    ],
)
def test_it_stays_as_it_is(make: Callable[[], TrainableGraph]) -> None:
    graph = make()
    assert everywhere(graph, RULE).graph is graph


def test_subtraction_is_no_sum() -> None:
    s = Sketch("minus", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "h")
    graph = finished(s, s.op("Sub", [h, constant(s, "b", 5)], "y"))
    assert everywhere(graph, RULE).graph is graph


def test_new_names_give_way_to_those_of_the_graph() -> None:
    s = Sketch("names", DType.FLOAT64)
    x = s.input("sum.bias", 2, 2, 4, 4)
    h = s.op("Conv", [x, s.parameter("w", 3, 2, 1, 1)], "h", "sum.bias")
    before = finished(s, s.op("Add", [h, s.parameter("b", 3, 1, 1)], "y", "sum"))
    after = same_after(before, RULE, rtol=1e-12)
    assert len({op.id for op in after.operations}) == len(after.operations)
    assert after.operands["sum.bias"] == before.operands["sum.bias"]


def test_forward_values_are_the_same_bits() -> None:
    before = images((3, 1, 1))
    after = only(before, RULE)
    assert outputs(before)["y"].tobytes() == outputs(after)["y"].tobytes()
