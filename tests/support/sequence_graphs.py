"""Graphs with recurrent layers, of any element type."""

from __future__ import annotations

from typing import Any

from solver.graph import DType, Initializer, Operation, Role, TrainableGraph
from tests.support.graphs import Sketch

__all__ = ["GATES", "classifier"]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _uniform(seed: int) -> Initializer:
    return Initializer("uniform", scale=0.7, seed=seed)


def classifier(
    type_: str = "LSTM",
    dtype: DType = DType.FLOAT64,
    *,
    steps: int = 3,
    direction: str = "forward",
    layout: int = 0,
    sequence: dict[str, Any] | None = None,
    **hyper: Any,
) -> TrainableGraph:
    """Two layers: all states of the first go into the second, whose last state is classified.

    The first starts from a constant, the second from nothing.
    """
    batch, inputs, hidden = 2, 3, 4
    s, count, gates = (
        Sketch(f"{type_}-{direction}-{layout}", dtype),
        2 if direction[0] == "b" else 1,
        GATES[type_],
    )
    first = (batch, steps) if layout else (steps, batch)
    x = s.input("x", *first, inputs)
    start = s.add(
        "start",
        Role.CONSTANT,
        (batch, count, hidden) if layout else (count, batch, hidden),
        initializer=_uniform(1),
    )
    weights = [
        s.parameter("w1", count, gates * hidden, inputs, initializer=_uniform(2)),
        s.parameter("r1", count, gates * hidden, hidden, initializer=_uniform(3)),
        s.parameter("b1", count, 2 * gates * hidden, initializer=_uniform(4)),
    ]
    common = {"layout": layout, **(sequence or {})}
    operation = Operation(
        "one", type_, (x, *weights, "", start), ("all",), {"direction": direction, **common}
    )
    s.operations.append(operation)
    order = (0, 1, 2, 3) if layout else (0, 2, 1, 3)
    turned = s.op("Transpose", ["all"], "turned", perm=order)
    shape = s.integers("shape", *first, count * hidden)
    between = s.op("Reshape", [turned, shape], "between")
    again = [s.parameter("w2", gates * 2, count * hidden), s.parameter("r2", gates * 2, 2)]
    s.operations.append(Operation("two", type_, (between, *again), ("", "last"), common))
    logits = s.op("Reshape", ["last", s.integers("flat", batch, 2)], "logits")
    s.op("CategoricalCrossEntropy", [logits, s.label("t", batch, 2)], "loss", from_logits=1)
    return s.graph(**hyper)
