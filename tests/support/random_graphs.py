"""Random training graphs: branches, tied weights, operands used twice, several results in one loss."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from solver.graph import TrainableGraph, TrainingRules
from tests.support.every import ALL
from tests.support.graphs import Sketch

__all__ = ["PLANNED", "random_graphs"]

#: Settings of properties whose examples are planned, which takes long.
PLANNED = settings(max_examples=settings().max_examples if ALL else 20)

_OPTIMIZERS: tuple[dict[str, Any], ...] = (
    {"optimizer": "SGD"},
    {"optimizer": "SGD", "momentum": 0.9},
    {"optimizer": "Adam"},
)

_RULES = (None, TrainingRules(clip_global_norm=0.1, loss_scale=8.0), TrainingRules(accumulate=2))


@st.composite
def random_graphs(draw: st.DrawFn, most_operations: int = 8) -> TrainableGraph:
    """Matrices of one shape through random operations; whatever nothing reads is added up in the end."""
    batch, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    s = Sketch("random")
    values = [s.op("Gemm", [s.input("x", batch, width), s.parameter("w", width, width)], "h")]
    weights, unread = ["w"], {"h"}
    for k in range(draw(st.integers(1, most_operations))):
        type_ = draw(st.sampled_from(["Gemm", "Gemm", "Add", "Mul", "Sub", "Relu", "Tanh", "Softmax"]))
        inputs = [draw(st.sampled_from(values))]
        if type_ == "Gemm":
            if draw(st.booleans()):
                weights.append(s.parameter(f"w{k}", width, width))
                inputs.append(weights[-1])
            else:
                inputs.append(draw(st.sampled_from(weights)))
        elif type_ in ("Add", "Mul", "Sub"):
            inputs.append(draw(st.sampled_from(values)))
        unread -= {*inputs}
        values.append(s.op(type_, inputs, f"y{k}"))
        unread.add(f"y{k}")
    total, *rest = sorted(unread)
    for k, name in enumerate(rest):
        total = s.op("Add", [total, name], f"sum{k}")
    s.op("MeanSquaredError", [total, s.label("t", batch, width)], "loss")
    rules = draw(st.sampled_from(_RULES))
    return s.graph(trainable=[*dict.fromkeys(weights)], training=rules, **draw(st.sampled_from(_OPTIMIZERS)))
