"""Rules that join operations, take them apart or exchange them: what they change, and where they must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.documents import load_graph
from solver.executor import Trainer, rewritten, validate
from solver.executor.arithmetic import KernelArithmetic
from solver.executor.initial import initial_value
from solver.graph import DType, Initializer, OptimizerSpec, Role, TrainableGraph
from solver.graph.types import Array
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.preparations.rewriting import RULES, Footprint, rewrite
from tests.support.every import grid
from tests.support.graphs import Sketch, chain, convolutional, network, residual
from tests.support.rewritable import constant
from tests.support.rewriting import everywhere, footprint, only, outputs, same_after, same_training, types

FUSE_ACTIVATION = "fuse-activation"

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
    after = same_after(convolved(activation, layout, group=group), FUSE_ACTIVATION)
    assert types(after) == ["Conv", "GlobalAveragePool", "Flatten", "CategoricalCrossEntropy"]
    conv = after.operations[0]
    assert (conv.id, conv.outputs, conv.attributes["activation"]) == ("conv", ("y",), FUSED[activation])


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_forward_values_behind_an_activation_are_the_same_bits(activation: str, layout: str) -> None:
    before = convolved(activation, layout)
    assert outputs(before)["y"].tobytes() == outputs(only(before, FUSE_ACTIVATION))["y"].tobytes()


@pytest.mark.parametrize("type_", ["Add", "Sub", "Mul", "Div", "MatMul", "Gemm"])
def test_every_operator_that_can_takes_it(type_: str) -> None:
    s = Sketch("any", DType.FLOAT64)
    s.parameter("b", 4, 4, initializer=Initializer("uniform", scale=2.0, seed=3))
    s.read(f"y = Tanh({type_}(a.input[4, 4], b)); loss = MeanSquaredError(y, t.label[4, 4])")
    after = same_after(s.graph(), FUSE_ACTIVATION, rtol=1e-12)
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
    after = same_after(clip(0.0, 6.0), FUSE_ACTIVATION, bitwise=True)
    assert after.operations[0].attributes == {"activation": "Relu6"}
    assert set(after.operands) == {"x", "w", "y", "t", "loss"}


# ------------- Biases move into products and convolutions where they lie along the channels, and nowhere else


FUSE_BIAS = "fuse-bias"


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
    after = same_after(matrices(type_, bias, swapped=swapped), FUSE_BIAS, rtol=1e-12)
    assert types(after) == ["Gemm", "Mul", "ReduceMean"]
    gemm = after.operations[0]
    assert (gemm.id, gemm.inputs, gemm.outputs) == ("product", ("x", "w", "b"), ("y",))
    assert set(after.operands) == {"x", "w", "b", "y", "squared", "loss"}


def test_attributes_of_a_gemm_survive_but_for_beta() -> None:
    h = "Gemm(x.input[4, 3], w[5, 4], transA=1, transB=1, alpha=2.0, beta=0.5)"
    after = same_after(squared(f"y = Add({h}, b[5])"), FUSE_BIAS, rtol=1e-12)
    assert after.operations[0].attributes == {"transA": 1, "transB": 1, "alpha": 2.0}


def test_an_activation_of_the_sum_stays() -> None:
    before = squared(f"{PRODUCT}; y = Add(h, b[5], activation='Tanh')")
    after = same_after(before, FUSE_BIAS, rtol=1e-12)
    assert after.operations[0].attributes["activation"] == "Tanh"


@pytest.mark.parametrize("bias", [(3, 1, 1), (1, 3, 1, 1)], ids=lambda shape: "x".join(map(str, shape)))
def test_under_nchw_the_bias_is_reshaped_and_stays_the_parameter(bias: tuple[int, ...]) -> None:
    before = images(bias)
    after = same_after(before, FUSE_BIAS, rtol=1e-12)
    assert types(after) == ["Reshape", "Conv", "Mul", "ReduceMean"]
    assert after.operands["b"] == before.operands["b"]
    assert after.operations[0].inputs[0] == "b"


def test_under_nhwc_a_vector_is_taken_as_it_is() -> None:
    after = same_after(images((3,), "NHWC"), FUSE_BIAS, rtol=1e-12)
    assert types(after) == ["Conv", "Mul", "ReduceMean"]
    assert after.operations[0].inputs == ("x", "w", "b")


def test_a_row_of_channels_is_reshaped_under_nhwc() -> None:
    after = same_after(images((1, 1, 3), "NHWC"), FUSE_BIAS, rtol=1e-12)
    assert types(after)[:2] == ["Reshape", "Conv"]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_transposed_convolutions_take_a_bias_too(layout: str) -> None:
    s = Sketch("transposed", DType.FLOAT64)
    nchw = layout == "NCHW"
    x = s.input("x", 2, *((2, 4, 4) if nchw else (4, 4, 2)))
    w = s.parameter("w", 2, *((3, 2, 2) if nchw else (2, 2, 3)))
    h = s.op("ConvTranspose", [x, w], "h", strides=(2, 2), data_layout=layout)
    b = s.parameter("b", *((3, 1, 1) if nchw else (3,)))
    after = same_after(finished(s, s.op("Add", [h, b], "y")), FUSE_BIAS, rtol=1e-12)
    assert "Add" not in types(after)


def test_a_tied_bias_collects_all_its_derivatives() -> None:
    before = squared("h = Add(MatMul(x.input[3, 4], w[4, 4]), b[4]); y = Mul(Add(MatMul(h, w), b), b)")
    after = same_after(before, FUSE_BIAS, rtol=1e-12)
    assert types(after) == ["Gemm", "Gemm", "Mul", "Mul", "ReduceMean"]


def test_a_frozen_bias_and_a_frozen_weight_stay_frozen() -> None:
    before = squared("h = Add(MatMul(x.input[3, 4], w.frozen[4, 5]), b.frozen[5]); y = MatMul(h, v[5, 2])")
    after = same_after(before, FUSE_BIAS, bitwise=True)
    assert (after.trainable, types(after)[0]) == (("v",), "Gemm")


def test_new_names_give_way_to_those_of_the_graph() -> None:
    s = Sketch("names", DType.FLOAT64)
    x = s.input("sum.bias", 2, 2, 4, 4)
    h = s.op("Conv", [x, s.parameter("w", 3, 2, 1, 1)], "h", "sum.bias")
    before = finished(s, s.op("Add", [h, s.parameter("b", 3, 1, 1)], "y", "sum"))
    after = same_after(before, FUSE_BIAS, rtol=1e-12)
    assert len({op.id for op in after.operations}) == len(after.operations)
    assert after.operands["sum.bias"] == before.operands["sum.bias"]


def test_forward_values_are_the_same_bits() -> None:
    before = images((3, 1, 1))
    after = only(before, FUSE_BIAS)
    assert outputs(before)["y"].tobytes() == outputs(after)["y"].tobytes()


# ----------------------------- A frozen normalisation disappears into a frozen convolution, and into no other


FOLD_NORMALIZATION = "fold-normalization"

OPERANDS = ("weight", "bias", "scale", "shift", "mean", "variance")


def normalised(
    layout: str = "NCHW",
    norm_layout: str = "",
    *,
    bias: bool = True,
    group: int = 1,
    trained_before: bool = False,
    others: Sequence[str] = (),
    role: Role = Role.PARAMETER,
    outputs: Sequence[str] = (),
    activation: str = "None",
    **attributes: Any,
) -> TrainableGraph:
    """Conv `h`, BatchNormalization `y`; those of `OPERANDS` in `others` have another role than constant."""
    s = Sketch("normalised", DType.FLOAT64)
    nchw, common = layout == "NCHW", {"data_layout": layout}
    x = s.input("x", 2, *((4, 4, 4)))
    if trained_before:
        x = s.op("Conv", [x, s.parameter("first", *((4, 4, 1, 1) if nchw else (4, 1, 1, 4)))], "a", **common)
    kernel = (4, 4 // group, 3, 3) if nchw else (4, 3, 3, 4 // group)

    def given(name: str, *shape: int) -> str:
        if name not in others:
            return constant(s, name, *shape, low=0.5 if name == "variance" else -1.0)
        return s.add(name, role, shape, **({"trainable": False} if role is Role.PARAMETER else {}))

    inputs = [x, given("weight", *kernel), *([given("bias", 4)] if bias else [])]
    h = s.op("Conv", inputs, "h", "conv", group=group, pads=(1, 1, 1, 1), activation=activation, **common)
    parts = [given(name, 4) for name in ("scale", "shift", "mean", "variance")]
    layout_of_norm = norm_layout or layout
    h = s.op("BatchNormalization", [h, *parts], "y", data_layout=layout_of_norm, epsilon=0.01, **attributes)
    h = s.op("Flatten", [s.op("GlobalAveragePool", [h], "p", **common)], "f")
    h = s.op("MatMul", [h, s.parameter("v", 4, 3)], "z")
    s.op("CategoricalCrossEntropy", [h, s.label("t", 2, 3)], "loss", from_logits=1)
    return s.graph(trainable=["first", "v"] if trained_before else ["v"], outputs=outputs)


@grid("trained_before", [False, True])
@grid("group", [1, 2, 4])
@grid("bias", [False, True])
@grid("layout", ["NCHW", "NHWC"])
def test_it_folds(layout: str, bias: bool, group: int, trained_before: bool) -> None:
    before = normalised(layout, bias=bias, group=group, trained_before=trained_before, outputs=("y",))
    after = same_after(before, FOLD_NORMALIZATION, rtol=1e-10)
    assert "BatchNormalization" not in types(after)
    conv = next(op for op in after.operations if op.id == "conv")
    assert conv.outputs == ("y",)
    assert {after.operands[name].role for name in conv.inputs[1:]} == {Role.CONSTANT}
    assert {*OPERANDS} & set(after.operands) == set()


def test_the_figures() -> None:
    before = normalised(bias=False)
    after = only(before, FOLD_NORMALIZATION)
    value = {name: initial_value(before.operands[name]) for name in OPERANDS if name != "bias"}
    factor = value["scale"] / np.sqrt(value["variance"] + 0.01)
    folded = initial_value(after.operands["conv.folded_weight"])
    np.testing.assert_allclose(folded, value["weight"] * factor[:, None, None, None], rtol=1e-12)
    shift = initial_value(after.operands["conv.folded_bias"])
    np.testing.assert_allclose(shift, value["shift"] - factor * value["mean"], rtol=1e-12)


def test_training_the_folded_weights_would_be_another_training() -> None:
    """Why weights have to be frozen: with W' = f W, one step of gradient descent moves f^2 times as far."""
    f, w, x, rate = 3.0, 0.5, 2.0, 0.1
    apart = w - rate * f * x  # y = f (w x), dy = 1
    folded = (f * w - rate * x) / f  # y = w' x with w' = f w, seen as w again
    assert (w - apart) == pytest.approx(f**2 * (w - folded))


# -------- Pooling goes before activations that select, ties and padding included, and stays behind all others


POOL_FIRST = "pool-first"

WINDOWS: dict[str, dict[str, Any]] = {
    "halves": {"kernel_shape": (2, 2), "strides": (2, 2)},
    "overlapping": {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    "every position": {"kernel_shape": (2, 2)},
    "rounded up": {"kernel_shape": (3, 3), "strides": (3, 3), "ceil_mode": 1},
    "same": {"kernel_shape": (3, 2), "strides": (2, 2), "auto_pad": "SAME_UPPER"},
    "dilated": {"kernel_shape": (2, 2), "dilations": (2, 2), "pads": (1, 1, 1, 1)},
}


def pooled(
    activation: str,
    layout: str = "NCHW",
    window: str = "halves",
    *,
    fused: bool = False,
    dtype: DType = DType.FLOAT64,
    size: int = 8,
    bounds: tuple[float, float] = (0.0, 6.0),
    **more: Any,
) -> TrainableGraph:
    """A convolution, an activation (fused or not), a MaxPool and a layer."""
    s, common = Sketch("pooled", dtype), {"data_layout": layout}
    nchw = layout == "NCHW"
    x = s.input("x", 2, *((2, size, size) if nchw else (size, size, 2)))
    w = s.parameter("w", 3, *((2, 3, 3) if nchw else (3, 3, 2)))
    fuse = {"activation": activation} if fused else {}
    h = s.op("Conv", [x, w, s.parameter("b", 3)], "h", "conv", pads=(1, 1, 1, 1), **common, **fuse)
    if not fused:
        limits = {"min": bounds[0], "max": bounds[1]} if activation == "Clip" else {}
        h = s.op(activation, [h], "a", "bend", **limits)
    h = s.op("MaxPool", [h], "p", "pool", **common, **(WINDOWS[window] | more))
    h = s.op("Flatten", [s.op("GlobalAveragePool", [h], "g", **common)], "f")
    s.op("CategoricalCrossEntropy", [h, s.label("t", 2, 3)], "loss", from_logits=1)
    return s.graph(outputs=("p",))


@grid("window", WINDOWS)
@grid("layout", ["NCHW", "NHWC"])
@grid("activation", ["Relu", "Clip"])
def test_an_activation_by_itself_changes_places(activation: str, layout: str, window: str) -> None:
    before = pooled(activation, layout, window)
    after = same_after(before, POOL_FIRST, bitwise=True)
    assert types(after)[:3] == ["Conv", "MaxPool", activation]
    assert [op.id for op in after.operations[:3]] == ["conv", "pool", "bend"]
    assert after.operations[2].attributes == before.operations[1].attributes
    assert outputs(before)["p"].tobytes() == outputs(after)["p"].tobytes()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("activation", ["Relu", "Relu6"])
def test_a_fused_one_comes_out(activation: str, layout: str) -> None:
    before = pooled(activation, layout, fused=True)
    after = same_after(before, POOL_FIRST, rtol=1e-12)
    assert types(after)[:3] == ["Conv", "MaxPool", {"Relu": "Relu", "Relu6": "Clip"}[activation]]
    assert [op.id for op in after.operations[:3]] == ["conv", "pool", "conv.activation"]
    assert outputs(before)["p"].tobytes() == outputs(after)["p"].tobytes()


@pytest.mark.parametrize("bounds", [(-0.1, 0.1), (0.0, 0.2), (-1.0, 0.0), (5.0, 6.0)])
def test_any_bounds_will_do(bounds: tuple[float, float]) -> None:
    before = pooled("Clip", bounds=bounds)
    same_training(before, only(before, POOL_FIRST), bitwise=True)


def test_bounds_that_are_inputs_go_along() -> None:
    s = Sketch("inputs", DType.FLOAT64)
    s.add("low", Role.CONSTANT, (), initializer=Initializer("constant", value=-0.25))
    s.read(
        f"{SCALED}; p = MaxPool(Clip(h, low), kernel_shape=(2, 2)); loss = ReduceMean(Mul(p, p), keepdims=0)"
    )
    after = same_after(s.graph(), POOL_FIRST, bitwise=True)
    assert after.operations[2].inputs == ("p.op.linear", "low")


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("window", ["halves", "overlapping", "every position"])
def test_ties_go_to_the_same_tap(activation: str, window: str) -> None:
    """Whole numbers from -2 to 8: several largest elements in a window, at the bounds and inside."""
    s = Sketch("ties", DType.FLOAT64)
    h = s.op("Mul", [s.parameter("w", 2, 3, 8, 8), s.input("x", 1)], "h")
    limits: dict[str, Any] = {"min": 0.0, "max": 6.0} if activation == "Clip" else {}
    h = s.op("MaxPool", [s.op(activation, [h], "a", **limits)], "p", **WINDOWS[window])
    s.op("ReduceSum", [s.op("Mul", [h, h], "q")], "loss", keepdims=0)
    before = s.graph().with_spec(optimizer=OptimizerSpec("SGD", {"learning_rate": 1.0}))
    after = only(before, POOL_FIRST)
    for seed in range(5):
        values = np.random.default_rng(seed).integers(-2, 9, (2, 3, 8, 8)).astype(np.float64)
        assert np.array_equal(_gradient(before, values), _gradient(after, values))


def _gradient(graph: TrainableGraph, values: Array) -> Array:
    trainer = Trainer(graph, plan(graph))
    trainer.runner.value("w")[...] = values
    trainer.step({"x": np.ones(1)})
    return values - trainer.read("w")


def _average() -> TrainableGraph:
    graph = pooled("Relu")
    pool = replace(graph.operations[2], type="AveragePool")
    return graph.with_graph(operations=(*graph.operations[:2], pool, *graph.operations[3:]))


# ------------------------------------------------------------------------------------------ memory


def test_the_large_output_of_the_activation_is_not_kept() -> None:
    """Before, it lives from forward to backward; after, the backward steps read nothing of its size."""
    graph = pooled("Relu", fused=True, size=32, dtype=DType.FLOAT32)
    made = plan(graph, PlanOptions(rewrite=True))
    assert next(one.rule for one in made.replacements) == POOL_FIRST
    assert made.arena_bytes < plan(graph).arena_bytes
    assert validate(graph, made, steps=2).identical
    large = graph.operands["h"].type.nbytes
    assert footprint(graph).bound - made.lower_bound > large // 4


# --------------- A fused activation comes apart where the product's backward step is the peak, and only there


SPLIT_ACTIVATION = "split-activation"

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


def fused(type_: str, activation: str) -> TrainableGraph:
    s = Sketch("fused", DType.FLOAT64)
    h = s.op(type_, [s.input("x", 4, 4), s.parameter("w", 4, 4)], "y", "inner", activation=activation)
    s.op("MeanSquaredError", [h, s.label("t", 4, 4)], "loss")
    return s.graph(outputs=("y",))


@grid("type_", ["Gemm", "MatMul", "Add", "Mul"])
@grid("activation", ["Relu", "Relu6", "Sigmoid", "Tanh"])
def test_it_comes_apart_and_back(type_: str, activation: str) -> None:
    before = fused(type_, activation)
    after = same_after(before, SPLIT_ACTIVATION, rtol=1e-12)
    name = "Clip" if activation == "Relu6" else activation
    assert types(after) == [type_, name, "MeanSquaredError"]
    inner, outer = after.operations[:2]
    assert (inner.id, outer.id, outer.outputs) == ("inner", "inner.activation", ("y",))
    assert everywhere(after, "fuse-activation").graph == before


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_forward_values_of_a_split_are_the_same_bits(layout: str) -> None:
    before = convolutional(layout=layout)
    after = same_after(before, SPLIT_ACTIVATION)
    assert {"Relu", "Clip"} <= set(types(after))
    assert outputs(before)["f"].tobytes() == outputs(after)["f"].tobytes()


def test_names_give_way() -> None:
    s = Sketch("names", DType.FLOAT64)
    x, w = s.input("inner.linear", 4, 4), s.parameter("w", 4, 4)
    h = s.op("Gemm", [x, w], "y", "inner", activation="Relu")
    h = s.op("Gemm", [h, w], "z", "inner.activation", activation="Relu")
    s.op("MeanSquaredError", [h, s.label("t", 4, 4)], "loss")
    after = same_after(s.graph(), SPLIT_ACTIVATION, rtol=1e-12)
    assert len({op.id for op in after.operations}) == len(after.operations) == 5


def test_it_lowers_the_bound_or_does_not_happen() -> None:
    for graph in (chain((64, 64, 64), 64), residual(64, 32), convolutional(16)):
        found = rewrite(graph, KernelArithmetic(), footprint)
        split = [one for one in found.applied if one.rule == SPLIT_ACTIVATION]
        assert all(one.bytes_after < one.bytes_before for one in split)
        assert footprint(found.graph) <= footprint(graph)


def test_the_mobilenet_example_needs_less() -> None:
    """Its peak is the backward step of a convolution, which reads its output and stages a derivative."""
    graph = load_graph((EXAMPLES / "mobilenet_v2.json").read_bytes())
    made = plan(graph, PlanOptions(rewrite=True))
    assert [one.rule for one in made.replacements] == [SPLIT_ACTIVATION]
    assert made.arena_bytes == made.lower_bound == 399_732_096
    assert plan(graph).arena_bytes > made.arena_bytes


def test_a_dense_layer_at_the_peak_trains_in_less() -> None:
    graph = chain((64, 64, 64), 64)
    made = plan(graph, PlanOptions(rewrite=True))
    assert made.arena_bytes < plan(graph).arena_bytes
    assert validate(graph, made, steps=2).identical
    same_training(graph, rewritten(graph, made))


def test_only_operations_at_the_peak_are_asked() -> None:
    graph = convolutional(16)
    asked = 0

    def cost(candidate: TrainableGraph) -> Footprint:
        nonlocal asked
        asked += 1
        return replace(footprint(candidate), at_peak=frozenset())

    splitting = [rule for rule in RULES if rule.name == SPLIT_ACTIVATION]
    assert rewrite(graph, KernelArithmetic(), cost, splitting).graph is graph
    assert asked == 1


# ------------------------------------------------------------------------------- where it must not happen


def squared(text: str, **options: Any) -> TrainableGraph:
    """The mean of the squares of y."""
    return network(f"{text}; loss = ReduceMean(Mul(y, y), keepdims=0)", DType.FLOAT64, **options)


def frozen_norm_read_twice() -> TrainableGraph:
    s = Sketch("readers", DType.FLOAT64)
    h = s.op("Conv", [s.input("x", 2, 3, 4, 4), constant(s, "k", 3, 3, 1, 1)], "h")
    parts = [constant(s, name, 3, low=0.5) for name in ("scale", "shift", "mean", "variance")]
    s.op("BatchNormalization", [h, *parts], "n")
    return s.read("loss = ReduceMean(Mul(Mul(n, h), v[1]), keepdims=0)").graph()


PRODUCT = "h = MatMul(x.input[4, 5], w[5, 5])"
SCALED = "h = Mul(x.input[2, 3, 4, 4], w[3, 1, 1])"

STAYING: dict[str, dict[str, Callable[[], TrainableGraph]]] = {
    FUSE_ACTIVATION: {
        "two readers": lambda: squared(f"{PRODUCT}; y = Mul(Relu(h), h)"),
        "asked for": lambda: squared(f"{PRODUCT}; y = Relu(h)", outputs=("h",)),
        "behind an activation": lambda: squared(
            "y = Relu(MatMul(x.input[4, 5], w[5, 5], activation='Tanh'))"
        ),
        "of a power": lambda: squared(f"{PRODUCT}; y = Relu(Pow(Exp(h), e[5]))"),
        "of an input": lambda: squared("y = MatMul(Relu(x.input[4, 5]), w[5, 5])"),
        "that reads its input": lambda: behind("Swish"),
        "that no operator fuses": lambda: behind("LeakyRelu"),
        "softmax": lambda: behind("Softmax"),
        "clip to 5": lambda: behind("Clip", min=0.0, max=5.0),
        "clip from -1": lambda: behind("Clip", min=-1.0, max=6.0),
        "clip without an end": lambda: behind("Clip", min=0.0),
        "clip without bounds": lambda: behind("Clip"),
        "clip to an input of 5": lambda: clip(0.0, 5.0),
        "clip without a beginning": lambda: clip(None, 6.0),
        "clip to a frozen parameter": lambda: clip(0.0, 6.0, role=Role.PARAMETER),
    },
    FUSE_BIAS: {
        "two readers": lambda: squared(f"{PRODUCT}; y = Mul(Add(h, b[5]), h)"),
        "read twice": lambda: squared(f"{PRODUCT}; y = Add(h, h)"),
        "asked for": lambda: squared(f"{PRODUCT}; y = Add(h, b[5])", outputs=("h",)),
        "already biased": lambda: squared("y = Add(Gemm(x.input[3, 4], w[4, 5], c[5]), b[5])"),
        "batched": lambda: squared("y = Add(MatMul(x.input[2, 3, 4], w[4, 5]), b[5])"),
        "subtracted": lambda: squared(f"{PRODUCT}; y = Sub(h, b.frozen[5])"),
        "activated before the sum": lambda: matrices(activation="Relu"),
        "along the rows": lambda: matrices(bias=(3, 1)),
        "a matrix": lambda: matrices(bias=(3, 5)),
        "one value": lambda: matrices(bias=(1,)),
        "a scalar": lambda: matrices(bias=()),
        "that enlarges the sum": lambda: matrices(bias=(2, 1, 5)),
        "a vector along the width of NCHW": lambda: images((3,), size=(4, 3)),
        "channels first under NHWC": lambda: images((3, 1, 1), "NHWC", size=(3, 4)),
        "along the height": lambda: images((1, 4, 1)),
        "for each example": lambda: images((2, 3, 1, 1)),
        "one value for all channels": lambda: images((1, 1, 1)),
        "for each position": lambda: images((3, 4, 6)),
    },
    FOLD_NORMALIZATION: {
        "two readers": frozen_norm_read_twice,
        **{f"a frozen parameter: {name}": partial(normalised, others=(name,)) for name in OPERANDS},
        "running statistics": lambda: normalised(others=("mean", "variance"), role=Role.STATE),
        "statistics of the batch": lambda: normalised(
            others=("mean", "variance"), role=Role.STATE, training_mode=1
        ),
        "channels along another axis": lambda: normalised("NHWC", "NCHW"),
        "an output between them": lambda: normalised(outputs=("h",)),
        "an activation between them": lambda: normalised(activation="Relu"),
    },
    POOL_FIRST: {
        "two readers": lambda: squared(f"{SCALED}; a = Relu(h); y = Add(MaxPool(a, kernel_shape=(1, 1)), a)"),
        "average": _average,
        "Sigmoid rounds to ties": lambda: pooled("Sigmoid"),
        "Tanh rounds to ties": lambda: pooled("Tanh", fused=True),
        "LeakyRelu rounds to ties": lambda: pooled("LeakyRelu"),
        "Swish falls before it rises": lambda: pooled("Swish"),
        "nothing to change places with": lambda: pooled("None", fused=True),
        "windows on padding alone": lambda: pooled("Relu", pads=(0, 2, 0, 2)),
        "the first window on padding alone": lambda: pooled(
            "Relu", size=5, kernel_shape=(1, 1), strides=(3, 3), pads=(1, 1, 1, 1)
        ),
        "an output between them": lambda: pooled("Relu").with_graph(outputs=("a",)),
    },
    SPLIT_ACTIVATION: {"nothing to split": lambda: fused("Gemm", "None")},
}


@grid(
    ("rule", "make"),
    [
        pytest.param(rule, make, id=f"{rule}: {name}")
        for rule, rows in STAYING.items()
        for name, make in rows.items()
    ],
)
def test_a_graph_that_a_rule_does_not_hold_in_stays_as_it_is(
    rule: str, make: Callable[[], TrainableGraph]
) -> None:
    graph = make()
    assert everywhere(graph, rule).graph is graph
