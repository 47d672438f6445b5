"""Random graphs full of what rules look for: separate biases and activations, frozen normalisation,
shapes given twice, constants of constants, branches that lead nowhere."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from solver.graph import DeclaredOperand, DType, Initializer, Operation, Role, TrainableGraph, build_graph
from tests.support.graphs import Sketch

__all__ = ["apart", "constant", "mobile_block", "random_rewritable"]


def constant(s: Sketch, name: str, *shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> str:
    """A constant whose values are spelt out, uniform between two bounds."""
    values = np.random.default_rng([seed, *name.encode()]).uniform(low, high, shape)
    data = Initializer("values", values.astype(s.dtype.numpy).tobytes())
    return s.add(name, Role.CONSTANT, shape, initializer=data)


def normalised(s: Sketch, h: str, name: str, channels: int, layout: str) -> str:
    """Frozen normalisation by constants."""
    scale, shift, mean = (constant(s, f"{name}.{part}", channels) for part in ("scale", "shift", "mean"))
    variance = constant(s, f"{name}.variance", channels, low=0.5, high=2.0)
    return s.op("BatchNormalization", [h, scale, shift, mean, variance], name, data_layout=layout)


def mobile_block(
    *,
    batch: int = 2,
    size: int = 8,
    channels: int = 8,
    stride: int = 1,
    layout: str = "NHWC",
    dtype: DType = DType.FLOAT32,
    trained: bool = False,
) -> TrainableGraph:
    """An inverted residual block as exporters write it, each operation by itself; a trained head.

    1x1 convolution to six times the channels, depthwise 3x3, 1x1 back; behind each the sum with a bias,
    behind the first two Clip to [0, 6], and with stride 1 the sum with the input. Unless the block is
    `trained` it is frozen, and every bias is followed by a normalisation.
    """
    s, wide = Sketch("block", dtype), 6 * channels
    common: dict[str, Any] = {"data_layout": layout}
    image = (size, size, channels) if layout == "NHWC" else (channels, size, size)
    x = h = s.input("x", batch, *image)

    def given(name: str, *shape: int) -> str:
        return s.parameter(name, *shape) if trained else constant(s, name, *shape, low=-0.4, high=0.4)

    for name, filters, depth, taps, group in (
        ("expand", wide, channels, 1, 1),
        ("depthwise", wide, 1, 3, wide),
        ("project", channels, wide, 1, 1),
    ):
        kernel = (filters, taps, taps, depth) if layout == "NHWC" else (filters, depth, taps, taps)
        strides = (stride,) * 2 if name == "depthwise" else (1, 1)
        attributes = {"group": group, "pads": (taps // 2,) * 4, "strides": strides, **common}
        h = s.op("Conv", [h, given(f"{name}.weight", *kernel)], f"{name}.y", name, **attributes)
        bias = (filters,) if layout == "NHWC" else (filters, 1, 1)
        h = s.op("Add", [h, given(f"{name}.bias", *bias)], f"{name}.sum")
        h = h if trained else normalised(s, h, f"{name}.norm", filters, layout)
        if name != "project":
            h = s.op("Clip", [h], f"{name}.act", min=0.0, max=6.0)
    h = s.op("Add", [x, h], "sum") if stride == 1 else h
    h = s.op("Flatten", [s.op("GlobalAveragePool", [h], "pooled", **common)], "flat")
    h = s.op("MatMul", [h, s.parameter("head.weight", channels, 4)], "head.y", "head")
    h = s.op("Add", [h, s.parameter("head.bias", 4)], "logits")
    s.op("CategoricalCrossEntropy", [h, s.label("t", batch, 4)], "loss", from_logits=1)
    return s.graph(outputs=("logits",))


def apart(graph: TrainableGraph) -> TrainableGraph:
    """The same with every activation, and every bias along the last axis, by itself."""
    declared = [
        DeclaredOperand(o.id, o.role, o.shape, o.dtype, o.initializer)
        for o in graph.operands.values()
        if o.role is not Role.INTERMEDIATE
    ]
    return build_graph(
        graph.name,
        declared,
        [part for operation in graph.operations for part in _parts(operation)],
        loss=graph.loss,
        optimizer=graph.optimizer,
        trainable=graph.trainable,
        outputs=graph.outputs,
    )


def _parts(operation: Operation) -> list[Operation]:
    attributes = dict(operation.attributes)
    inputs, (output, *_) = operation.inputs, operation.outputs
    last = operation.type == "Gemm" or attributes.get("data_layout") == "NHWC"
    following: list[tuple[str, tuple[str, ...], dict[str, float]]] = []
    if operation.type in ("Conv", "Gemm") and len(inputs) == 3 and last:
        following.append(("Add", inputs[2:], {}))
        inputs = inputs[:2]
    activation = str(attributes.pop("activation", "None"))
    if activation == "Relu6":
        following.append(("Clip", (), {"min": 0.0, "max": 6.0}))
    elif activation != "None":
        following.append((activation, (), {}))
    if not following:
        return [operation]
    names = [*(f"{output}.{k}" for k in range(len(following))), output]
    parts = [Operation(operation.id, operation.type, inputs, (names[0],), attributes)]
    for k, (type_, more, bounds) in enumerate(following):
        parts.append(Operation(f"{operation.id}.{k}", type_, (names[k], *more), (names[k + 1],), bounds))
    return parts


class _Random(Sketch):
    """Adds one random piece after the other; every piece takes and gives [2, 6]."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__("random", DType.FLOAT64)
        self.rng = rng
        self.made = 0

    def fresh(self, stem: str) -> str:
        self.made += 1
        return f"{stem}{self.made}"

    def flip(self) -> bool:
        return self.rng.random() < 0.5

    def given(self, *shape: int) -> str:
        """A trained parameter, a frozen one or a constant."""
        name = self.fresh("p")
        if self.rng.random() < 0.3:
            return constant(self, name, *shape)
        return self.parameter(name, *shape, trainable=self.rng.random() < 0.8)

    def apply(self, type_: str, *inputs: str, **attributes: Any) -> str:
        return self.op(type_, inputs, self.fresh("h"), **attributes)

    def activated(self, h: str) -> str:
        type_ = self.rng.choice(("Relu", "Sigmoid", "Tanh", "Clip", "Swish", "nothing"))
        if type_ == "Clip":
            return self.apply("Clip", h, min=0.0, max=self.rng.choice((6.0, 5.0)))
        return h if type_ == "nothing" else self.apply(type_, h)

    def linear(self, h: str) -> str:
        shape = self.rng.choice(((6,), (1, 6), (2, 6), (1,)))
        weight = self.given(6, 6)
        weight = self.apply("Transpose", weight) if self.flip() else weight
        product = self.apply("MatMul", h, weight) if self.flip() else self.apply("Gemm", h, weight, beta=0.5)
        if self.flip():
            self.apply("Neg", product)  # a second reader that leads nowhere
        pair = [product, self.given(*shape)]
        return self.activated(self.apply("Add", *(pair[::-1] if self.flip() else pair)))

    def convolution(self, h: str) -> str:
        layout = self.rng.choice(("NCHW", "NHWC"))
        image, kernel = ((2, 1, 3), (2, 2, 1, 1)) if layout == "NCHW" else ((1, 3, 2), (2, 1, 1, 2))
        h = self.apply("Reshape", h, self.integers(self.fresh("s"), 2, *image))
        h = self.apply("Conv", h, self.given(*kernel), data_layout=layout)
        if self.flip():
            shape = self.rng.choice(((2, 1, 1), (1, 2, 1, 1), (2,), (1, 1, 1, 2), (3,)))
            try:
                same = np.broadcast_shapes((2, *image), shape) == (2, *image)
            except ValueError:
                same = False
            h = self.apply("Add", h, self.given(*shape)) if same else h
        if self.flip():
            h = normalised(self, h, self.fresh("n"), 2, layout)
        return self.apply("Flatten", self.activated(h))

    def pooled(self, h: str) -> str:
        """[2, 6] as images, made larger by padding, an activation, and pooled back."""
        layout = self.rng.choice(("NCHW", "NHWC"))
        image, pads = (
            ((1, 2, 3), (0, 0, 0, 0, 0, 0, 1, 1)) if layout == "NCHW" else ((2, 3, 1), (0,) * 5 + (1, 1, 0))
        )
        h = self.apply("Reshape", h, self.integers(self.fresh("s"), 2, *image))
        h = self.apply("Pad", h, self.integers(self.fresh("s"), *pads))
        h = self.activated(self.apply("Mul", h, self.given(1)))
        h = self.apply("MaxPool", h, kernel_shape=(2, 2), data_layout=layout)
        return self.apply("Reshape", h, self.integers(self.fresh("s"), 2, 6))

    def movement(self, h: str) -> str:
        if self.flip():
            return self.apply("Transpose", self.apply("Transpose", h), perm=(1, 0))
        shapes = [self.integers(self.fresh("s"), *shape) for shape in ((3, 4), (2, -1))]
        return self.apply("Reshape", self.apply("Reshape", h, shapes[0]), shapes[1])

    def folded(self, h: str) -> str:
        inner = self.apply("Exp", constant(self, self.fresh("c"), 6))
        return self.apply("Mul", h, self.apply("Add", inner, constant(self, self.fresh("c"), 6)))

    def branch(self, h: str) -> str:
        dead = self.apply("MatMul", h, self.parameter(self.fresh("p"), 6, 3, trainable=False))
        self.apply("Exp", dead)
        if self.flip():
            return self.apply("Mul", self.apply("Tanh", h), self.apply("Tanh", h))
        return self.apply("Add", h, self.activated(h))


def random_rewritable(seed: int, pieces: int = 5) -> TrainableGraph:
    """float64, at least one trained parameter; some intermediate values are outputs."""
    rng = random.Random(seed)
    s = _Random(rng)
    h = s.op("MatMul", [s.input("x", 2, 6), s.parameter("first", 6, 6)], "start")
    values = [h]
    for _ in range(pieces):
        h = rng.choice((s.linear, s.convolution, s.pooled, s.movement, s.folded, s.branch))(h)
        values.append(h)
    s.op("MeanSquaredError", [h, s.label("t", 2, 6)], "loss")
    outputs = tuple(dict.fromkeys(rng.choice(values) for _ in range(rng.randrange(3))))
    return s.graph(outputs=outputs)
