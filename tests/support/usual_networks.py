"""Networks of the usual kinds, as small as can be: skips, branches, states, tables with two readers.

Each has what makes schedules hard: values that wait long beside ones that do not, steps with several results,
statistics that move once, updates that wait.
"""

from __future__ import annotations

from typing import Any

from arenaplan.builder import adam
from solver.graph import TrainableGraph
from tests.support import other_networks
from tests.support.graphs import Sketch

__all__ = ["branches", "gpt", "recurrent", "residual_with_statistics", "unet"]


def unet(side: int = 8, **hyper: Any) -> TrainableGraph:
    """Down twice, up twice; what was there before each way down is concatenated on the way up."""
    s = Sketch("unet")
    x, channels, skips = s.input("x", 2, 2, side, side), 2, []
    for k, wide in enumerate((4, 8)):
        x = _convolved(s, x, f"down{k}", channels, wide)
        skips.append((x, wide))
        x = s.op("MaxPool", [x], f"pool{k}", kernel_shape=(2, 2), strides=(2, 2))
        channels = wide
    x = _convolved(s, x, "middle", channels, channels)
    for k, (skip, wide) in reversed(list(enumerate(skips))):
        kernel = s.parameter(f"up{k}.w", channels, wide, 2, 2)
        x = s.op("ConvTranspose", [x, kernel], f"up{k}", strides=(2, 2))
        x = _convolved(s, s.op("Concat", [x, skip], f"joined{k}", axis=1), f"out{k}", 2 * wide, wide)
        channels = wide
    x = s.op("Conv", [x, s.parameter("last.w", 1, channels, 1, 1)], "last")
    s.op("MeanSquaredError", [x, s.label("t", 2, 1, side, side)], "loss")
    return s.graph(**hyper)


def _convolved(s: Sketch, x: str, name: str, channels: int, wide: int) -> str:
    x = s.op("Conv", [x, s.parameter(f"{name}.w", wide, channels, 3, 3)], name, auto_pad="SAME_UPPER")
    return s.op("Relu", [x], f"{name}.active")


def branches(blocks: int = 2, width: int = 12, **hyper: Any) -> TrainableGraph:
    """Residual blocks of three branches, which can run in any order."""
    s = Sketch("branches")
    x = s.input("x", 8, width)
    for k in range(blocks):
        ends = []
        for b, activation in enumerate(("Gelu", "Tanh", "Sigmoid")):
            h = s.op("Gemm", [x, s.parameter(f"w{k}.{b}", width, width)], f"h{k}.{b}")
            h = s.op(activation, [h], f"a{k}.{b}")
            ends.append(s.op("Gemm", [h, s.parameter(f"v{k}.{b}", width, width)], f"o{k}.{b}"))
        total = x
        for b, end in enumerate(ends):
            total = s.op("Add", [total, end], f"x{k}.{b}")
        x = total
    s.op("MeanSquaredError", [x, s.label("t", 8, width)], "loss")
    return s.graph(**hyper)


def residual_with_statistics(blocks: int = 3, **hyper: Any) -> TrainableGraph:
    """Convolutions with batch normalisation, each added to what it was made of."""
    s = Sketch("statistics")
    x, channels = s.input("x", 4, 3, 8, 8), 3
    for k in range(blocks):
        h = s.op("Conv", [x, s.parameter(f"w{k}", 6, channels, 3, 3)], f"h{k}", auto_pad="SAME_UPPER")
        scale, bias = s.parameter(f"scale{k}", 6), s.parameter(f"bias{k}", 6)
        moving = [s.state(f"mean{k}", 6), s.state(f"variance{k}", 6)]
        h = s.op("BatchNormalization", [h, scale, bias, *moving], f"n{k}")
        h = s.op("Relu", [h], f"r{k}")
        x, channels = s.op("Add", [x, h], f"x{k}") if k else h, 6
    h = s.op("ReduceMean", [x], "pooled", axes=(2, 3), keepdims=0)
    h = s.op("Gemm", [h, s.parameter("out", 6, 5)], "y")
    s.op("MeanSquaredError", [h, s.label("t", 4, 5)], "loss")
    return s.graph(**hyper)


def recurrent(type_: str = "LSTM", depth: int = 2, **hyper: Any) -> TrainableGraph:
    """Recurrent layers on top of each other, all states of the last one compared with something."""
    s, gates = Sketch("recurrent"), {"LSTM": 4, "GRU": 3}[type_]
    steps, batch, width, hidden = 4, 2, 3, 4
    x = s.input("x", steps, batch, width)
    for k in range(depth):
        weights = [
            s.parameter(f"w{k}", 1, gates * hidden, width),
            s.parameter(f"r{k}", 1, gates * hidden, hidden),
            s.parameter(f"b{k}", 1, 2 * gates * hidden),
        ]
        x = s.op(type_, [x, *weights], f"y{k}", hidden_size=hidden)
        x, width = s.op("Squeeze", [x], f"s{k}", axes=(1,)), hidden
    s.op("MeanSquaredError", [x, s.label("t", steps, batch, hidden)], "loss")
    return s.graph(**hyper)


def gpt(blocks: int = 1) -> TrainableGraph:
    """Blocks of attention and two layers behind layer normalisations; one table embeds and projects."""
    return other_networks.gpt(
        batch=2, length=8, width=16, heads=2, blocks=blocks, words=12, optimizer=adam(0.003)
    )
