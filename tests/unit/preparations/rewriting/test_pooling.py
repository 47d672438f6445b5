"""Pooling goes before activations that select, ties and padding included, and stays behind all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.executor import Trainer, validate
from solver.graph import DType, Initializer, OptimizerSpec, Role, TrainableGraph
from solver.graph.types import Array
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.rewriting import everywhere, footprint, only, outputs, same_after, same_training, types

RULE = "pool-first"

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
    after = same_after(before, RULE, bitwise=True)
    assert types(after)[:3] == ["Conv", "MaxPool", activation]
    assert [op.id for op in after.operations[:3]] == ["conv", "pool", "bend"]
    assert after.operations[2].attributes == before.operations[1].attributes
    assert outputs(before)["p"].tobytes() == outputs(after)["p"].tobytes()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("activation", ["Relu", "Relu6"])
def test_a_fused_one_comes_out(activation: str, layout: str) -> None:
    before = pooled(activation, layout, fused=True)
    after = same_after(before, RULE, rtol=1e-12)
    assert types(after)[:3] == ["Conv", "MaxPool", {"Relu": "Relu", "Relu6": "Clip"}[activation]]
    assert [op.id for op in after.operations[:3]] == ["conv", "pool", "conv.activation"]
    assert outputs(before)["p"].tobytes() == outputs(after)["p"].tobytes()


@pytest.mark.parametrize("bounds", [(-0.1, 0.1), (0.0, 0.2), (-1.0, 0.0), (5.0, 6.0)])
def test_any_bounds_will_do(bounds: tuple[float, float]) -> None:
    before = pooled("Clip", bounds=bounds)
    same_training(before, only(before, RULE), bitwise=True)


def test_bounds_that_are_inputs_go_along() -> None:
    s = Sketch("inputs", DType.FLOAT64)
    h = s.op("Mul", [s.input("x", 2, 3, 4, 4), s.parameter("w", 3, 1, 1)], "h")
    low = s.add("low", Role.CONSTANT, (), initializer=Initializer("constant", value=-0.25))
    h = s.op("MaxPool", [s.op("Clip", [h, low], "a")], "p", kernel_shape=(2, 2))
    s.op("ReduceMean", [s.op("Mul", [h, h], "q")], "loss", keepdims=0)
    after = same_after(s.graph(), RULE, bitwise=True)
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
    after = only(before, RULE)
    for seed in range(5):
        values = np.random.default_rng(seed).integers(-2, 9, (2, 3, 8, 8)).astype(np.float64)
        assert np.array_equal(_gradient(before, values), _gradient(after, values))


def _gradient(graph: TrainableGraph, values: Array) -> Array:
    trainer = Trainer(graph, plan(graph))
    trainer.runner.value("w")[...] = values
    trainer.step({"x": np.ones(1)})
    return values - trainer.read("w")


# ------------------------------------------------------------------------ where it must not happen


def _two_readers() -> TrainableGraph:
    s = Sketch("readers", DType.FLOAT64)
    h = s.op("Relu", [s.op("Mul", [s.input("x", 2, 3, 4, 4), s.parameter("w", 3, 1, 1)], "h")], "a")
    h = s.op("Add", [s.op("MaxPool", [h], "p", kernel_shape=(1, 1)), h], "sum")
    s.op("ReduceMean", [h], "loss", keepdims=0)
    return s.graph()


def _average() -> TrainableGraph:
    graph = pooled("Relu")
    pool = replace(graph.operations[2], type="AveragePool")
    return graph.with_graph(operations=(*graph.operations[:2], pool, *graph.operations[3:]))


@pytest.mark.parametrize(
    "make",
    [
        *(_two_readers, _average),
        pytest.param(lambda: pooled("Sigmoid"), id="Sigmoid rounds to ties"),
        pytest.param(lambda: pooled("Tanh", fused=True), id="Tanh rounds to ties"),
        pytest.param(lambda: pooled("LeakyRelu"), id="LeakyRelu rounds to ties"),
        pytest.param(lambda: pooled("Swish"), id="Swish falls before it rises"),
        pytest.param(lambda: pooled("None", fused=True), id="nothing to change places with"),
        pytest.param(lambda: pooled("Relu", pads=(0, 2, 0, 2)), id="windows on padding alone"),
        pytest.param(
            lambda: pooled("Relu", size=5, kernel_shape=(1, 1), strides=(3, 3), pads=(1, 1, 1, 1)),
            id="the first window on padding alone",
        ),
        pytest.param(lambda: pooled("Relu").with_graph(outputs=("a",)), id="an output between them"),
    ],
)
def test_it_stays_as_it_is(make: Callable[[], TrainableGraph]) -> None:
    graph = make()
    assert everywhere(graph, RULE).graph is graph


# ------------------------------------------------------------------------------------------ memory


def test_the_large_output_of_the_activation_is_not_kept() -> None:
    """Before, it lives from forward to backward; after, the backward steps read nothing of its size."""
    graph = pooled("Relu", fused=True, size=32, dtype=DType.FLOAT32)
    made = plan(graph, PlanOptions(rewrite=True))
    assert next(one.rule for one in made.replacements) == RULE
    assert made.arena_bytes < plan(graph).arena_bytes
    assert validate(graph, made, steps=2).identical
    large = graph.operands["h"].type.nbytes
    assert footprint(graph).bound - made.lower_bound > large // 4
