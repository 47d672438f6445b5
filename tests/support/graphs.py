"""Small graphs for tests, built by `build_graph`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from solver.graph import (
    DeclaredOperand,
    DType,
    Initializer,
    Operation,
    OptimizerSpec,
    Role,
    Trainable,
    TrainableGraph,
    TrainingRules,
    build_graph,
)


class Sketch:
    """Collects declarations; `graph()` builds. Method names say the role of what they add."""

    def __init__(self, name: str = "sketch", dtype: DType = DType.FLOAT32) -> None:
        self.name, self.dtype = name, dtype
        self.operands: list[DeclaredOperand] = []
        self.operations: list[Operation] = []

    def add(self, name: str, role: Role, shape: Sequence[int], **more: Any) -> str:
        self.operands.append(DeclaredOperand(name, role, tuple(shape), more.pop("dtype", self.dtype), **more))
        return name

    def input(self, name: str, *shape: int) -> str:
        return self.add(name, Role.INPUT, shape)

    def label(self, name: str, *shape: int, dtype: DType | None = None) -> str:
        return self.add(name, Role.LABEL, shape, dtype=dtype or self.dtype)

    def parameter(self, name: str, *shape: int, **more: Any) -> str:
        return self.add(name, Role.PARAMETER, shape, **more)

    def state(self, name: str, *shape: int, **more: Any) -> str:
        return self.add(name, Role.STATE, shape, **more)

    def integers(self, name: str, *values: int) -> str:
        data = Initializer("values", np.array(values, np.int64).tobytes())
        return self.add(name, Role.CONSTANT, (len(values),), dtype=DType.INT64, initializer=data)

    def op(self, type_: str, inputs: Sequence[str], output: str, name: str = "", **attributes: Any) -> str:
        self.operations.append(Operation(name or f"{output}.op", type_, tuple(inputs), (output,), attributes))
        return output

    def read(self, text: str) -> Self:
        """Adds the operations of lines such as ``h = Gemm(x.input[3, 4], w[4, 5], transB=1)``.

        An operand is declared where it is read first, by its shape: a parameter, or what stands behind a dot
        (`frozen`, `input`, `label`, `state`; `integers` are a constant of these values), with an element type
        behind another dot. A call may stand in the place of an operand; `name` names the operation.
        """
        for line in ast.parse(text).body:
            assert isinstance(line, ast.Assign), ast.unparse(line)
            self._apply(line.value, ast.unparse(line.targets[0]))
        return self

    def _apply(self, call: ast.expr, output: str = "") -> str:
        assert isinstance(call, ast.Call), ast.unparse(call)
        inputs = [self._operand(argument) for argument in call.args]
        attributes = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return self.op(ast.unparse(call.func), inputs, output or f"v{len(self.operations)}", **attributes)

    def _operand(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            return self._apply(node)
        if not isinstance(node, ast.Subscript):
            return ast.unparse(node)
        name, role, *types = [*ast.unparse(node.value).split("."), "parameter"][:3]
        numbers = ast.literal_eval(node.slice)
        shape = numbers if isinstance(numbers, tuple) else (numbers,)
        if role == "integers":
            return self.integers(name, *shape)
        more: dict[str, Any] = {"trainable": False} if role == "frozen" else {}
        if types and types[0] != "parameter":
            more["dtype"] = DType(types[0])
        return self.add(name, Role.PARAMETER if role == "frozen" else Role(role), shape, **more)

    def graph(
        self,
        loss: str = "loss",
        *,
        trainable: Trainable = "all",
        optimizer: str = "SGD",
        outputs: Sequence[str] = (),
        training: TrainingRules | None = None,
        **hyper: Any,
    ) -> TrainableGraph:
        hyper.setdefault("learning_rate", 0.01)
        spec = OptimizerSpec(optimizer, hyper)
        return build_graph(
            self.name,
            self.operands,
            self.operations,
            loss=loss,
            optimizer=spec,
            trainable=trainable,
            outputs=outputs,
            training=training,
        )


def network(
    text: str, dtype: DType = DType.FLOAT32, *, name: str = "network", **options: Any
) -> TrainableGraph:
    """The graph of such lines (`Sketch.read`); `options` are those of `Sketch.graph`."""
    return Sketch(name, dtype).read(text).graph(**options)


def chain(
    widths: Sequence[int] = (6, 5, 4), batch: int = 3, *, trainable: Trainable = "all", **hyper: Any
) -> TrainableGraph:
    """Linear layers fc1, fc2, ... with bias and fused Relu between, mean squared error at the end."""
    s = Sketch("chain")
    x = s.input("x", batch, widths[0])
    for i, (a, b) in enumerate(itertools.pairwise(widths), 1):
        w, c = s.parameter(f"w{i}", b, a), s.parameter(f"b{i}", b)
        activation = "None" if i == len(widths) - 1 else "Relu"
        x = s.op("Gemm", [x, w, c], f"h{i}", f"fc{i}", transB=1, activation=activation)
    s.op("MeanSquaredError", [x, s.label("t", batch, widths[-1])], "loss", "mse")
    return s.graph(trainable=trainable, **hyper)


def tower(
    depth: int = 5,
    *,
    rows: int = 32,
    width: int = 16,
    dropout: bool = False,
    tied: bool = False,
    outputs: Sequence[str] = (),
    **hyper: Any,
) -> TrainableGraph:
    """Layers of which each keeps its wide activation for the backward pass; h0, h1, ... may be results."""
    s = Sketch("tower")
    h = s.input("x", rows, width)
    for k in range(depth):
        w = "w0" if tied and k else s.parameter(f"w{k}", width, width)
        h = s.op("Gemm", [h, w], f"h{k}", f"fc{k}")
        h = s.op("Gelu", [h], f"a{k}", f"gelu{k}")
        if dropout:
            h = s.op("Dropout", [h], f"d{k}", f"drop{k}", ratio=0.5)
    s.op("MeanSquaredError", [h, s.label("t", rows, width)], "loss", "mse")
    return s.graph(outputs=outputs, **hyper)


def residual(batch: int = 4, width: int = 6, classes: int = 5, **hyper: Any) -> TrainableGraph:
    """A branch (h1 has two consumers), tied weights (w2 twice), one operand twice (Mul) and a softmax."""
    s = Sketch("residual")
    x = s.input("x", batch, width)
    w1, w2, w3 = (
        s.parameter("w1", width, width),
        s.parameter("w2", width, width),
        s.parameter("w3", classes, width),
    )
    h1 = s.op("Gemm", [x, w1, s.parameter("b1", width)], "h1", "fc1", transB=1, activation="Relu")
    h2 = s.op("Gemm", [h1, w2], "h2", "fc2", transB=1)
    h3 = s.op("Add", [h1, h2], "h3", "join", activation="Tanh")
    h4 = s.op("Gemm", [h3, w2], "h4", "fc2b", transB=1)
    h5 = s.op("Mul", [h4, h4], "h5", "square")
    z = s.op("Gemm", [h5, w3], "z", "fc3", transB=1)
    p = s.op("Softmax", [z], "p", "softmax")
    s.op("CategoricalCrossEntropy", [p, s.label("t", batch, classes)], "loss", "cce")
    return s.graph(optimizer=str(hyper.pop("optimizer", "Adam")), **hyper)


def convolutional(batch: int = 2, layout: str = "NHWC", **hyper: Any) -> TrainableGraph:
    """Convolution, depthwise convolution, max and average pooling, pad, reshape: a small vision net."""
    s = Sketch("convolutional")
    image = (8, 8, 3) if layout == "NHWC" else (3, 8, 8)
    weight = (4, 3, 3, 3)
    depthwise = (4, 3, 3, 1) if layout == "NHWC" else (4, 1, 3, 3)
    common: Mapping[str, Any] = {"data_layout": layout}
    h = s.op(
        "Conv",
        [s.input("x", batch, *image), s.parameter("k1", *weight), s.parameter("c1", 4)],
        "a", "conv1", auto_pad="SAME_UPPER", activation="Relu", **common,
    )  # fmt: skip
    h = s.op("MaxPool", [h], "b", "pool1", kernel_shape=(2, 2), strides=(2, 2), **common)
    h = s.op(
        "Conv", [h, s.parameter("k2", *depthwise)], "c", "conv2",
        group=4, pads=(1, 1, 1, 1), activation="Relu6", **common,
    )  # fmt: skip
    h = s.op("AveragePool", [h], "d", "pool2", kernel_shape=(2, 2), strides=(2, 2), **common)
    h = s.op("Reshape", [h, s.integers("flat", -1, 16)], "e", "flatten")
    h = s.op("Gemm", [h, s.parameter("k3", 5, 16), s.parameter("c3", 5)], "f", "fc", transB=1)
    s.op("CategoricalCrossEntropy", [h, s.label("t", batch, 5)], "loss", "cce", from_logits=1)
    return s.graph(optimizer="Adam", outputs=("f",), **hyper)


def batch_normalised(
    batch: int = 4, layout: str = "NCHW", *, mode: int = 1, dtype: DType = DType.FLOAT32, **hyper: Any
) -> TrainableGraph:
    """Convolution, batch normalisation with running statistics, Relu, mean over the image, linear."""
    s = Sketch("batch normalised", dtype)
    image, kernel = ((2, 6, 6), (4, 2, 3, 3)) if layout == "NCHW" else ((6, 6, 2), (4, 3, 3, 2))
    common: Mapping[str, Any] = {"data_layout": layout}
    h = s.op("Conv", [s.input("x", batch, *image), s.parameter("k", *kernel)], "a", "conv", **common)
    ones = Initializer("ones")
    inputs = [h, s.parameter("scale", 4, initializer=ones), s.parameter("shift", 4)]
    inputs += [s.state("mean", 4), s.state("variance", 4, initializer=ones)]
    h = s.op("BatchNormalization", inputs, "b", "norm", training_mode=mode, momentum=0.8, **common)
    h = s.op("Relu", [h], "c", "relu")
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    h = s.op("ReduceMean", [h], "d", "pool", axes=axes, keepdims=0)
    h = s.op("Gemm", [h, s.parameter("w", 3, 4)], "e", "fc", transB=1)
    s.op("MeanSquaredError", [h, s.label("t", batch, 3)], "loss", "mse")
    return s.graph(optimizer=str(hyper.pop("optimizer", "Adam")), **hyper)
