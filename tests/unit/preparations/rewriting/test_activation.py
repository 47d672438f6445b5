"""Activations move into the operator before them, if nothing else reads what that computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from solver.graph import DType, Initializer, Role, TrainableGraph
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.rewriting import everywhere, only, outputs, same_after, types

RULE = "fuse-activation"

FUSED = {"Relu": "Relu", "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Clip": "Relu6"}


def behind(type_: str, dtype: DType = DType.FLOAT64, **attributes: Any) -> TrainableGraph:
    """An operator, an activation of its output `y`, and a trained layer behind."""
    s = Sketch("behind", dtype)
    x, w = s.input("x", 4, 5), s.parameter("w", 5, 5)
    h = s.op("MatMul", [x, w], "h", "product")
    h = s.op(type_, [h], "y", **attributes)
    h = s.op("MatMul", [h, s.parameter("v", 5, 2)], "z")
    s.op("MeanSquaredError", [h, s.label("t", 4, 2)], "loss")
    return s.graph(outputs=("y",))


def convolved(
    activation: str, layout: str, *, group: int = 1, dtype: DType = DType.FLOAT32
) -> TrainableGraph:
    s = Sketch("convolved", dtype)
    nchw = layout == "NCHW"
    x = s.input("x", 2, *((4, 6, 6) if nchw else (6, 6, 4)))
    w = s.parameter("w", 4, *((4 // group, 3, 3) if nchw else (3, 3, 4 // group)))
    common: dict[str, Any] = {"data_layout": layout}
    h = s.op("Conv", [x, w, s.parameter("b", 4)], "h", "conv", group=group, pads=(1, 1, 1, 1), **common)
    bounds: dict[str, Any] = {"min": 0.0, "max": 6.0} if activation == "Clip" else {}
    h = s.op(activation, [h], "y", **bounds)
    h = s.op("Flatten", [s.op("GlobalAveragePool", [h], "p", **common)], "f")
    s.op("CategoricalCrossEntropy", [h, s.label("t", 2, 4)], "loss", from_logits=1)
    return s.graph(outputs=("y",))


@grid("layout", ["NCHW", "NHWC"])
@grid("group", [1, 4])
@grid("activation", FUSED)
def test_a_convolution_takes_it(activation: str, group: int, layout: str) -> None:
    after = same_after(convolved(activation, layout, group=group), RULE)
    assert types(after) == ["Conv", "GlobalAveragePool", "Flatten", "CategoricalCrossEntropy"]
    conv = after.operations[0]
    assert (conv.id, conv.outputs, conv.attributes["activation"]) == ("conv", ("y",), FUSED[activation])


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_forward_values_are_the_same_bits(activation: str, layout: str) -> None:
    before = convolved(activation, layout)
    assert outputs(before)["y"].tobytes() == outputs(only(before, RULE))["y"].tobytes()


@pytest.mark.parametrize("type_", ["Add", "Sub", "Mul", "Div", "MatMul", "Gemm"])
def test_every_operator_that_can_takes_it(type_: str) -> None:
    s = Sketch("any", DType.FLOAT64)
    a, b = s.input("a", 4, 4), s.parameter("b", 4, 4, initializer=Initializer("uniform", scale=2.0, seed=3))
    h = s.op("Tanh", [s.op(type_, [a, b], "h", "inner")], "y")
    s.op("MeanSquaredError", [h, s.label("t", 4, 4)], "loss")
    after = same_after(s.graph(), RULE, rtol=1e-12)
    assert types(after) == [type_, "MeanSquaredError"]


def clip(low: float | None, high: float | None, *, role: Role = Role.CONSTANT) -> TrainableGraph:
    """Bounds as inputs; None leaves one out."""
    s = Sketch("clip", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 5), s.parameter("w", 5, 5)], "h", "product")
    bounds = []
    for name, value in (("low", low), ("high", high)):
        given = Initializer("constant", value=value or 0.0)
        bounds.append("" if value is None else s.add(name, role, (), initializer=given))
    h = s.op("Clip", [h, *bounds], "y")
    s.op("MeanSquaredError", [h, s.label("t", 4, 5)], "loss")
    return s.graph(trainable=["w"])


def test_bounds_may_be_constant_inputs() -> None:
    after = same_after(clip(0.0, 6.0), RULE, bitwise=True)
    assert after.operations[0].attributes == {"activation": "Relu6"}
    assert set(after.operands) == {"x", "w", "y", "t", "loss"}


# ------------------------------------------------------------------------ where it must not happen


def _two_readers() -> TrainableGraph:
    s = Sketch("readers", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 5), s.parameter("w", 5, 5)], "h")
    h = s.op("Mul", [s.op("Relu", [h], "y"), h], "z")
    s.op("MeanSquaredError", [h, s.label("t", 4, 5)], "loss")
    return s.graph()


def _asked_for() -> TrainableGraph:
    s = Sketch("asked", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 5), s.parameter("w", 5, 5)], "h")
    s.op("MeanSquaredError", [s.op("Relu", [h], "y"), s.label("t", 4, 5)], "loss")
    return s.graph(outputs=("h",))


def _behind_an_activation() -> TrainableGraph:
    s = Sketch("activated", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 5), s.parameter("w", 5, 5)], "h", activation="Tanh")
    s.op("MeanSquaredError", [s.op("Relu", [h], "y"), s.label("t", 4, 5)], "loss")
    return s.graph()


def _of_a_power() -> TrainableGraph:
    s = Sketch("power", DType.FLOAT64)
    h = s.op("Exp", [s.op("MatMul", [s.input("x", 4, 5), s.parameter("w", 5, 5)], "a")], "h")
    h = s.op("Pow", [h, s.parameter("e", 5, initializer=Initializer("ones"))], "p")
    s.op("MeanSquaredError", [s.op("Relu", [h], "y"), s.label("t", 4, 5)], "loss")
    return s.graph()


def _of_an_input() -> TrainableGraph:
    s = Sketch("input", DType.FLOAT64)
    h = s.op("MatMul", [s.op("Relu", [s.input("x", 4, 5)], "y"), s.parameter("w", 5, 5)], "h")
    s.op("MeanSquaredError", [h, s.label("t", 4, 5)], "loss")
    return s.graph()


@pytest.mark.parametrize(
    "make",
    [
        *(_two_readers, _asked_for, _behind_an_activation, _of_a_power, _of_an_input),
        pytest.param(lambda: behind("Swish"), id="that reads its input"),
        pytest.param(lambda: behind("LeakyRelu"), id="that no operator fuses"),
        pytest.param(lambda: behind("Clip", min=0.0, max=5.0), id="clip to 5"),
        pytest.param(lambda: behind("Clip", min=-1.0, max=6.0), id="clip from -1"),
        pytest.param(lambda: behind("Clip", min=0.0), id="clip without an end"),
        pytest.param(lambda: behind("Clip"), id="clip without bounds"),
        pytest.param(lambda: clip(0.0, 5.0), id="clip to an input of 5"),
        pytest.param(lambda: clip(None, 6.0), id="clip without a beginning"),
        pytest.param(lambda: clip(0.0, 6.0, role=Role.PARAMETER), id="clip to a frozen parameter"),
    ],
)
def test_it_stays_as_it_is(make: Callable[[], TrainableGraph]) -> None:
    graph = make()
    assert everywhere(graph, RULE).graph is graph


def test_a_softmax_is_no_activation_to_fuse() -> None:
    graph = behind("Softmax")
    assert everywhere(graph, RULE).graph is graph
