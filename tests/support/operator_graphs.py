"""Graphs that use many operators at once, with branches, unused pieces and computed conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.graph import DType, Initializer, Operation, Role, TrainableGraph
from tests.support.graphs import Sketch

__all__ = ["attention", "convolved", "elementwise", "recurrent"]


def _positive(seed: int) -> Initializer:
    """Away from 0 on the positive side, for parameters that are divided by or taken logarithms of."""
    return Initializer("constant", value=0.5 + 0.25 * seed)


def _uniform(seed: int) -> Initializer:
    return Initializer("uniform", scale=0.8, seed=seed)


def _several(s: Sketch, type_: str, inputs: list[str], outputs: tuple[str, ...], **attributes: Any) -> None:
    s.operations.append(Operation(f"{outputs[0]}.op", type_, tuple(inputs), outputs, attributes))


def elementwise(dtype: DType = DType.FLOAT64, **hyper: Any) -> TrainableGraph:
    """Every function of one operand, a power, a condition that is computed, and two losses added up."""
    s = Sketch("elementwise", dtype)
    x = s.input("x", 4, 6)
    h = s.op("Gemm", [x, s.parameter("w1", 6, 6), s.parameter("b1", 6, initializer=_uniform(1))], "h")
    for type_ in ("Gelu", "Swish", "HardSwish", "Elu", "LeakyRelu", "HardSigmoid", "Erf"):
        h = s.op("Add", [s.op(type_, [h], f"{type_}.y"), h], f"{type_}.sum")
    h = s.op("Gelu", [h], "bent", approximate="tanh")
    h = s.op("PRelu", [h, s.parameter("slope", 6, initializer=_uniform(2))], "prelu")
    positive = s.op("Exp", [s.op("Tanh", [h], "squashed")], "positive")
    power = s.op("Pow", [positive, s.parameter("exponent", 1, 6, initializer=_positive(1))], "power")
    logarithm = s.op("Log", [power], "logarithm")
    quotient = s.op("Reciprocal", [s.op("Sqrt", [positive], "root")], "quotient")
    condition = s.op("Greater", [h, s.op("Neg", [s.op("Abs", [quotient], "size")], "bound")], "condition")
    chosen = s.op("Where", [condition, logarithm, s.op("Mul", [quotient, h], "other")], "chosen")
    s.op("Huber", [chosen, s.label("target", 4, 6)], "huber", delta=0.5)
    s.op("BinaryCrossEntropy", [h, s.label("truth", 4, 6)], "binary", from_logits=1)
    s.op("Add", ["huber", "binary"], "loss")
    return s.graph(**hyper)


def attention(
    dtype: DType = DType.FLOAT64,
    *,
    batch: int = 2,
    length: int = 5,
    width: int = 8,
    words: int = 7,
    **hyper: Any,
) -> TrainableGraph:
    """A block of a transformer: tied embedding, layer norm, two heads by Split, a mask, soft attention."""
    s = Sketch("attention", dtype)
    tokens = s.add("tokens", Role.INPUT, (batch, length), dtype=DType.INT64)
    table = s.parameter("table", words, width)
    h = s.op("Gather", [table, tokens], "embedded")
    positions = s.op(
        "Expand",
        [s.parameter("positions", length, width), s.integers("full", batch, length, width)],
        "expanded",
    )
    h = s.op("Add", [h, positions], "placed")
    scale = s.parameter("scale", width, initializer=Initializer("ones"))
    n = s.op("LayerNormalization", [h, scale, s.parameter("shift", width)], "normal")
    packed = s.op("MatMul", [n, s.parameter("qkv", width, 3 * width)], "packed")
    _several(s, "Split", [packed], ("q", "k", "v"), axis=2, num_outputs=3)
    heads = []
    for i, part in enumerate(("q", "k", "v")):
        split = s.op(
            "Reshape", [part, s.integers(f"shape{i}", batch, length, 2, width // 2)], f"{part}.split"
        )
        heads.append(
            s.op("Transpose", [split], f"{part}.heads", perm=(0, 2, 3, 1) if i == 1 else (0, 2, 1, 3))
        )
    scores = s.op("MatMul", heads[:2], "scores")
    mask = Initializer("values", np.tril(np.ones((length, length), np.bool_)).tobytes())
    s.add("mask", Role.CONSTANT, (length, length), dtype=DType.BOOL, initializer=mask)
    never = s.add("never", Role.CONSTANT, (), initializer=Initializer("constant", value=-1e9))
    p = s.op("Softmax", [s.op("Where", ["mask", scores, never], "masked")], "weights")
    mixed = s.op("Transpose", [s.op("MatMul", [p, heads[2]], "mixed")], "turned", perm=(0, 2, 1, 3))
    joined = s.op("Reshape", [mixed, s.integers("joint", batch, length, width)], "joined")
    h = s.op("Add", [h, s.op("MatMul", [joined, s.parameter("out", width, width)], "projected")], "residual")
    last = s.op(
        "Slice", [h, s.integers("from", -1), s.integers("to", length + 9), s.integers("axis", 1)], "last"
    )
    flat = s.op("Squeeze", [last, s.integers("gone", 1)], "flat")
    logits = s.op("Gemm", [flat, table], "logits", transB=1)
    logarithm = s.op("LogSoftmax", [logits], "logarithm")
    s.op("KLDivergence", [s.op("Exp", [logarithm], "probabilities"), s.label("target", batch, words)], "loss")
    return s.graph(**hyper)


def recurrent(dtype: DType = DType.FLOAT64, **hyper: Any) -> TrainableGraph:
    """A cell unrolled over three steps with shared weights; one piece of each gate is used by nothing."""
    s = Sketch("recurrent", dtype)
    x, w = s.input("x", 2, 3, 4), s.parameter("w", 10, 18)
    state = s.op("Expand", [s.parameter("start", 1, 6), s.integers("batch", 2, 6)], "state0")
    for t in range(3):
        index = s.add(f"at{t}", Role.CONSTANT, (), dtype=DType.INT32, initializer=_int32(t))
        now = s.op("Gather", [x, index], f"x{t}", axis=1)
        both = s.op("Concat", [now, state], f"both{t}", axis=1)
        gates = s.op("MatMul", [both, w], f"gates{t}")
        _several(s, "Split", [gates], (f"i{t}", f"c{t}", f"unused{t}"), axis=1)
        gate, value = s.op("Sigmoid", [f"i{t}"], f"gate{t}"), s.op("Tanh", [f"c{t}"], f"value{t}")
        state = s.op("Mul", [gate, value], f"state{t + 1}")
    best = s.op("ReduceMax", [state], "best", axes=(1,))
    total = s.op("ReduceSum", [s.op("Sub", [state, best], "below")], "total", axes=(1,), keepdims=0)
    wide = s.op("Unsqueeze", [total, s.integers("last", -1)], "wide")
    # There and back: a loss in float32 would be too coarse for differences of it.
    other = s.op(
        "Cast", [s.op("Cast", [wide], "double", to=11)], "own", to=11 if dtype is DType.FLOAT64 else 1
    )
    s.op("MeanAbsoluteError", [other, s.label("target", 2, 1)], "loss")
    return s.graph(**hyper)


def _int32(value: int) -> Initializer:
    return Initializer("values", np.array(value, np.int32).tobytes())


def convolved(layout: str = "NCHW", dtype: DType = DType.FLOAT64, **hyper: Any) -> TrainableGraph:
    """Group and instance normalisation between convolutions, and an activation that reads its input."""
    s = Sketch("convolved", dtype)
    image, kernel = ((2, 6, 6), (4, 2, 3, 3)) if layout == "NCHW" else ((6, 6, 2), (4, 3, 3, 2))
    common: dict[str, Any] = {"data_layout": layout}
    h = s.op("Conv", [s.input("x", 2, *image), s.parameter("k1", *kernel)], "a", **common)
    ones = Initializer("ones")
    parameters = [s.parameter("g1", 4, initializer=ones), s.parameter("s1", 4)]
    h = s.op("GroupNormalization", [h, *parameters], "b", num_groups=2, **common)
    h = s.op("Swish", [h], "c")
    h = s.op("ConvTranspose", [h, s.parameter("k3", 4, 4, 2, 2)], "larger", strides=(2, 2), **common)
    h = s.op("Conv", [h, s.parameter("k4", 4, 4, 2, 2)], "smaller", strides=(2, 2), **common)
    parameters = [s.parameter("g2", 4, initializer=ones), s.parameter("s2", 4, initializer=_uniform(3))]
    h = s.op("InstanceNormalization", [h, *parameters], "d", **common)
    h = s.op("Relu", [h], "e")
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    h = s.op("Resize", [h, "", "", s.integers("sizes", 3, 9)], "resized", mode="linear", axes=axes)
    h = s.op("Mul", [h, h], "squares")
    h = s.op("ReduceMean", [h], "f", axes=(2, 3) if layout == "NCHW" else (1, 2), keepdims=0)
    h = s.op("Sigmoid", [s.op("Gemm", [h, s.parameter("k2", 4, 1)], "g")], "p")
    s.op("BinaryCrossEntropy", [h, s.label("t", 2, 1)], "loss")
    return s.graph(**hyper)
