"""A frozen normalisation disappears into a frozen convolution, and into no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from solver.executor.initial import initial_value
from solver.graph import DType, Role, TrainableGraph
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.rewritable import constant
from tests.support.rewriting import everywhere, only, same_after, types

RULE = "fold-normalization"

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
    after = same_after(before, RULE, rtol=1e-10)
    assert "BatchNormalization" not in types(after)
    conv = next(op for op in after.operations if op.id == "conv")
    assert conv.outputs == ("y",)
    assert {after.operands[name].role for name in conv.inputs[1:]} == {Role.CONSTANT}
    assert {*OPERANDS} & set(after.operands) == set()


def test_the_figures() -> None:
    before = normalised(bias=False)
    after = only(before, RULE)
    value = {name: initial_value(before.operands[name]) for name in OPERANDS if name != "bias"}
    factor = value["scale"] / np.sqrt(value["variance"] + 0.01)
    folded = initial_value(after.operands["conv.folded_weight"])
    np.testing.assert_allclose(folded, value["weight"] * factor[:, None, None, None], rtol=1e-12)
    shift = initial_value(after.operands["conv.folded_bias"])
    np.testing.assert_allclose(shift, value["shift"] - factor * value["mean"], rtol=1e-12)


# ------------------------------------------------------------------------ where it must not happen


def _two_readers() -> TrainableGraph:
    s = Sketch("readers", DType.FLOAT64)
    h = s.op("Conv", [s.input("x", 2, 3, 4, 4), constant(s, "k", 3, 3, 1, 1)], "h")
    parts = [constant(s, name, 3, low=0.5) for name in ("scale", "shift", "mean", "variance")]
    h = s.op("Mul", [s.op("BatchNormalization", [h, *parts], "y"), h], "z")
    h = s.op("Mul", [h, s.parameter("v", 1)], "w")
    s.op("ReduceMean", [h], "loss", keepdims=0)
    return s.graph()


@pytest.mark.parametrize(
    "make",
    [
        _two_readers,
        *(
            pytest.param(lambda name=name: normalised(others=(name,)), id=f"a frozen parameter: {name}")
            for name in OPERANDS
        ),
        pytest.param(
            lambda: normalised(others=("mean", "variance"), role=Role.STATE), id="running statistics"
        ),
        pytest.param(
            lambda: normalised(others=("mean", "variance"), role=Role.STATE, training_mode=1),
            id="statistics of the batch",
        ),
        pytest.param(lambda: normalised("NHWC", "NCHW"), id="channels along another axis"),
        pytest.param(lambda: normalised(outputs=("h",)), id="an output between them"),
        pytest.param(lambda: normalised(activation="Relu"), id="an activation between them"),
    ],
)
def test_it_stays_as_it_is(make: Callable[[], TrainableGraph]) -> None:
    graph = make()
    assert everywhere(graph, RULE).graph is graph


def test_training_the_folded_weights_would_be_another_training() -> None:
    """Why weights have to be frozen: with W' = f W, one step of gradient descent moves f^2 times as far."""
    f, w, x, rate = 3.0, 0.5, 2.0, 0.1
    apart = w - rate * f * x  # y = f (w x), dy = 1
    folded = (f * w - rate * x) / f  # y = w' x with w' = f w, seen as w again
    assert (w - apart) == pytest.approx(f**2 * (w - folded))
