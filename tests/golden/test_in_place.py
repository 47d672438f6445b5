"""Who takes whose place in `input -> fc1 -> act -> fc2 -> act -> fc3 -> mse`, activation by activation.

The trap: Swish, Gelu and HardSwish fall before they rise, so their derivative is computed from X. An
activation "in place" by its name would compute it from Y, and train to something else without an error.
"""

from __future__ import annotations

import pytest

from solver.executor import validate
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.graphs import Sketch

#: By operand: the one whose memory it takes.
BACKWARD = {"h1@grad": "a1@grad", "h2@grad": "a2@grad"}
FORWARD = {"a1": "h1", "a2": "h2"}


def network(activation: str, trainable: str | int = "all") -> TrainableGraph:
    s = Sketch(activation)
    h = s.input("x", 8, 12)
    for k in (1, 2, 3):
        h = s.op("Gemm", [h, s.parameter(f"w{k}", 12, 12), s.parameter(f"b{k}", 12)], f"h{k}", f"fc{k}")
        if k < 3:
            h = s.op(activation, [h], f"a{k}", f"act{k}")
    s.op("MeanSquaredError", [h, s.label("t", 8, 12)], "loss", "mse")
    return s.graph(trainable=trainable)


def places(graph: TrainableGraph) -> dict[str, str | None]:
    made = plan(graph, PlanOptions(in_place=True))
    assert validate(graph, made, steps=3).identical
    return {t.id: t.source for _, buffer in made.buffers() for t in buffer.aliases[1:]}


@pytest.mark.parametrize(
    "activation", ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Softmax"]
)
def test_activations_that_know_their_slope_from_the_output(activation: str) -> None:
    assert places(network(activation)) == FORWARD | BACKWARD


@pytest.mark.parametrize("activation", ["Swish", "Gelu", "HardSwish"])
def test_activations_that_need_their_input(activation: str) -> None:
    assert places(network(activation)) == BACKWARD


@pytest.mark.parametrize("activation", ["Swish", "Gelu", "HardSwish"])
def test_they_take_its_place_where_no_derivative_passes_through(activation: str) -> None:
    """fc3 alone is trained: nothing goes back through the activations."""
    assert places(network(activation, trainable=1)) == FORWARD
    assert places(network(activation, trainable=2)) == {"a1": "h1", "h2@grad": "a2@grad"}


def test_the_arena_shrinks_by_what_is_in_place() -> None:
    """Six layers one after the other, nothing trained but the last: one activation lives instead of two."""
    s = Sketch("frozen")
    h = s.op("Gemm", [s.input("x", 64, 4), s.parameter("w", 4, 32)], "h")
    for k in range(6):
        h = s.op("Gelu", [h], f"g{k}", approximate="tanh")
    h = s.op("Gemm", [s.op("ReduceMean", [h], "mean", axes=(1,)), s.parameter("v", 1, 4)], "y")
    s.op("MeanSquaredError", [h, s.label("t", 64, 4)], "loss")
    graph = s.graph(trainable=("v",))
    apart, together = (plan(graph, PlanOptions(in_place=mode)) for mode in (False, True))
    assert apart.arena_bytes - together.arena_bytes == 64 * 32 * 4
    assert apart.gap_bytes == together.gap_bytes == 0
