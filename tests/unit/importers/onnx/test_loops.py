"""Loops whose rounds are known become their operations, one round after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from solver.errors import DocumentError, GraphError, UnknownOperatorError
from solver.executor import Trainer, validate
from solver.graph.types import Array
from solver.pipeline import plan
from tests.support.onnx_models import imported, model_of, node, nodes_of, types_of

RNG = np.random.default_rng(2)
WEIGHTS = {
    "step.weight": RNG.standard_normal((4, 4)).astype(np.float32) / 2,
    "head.weight": RNG.standard_normal((4, 3)).astype(np.float32),
    "true": np.asarray(True),
}
info = helper.make_tensor_value_info
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def loop(rounds: Any, *, until: str | None = None) -> onnx.ModelProto:
    """h = tanh(h W) in each round, and the head on the sum of all of them."""
    nodes = nodes_of("MatMul h_in step.weight m, Tanh m h_out, Identity h_out seen")
    nodes.append(node("Less", ["i", until], ["c_out"]) if until else node("Identity", ["c"], ["c_out"]))
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("h_in", FLOAT, [2, 4])],
        [info("c_out", BOOL, []), info("h_out", FLOAT, [2, 4]), info("seen", FLOAT, [2, 4])],
    )
    outer = [
        node("Loop", ["rounds", "true", "x"], ["last", "all"], body=body),
        node("ReduceSum", ["all", "axes"], ["s"], keepdims=0),
        *nodes_of("Add s last t, MatMul t head.weight y"),
    ]
    weights = {**WEIGHTS, "rounds": np.asarray(rounds), "axes": np.array([0]), "most": np.asarray(1)}
    return model_of(outer, {"x": (2, 4)}, weights)


def scan(**attributes: Any) -> onnx.ModelProto:
    """A running state over the rows of x, which are scanned along its second axis."""
    nodes = nodes_of("MatMul h_in step.weight m, Add m row h_out, Tanh h_out seen")
    body = helper.make_graph(
        nodes,
        "body",
        [info("h_in", FLOAT, [2, 4]), info("row", FLOAT, [2, 4])],
        [info("h_out", FLOAT, [2, 4]), info("seen", FLOAT, [2, 4])],
    )
    outer = [
        node("Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, **attributes),
        node("MatMul", ["all", "head.weight"], ["y"]),
    ]
    weights = {**WEIGHTS, "start": np.zeros((2, 4), np.float32)}
    return model_of(outer, {"x": (2, 5, 4)}, weights)


def looped(rounds: int) -> Callable[[Array], Array]:
    """The result of `loop`; ONNX's reference evaluator overwrites states that are read again."""

    def run(x: Array) -> Array:
        total, h = np.zeros_like(x), x
        for _ in range(rounds):
            h = np.tanh(h @ WEIGHTS["step.weight"])
            total = total + h
        return np.asarray((total + h) @ WEIGHTS["head.weight"])

    return run


def scanned(turned: bool) -> Callable[[Array], Array]:
    """The result of `scan`."""

    def run(x: Array) -> Array:
        h: Array = np.zeros((2, 4), np.float32)
        seen = np.zeros_like(x)
        for k in reversed(range(5)) if turned else range(5):
            h = h @ WEIGHTS["step.weight"] + x[:, k]
            seen[:, k] = np.tanh(h)
        return np.asarray(seen @ WEIGHTS["head.weight"])

    return run


def check(model: onnx.ModelProto, expected: Callable[[Array], Array]) -> list[str]:
    """Hold the loss of the first step against that of `expected`; the operations of the graph."""
    graph = imported(model).graph
    x = RNG.standard_normal(graph.operands["x"].shape).astype(np.float32)
    label = RNG.standard_normal(graph.operands["label"].shape).astype(np.float32)
    with Trainer(graph, plan(graph)) as trainer:
        loss = trainer.step({"x": x, "label": label})
    assert loss == pytest.approx(float(np.mean((expected(x) - label) ** 2)), rel=1e-5)
    assert validate(graph, plan(graph), steps=2).identical
    return types_of(graph)


def test_a_loop_of_known_rounds() -> None:
    model = loop(3)
    assert check(model, looped(3)).count("Tanh") == 3
    assert set(imported(model).graph.trainable) == {"step.weight", "head.weight"}


def test_a_loop_that_ends_early_where_that_is_known() -> None:
    assert check(loop(5, until="most"), looped(2)).count("Tanh") == 2


@pytest.mark.parametrize("turned", [0, 1])
def test_a_scan_in_both_directions(turned: int) -> None:
    attributes = {"scan_input_axes": [1], "scan_input_directions": [turned]}
    attributes |= {"scan_output_axes": [1], "scan_output_directions": [turned]}
    assert check(scan(**attributes), scanned(bool(turned))).count("Tanh") == 5


def test_rounds_that_are_counted_at_run_time_are_refused() -> None:
    counted = loop(3)
    counted.graph.initializer.remove(next(t for t in counted.graph.initializer if t.name == "rounds"))
    counted.graph.input.append(info("rounds", INT64, []))
    with pytest.raises(
        UnknownOperatorError, match="rounds that are counted at run time, by 'rounds'"
    ) as caught:
        imported(counted)
    assert caught.value.remedy == "Fix it with --input rounds=VALUE."
    assert types_of(imported(counted, inputs={"rounds": 2}).graph).count("Tanh") == 2
    with pytest.raises(UnknownOperatorError, match="1,000,000,000 rounds"):
        imported(loop(10**9))
    sizes = {"all[0]": 3, "all[1]": 2, "all[2]": 4, "last[0]": 2, "last[1]": 4}
    graph = imported(counted, freeze_before=("last", "all"), dims=sizes).graph
    assert graph.trainable == ("head.weight",)


def test_loops_that_make_no_sense_are_refused_by_name() -> None:
    bare = scan()
    del bare.graph.node[0].attribute[1]
    with pytest.raises(GraphError, match=r"'Scan_0' \(Scan\) cannot be imported"):
        imported(bare)
    uneven = scan(scan_input_axes=[7])
    with pytest.raises(GraphError, match=r"'Scan_0' \(Scan\) cannot be imported"):
        imported(uneven)
    short = loop(2)
    del short.graph.node[0].attribute[0].g.output[1:]
    with pytest.raises((GraphError, DocumentError)):
        imported(short)


def test_what_is_missing_inside_is_named() -> None:
    model = loop(2)
    body = model.graph.node[0].attribute[0].g
    body.node[1].op_type = "Det"
    with pytest.raises(GraphError, match="Det"):
        imported(model)
