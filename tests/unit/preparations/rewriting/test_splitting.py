"""A fused activation comes apart where the product's backward step is the peak, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from solver.documents import load_graph
from solver.executor import rewritten, validate
from solver.executor.arithmetic import KernelArithmetic
from solver.graph import DType, TrainableGraph
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.preparations.rewriting import RULES, Footprint, rewrite
from tests.support.every import grid
from tests.support.graphs import Sketch, chain, convolutional, residual
from tests.support.rewriting import everywhere, footprint, outputs, same_after, same_training, types

RULE = "split-activation"

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
    after = same_after(before, RULE, rtol=1e-12)
    name = "Clip" if activation == "Relu6" else activation
    assert types(after) == [type_, name, "MeanSquaredError"]
    inner, outer = after.operations[:2]
    assert (inner.id, outer.id, outer.outputs) == ("inner", "inner.activation", ("y",))
    assert everywhere(after, "fuse-activation").graph == before


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_forward_values_are_the_same_bits(layout: str) -> None:
    before = convolutional(layout=layout)
    after = same_after(before, RULE)
    assert {"Relu", "Clip"} <= set(types(after))
    assert outputs(before)["f"].tobytes() == outputs(after)["f"].tobytes()


def test_without_an_activation_nothing_comes_apart() -> None:
    graph = fused("Gemm", "None")
    assert everywhere(graph, RULE).graph is graph


def test_names_give_way() -> None:
    s = Sketch("names", DType.FLOAT64)
    x, w = s.input("inner.linear", 4, 4), s.parameter("w", 4, 4)
    h = s.op("Gemm", [x, w], "y", "inner", activation="Relu")
    h = s.op("Gemm", [h, w], "z", "inner.activation", activation="Relu")
    s.op("MeanSquaredError", [h, s.label("t", 4, 4)], "loss")
    after = same_after(s.graph(), RULE, rtol=1e-12)
    assert len({op.id for op in after.operations}) == len(after.operations) == 5


def test_it_lowers_the_bound_or_does_not_happen() -> None:
    for graph in (chain((64, 64, 64), 64), residual(64, 32), convolutional(16)):
        found = rewrite(graph, KernelArithmetic(), footprint)
        split = [one for one in found.applied if one.rule == RULE]
        assert all(one.bytes_after < one.bytes_before for one in split)
        assert footprint(found.graph) <= footprint(graph)


def test_the_mobilenet_example_needs_less() -> None:
    """Its peak is the backward step of a convolution, which reads its output and stages a derivative."""
    graph = load_graph((EXAMPLES / "mobilenet_v2.json").read_bytes())
    made = plan(graph, PlanOptions(rewrite=True))
    assert [one.rule for one in made.replacements] == [RULE]
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

    splitting = [rule for rule in RULES if rule.name == RULE]
    assert rewrite(graph, KernelArithmetic(), cost, splitting).graph is graph
    assert asked == 1
