"""Kernels in C of one operand, of quotients and of dropout, beside NumPy's: results, derivatives, NaN."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from solver.executor import KernelSet, Trainer
from solver.graph import TrainableGraph
from solver.graph.types import Array
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions
from tests.support.graphs import Sketch

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

#: Operators with their attributes; those of the second list take what is positive.
ANYWHERE: list[tuple[str, dict[str, Any]]] = [
    ("Exp", {}), ("Neg", {}), ("Abs", {}), ("Erf", {}), ("Softplus", {}), ("Reciprocal", {}),
    ("LeakyRelu", {}), ("LeakyRelu", {"alpha": -0.5}), ("Elu", {}), ("Elu", {"alpha": -1.25}),
    ("HardSigmoid", {}), ("HardSwish", {}), ("Swish", {}), ("Swish", {"alpha": 1.75}),
]  # fmt: skip
POSITIVE = ("Log", "Sqrt")

BOTH: tuple[KernelSet, ...] = ("c", "numpy")

ROWS, WIDTH = 7, 5


def trained(
    graph: TrainableGraph, batches: list[dict[str, Array]], names: list[str], kernels: KernelSet
) -> list[Array]:
    target = "c" if kernels == "c" else "reference"
    made = plan_requested(graph, RequestedOptions(PlanOptions(target=target)))
    with Trainer(graph, made, kernels=kernels) as trainer:
        arrays = []
        for batch in batches:
            arrays.append(np.array(trainer.step(batch)))
            arrays += [trainer.read(name) for name in names]
        return arrays


def batches(count: int, **shapes: tuple[int, ...]) -> list[dict[str, Array]]:
    rng = np.random.default_rng(7)
    return [
        {name: rng.standard_normal(shape).astype(np.float32) * 2 for name, shape in shapes.items()}
        for _ in range(count)
    ]


def functions() -> tuple[TrainableGraph, list[str], list[str]]:
    """Each operator behind a matrix of its own, whose update shows the slope."""
    s = Sketch("functions")
    x = s.input("x", ROWS, WIDTH)
    kinds = [*ANYWHERE, *((name, {}) for name in POSITIVE), ("Div", {})]
    results, weights = list[str](), list[str]()
    for k, (kind, attributes) in enumerate(kinds):
        weights.append(s.parameter(f"w{k}", WIDTH, WIDTH))
        h = s.op("Gemm", [x, weights[-1]], f"h{k}")
        if kind in POSITIVE:
            h = s.op("Exp", [h], f"p{k}")
        if kind == "Div":
            weights += [s.parameter("numerator", 1, WIDTH), s.parameter("divisor", ROWS, 1)]
            h = s.op("Mul", [h, "numerator"], "scaled")
            divisor = s.op("Exp", [weights[-1]], "positive")
            results.append(s.op("Div", [h, divisor], f"y{k}", f"f{k}"))
        else:
            results.append(s.op(kind, [h], f"y{k}", f"f{k}", **attributes))
    total = results[0]
    for k, name in enumerate(results[1:]):
        total = s.op("Add", [total, name], f"sum{k}")
    s.op("MeanSquaredError", [total, s.label("t", ROWS, WIDTH)], "loss")
    return s.graph(trainable=weights, outputs=results), results, weights


def test_results_and_derivatives_are_those_of_numpy() -> None:
    graph, results, weights = functions()
    fed = batches(1, x=(ROWS, WIDTH), t=(ROWS, WIDTH))
    ours, theirs = (trained(graph, fed, [*results, *weights], kernels) for kernels in BOTH)
    for name, mine, expected in zip(["loss", *results, *weights], ours, theirs, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=2e-5, atol=2e-6, err_msg=name)
    first = trained(graph, fed, weights, "c")
    assert all(np.abs(after).max() > 0 for after in first[1:])


def test_what_is_no_number_stays_none() -> None:
    graph, results, weights = functions()
    (batch,) = batches(1, x=(ROWS, WIDTH), t=(ROWS, WIDTH))
    batch["x"][2] = np.nan
    ours, theirs = (trained(graph, [batch], [*results, *weights], kernels) for kernels in BOTH)
    for name, mine, expected in zip(["loss", *results, *weights], ours, theirs, strict=True):
        assert np.array_equal(np.isnan(mine), np.isnan(expected)), name
    assert np.isnan(ours[1][2]).all()
    assert not np.isnan(ours[1][:2]).any()


def dropping(ratio: float, shape: tuple[int, ...]) -> TrainableGraph:
    s = Sketch("dropping")
    x = s.input("x", *shape)
    dropped = s.op("Dropout", [x], "dropped", "first", ratio=ratio, seed=3)
    scaled = s.op("Mul", [x, s.parameter("w", *shape)], "scaled")
    again = s.op("Dropout", [scaled], "again", "second", ratio=ratio)
    total = s.op("Add", [dropped, again], "total")
    s.op("MeanSquaredError", [total, s.label("t", *shape)], "loss")
    return s.graph(outputs=["dropped"])


@pytest.mark.parametrize(("ratio", "shape"), [(0.5, (3, 5)), (0.1, (130, 257)), (0.0, (2, 2))])
def test_dropout_drops_the_same_elements(ratio: float, shape: tuple[int, ...]) -> None:
    graph = dropping(ratio, shape)
    fed = batches(3, x=shape, t=shape)
    ours, theirs = (trained(graph, fed, ["dropped", "w"], kernels) for kernels in BOTH)
    for mine, expected in zip(ours[1::3], theirs[1::3], strict=True):
        assert np.array_equal(mine, expected)
    for mine, expected in zip(ours[2::3], theirs[2::3], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-7)
    dropped = np.mean(ours[1] == 0)
    assert abs(dropped - ratio) <= 4 * np.sqrt(ratio * (1 - ratio) / ours[1].size)
    assert not ratio or not np.array_equal(ours[1] == 0, ours[4] == 0)


def test_clip_leaves_infinity_where_it_has_no_bound() -> None:
    s = Sketch("clipped")
    x = s.input("x", 2, 3)
    y = s.op("Clip", [s.op("Mul", [x, s.parameter("w", 2, 3)], "h")], "y", min=-1.0)
    s.op("MeanSquaredError", [y, s.label("t", 2, 3)], "loss")
    graph = s.graph(outputs=["y"])
    (batch,) = batches(1, x=(2, 3), t=(2, 3))
    batch["x"][0] = [np.inf, -np.inf, np.nan]
    ours, theirs = (trained(graph, [batch], ["y"], kernels)[1] for kernels in BOTH)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("layout", "shape"), [("NHWC", (2, 3, 5, 4)), ("NCHW", (2, 4, 3, 5))])
def test_means_over_images_are_those_of_numpy(layout: str, shape: tuple[int, ...]) -> None:
    s = Sketch("means")
    x = s.input("x", *shape)
    h = s.op("Mul", [x, s.parameter("w", *shape)], "h")
    y = s.op("Flatten", [s.op("GlobalAveragePool", [h], "mean", data_layout=layout)], "y")
    s.op("MeanSquaredError", [y, s.label("t", 2, 4)], "loss")
    graph = s.graph(outputs=["y"])
    fed = batches(2, x=shape, t=(2, 4))
    ours, theirs = (trained(graph, fed, ["y", "w"], kernels) for kernels in BOTH)
    for mine, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)
