"""The two example models as graph documents: an MNIST classifier and MobileNet v2.

`python -m examples.models` writes both beside this file. Parameters have named initializers with
seeds, so a document is a few kilobytes whatever the size of its model. Activations are NHWC.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["MODELS", "Document", "GraphBuilder", "mnist", "mobilenet_v2", "render"]

Document = dict[str, Any]
Shape = list[int | str]


class GraphBuilder:
    """Collects operands and operations of one document, following the shapes as it goes.

    Every method adds one operation called `name`, whose parameters are ``name.weight`` and
    ``name.bias``, and returns the name of its output, ``name.out``.
    """

    def __init__(self, name: str, *, batch: int) -> None:
        self._name = name
        self._batch = batch
        self._operands: list[Document] = []
        self._operations: list[Document] = []
        self._shapes: dict[str, Shape] = {}
        self._seed = 0

    # ------------------------------------------------------------------------------- operands

    def given(self, name: str, role: str, *dimensions: int) -> str:
        """An input or label of ``batch`` examples."""
        self._shapes[name] = ["batch", *dimensions]
        self._operands.append({"name": name, "role": role, "shape": self._shapes[name], "dtype": "float32"})
        return name

    def _parameters(self, name: str, kind: str, shape: list[int]) -> list[str]:
        """Weight and bias; the weight's first axis counts the outputs."""
        self._seed += 1
        weight: Document = {"kind": kind, "seed": self._seed}
        for suffix, extent, initializer in (
            ("weight", shape, weight),
            ("bias", shape[:1], {"kind": "zeros"}),
        ):
            self._operands.append(
                {
                    "name": f"{name}.{suffix}",
                    "role": "parameter",
                    "shape": extent,
                    "dtype": "float32",
                    "initializer": initializer,
                }
            )
        return [f"{name}.weight", f"{name}.bias"]

    def _constant(self, name: str, values: list[int]) -> str:
        self._operands.append(
            {
                "name": name,
                "role": "constant",
                "shape": [len(values)],
                "dtype": "int64",
                "initializer": {"kind": "values", "values": values},
            }
        )
        return name

    # ----------------------------------------------------------------------------- operations

    def _operation(self, name: str, type_: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        output = f"{name}.out"
        operation: Document = {"name": name, "type": type_, "inputs": inputs, "outputs": [output]}
        if attributes:
            operation["attributes"] = attributes
        self._operations.append(operation)
        self._shapes[output] = shape
        return output

    def conv(
        self,
        name: str,
        x: str,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        padding: str = "SAME_UPPER",
        activation: str = "None",
    ) -> str:
        batch, height, width, channels = self._shapes[x]
        weights = self._parameters(name, "he_normal", [filters, kernel, kernel, _number(channels) // groups])
        extent = [_windows(_number(size), kernel, stride, padding) for size in (height, width)]
        return self._operation(
            name,
            "Conv",
            [x, *weights],
            [batch, *extent, filters],
            data_layout="NHWC",
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            group=groups,
            auto_pad=padding,
            activation=activation,
        )

    def depthwise(self, name: str, x: str, *, stride: int, padding: str, activation: str) -> str:
        """One 3x3 filter for each channel."""
        channels = _number(self._shapes[x][3])
        return self.conv(
            name,
            x,
            channels,
            3,
            stride=stride,
            groups=channels,
            padding=padding,
            activation=activation,
        )

    def max_pool(self, name: str, x: str, size: int) -> str:
        batch, height, width, channels = self._shapes[x]
        extent = [_number(side) // size for side in (height, width)]
        return self._operation(
            name,
            "MaxPool",
            [x],
            [batch, *extent, channels],
            data_layout="NHWC",
            kernel_shape=[size, size],
            strides=[size, size],
        )

    def pad_end(self, name: str, x: str) -> str:
        """One row and one column of zeros behind each image."""
        batch, height, width, channels = self._shapes[x]
        pads = self._constant(f"{name}.pads", [0, 0, 0, 0, 0, 1, 1, 0])
        shape = [batch, _number(height) + 1, _number(width) + 1, channels]
        return self._operation(name, "Pad", [x, pads], shape)

    def add(self, name: str, left: str, right: str) -> str:
        return self._operation(name, "Add", [left, right], self._shapes[left])

    def global_mean(self, name: str, x: str) -> str:
        axes = self._constant(f"{name}.axes", [1, 2])
        batch, _, _, channels = self._shapes[x]
        return self._operation(name, "ReduceMean", [x, axes], [batch, channels], keepdims=0)

    def flatten(self, name: str, x: str) -> str:
        batch, height, width, channels = self._shapes[x]
        features = _number(height) * _number(width) * _number(channels)
        shape = self._constant(f"{name}.shape", [-1, features])
        return self._operation(name, "Reshape", [x, shape], [batch, features])

    def dense(self, name: str, x: str, units: int, *, activation: str = "None") -> str:
        batch, features = self._shapes[x]
        kind = "glorot_uniform" if activation == "None" else "he_normal"
        weights = self._parameters(name, kind, [units, _number(features)])
        return self._operation(name, "Gemm", [x, *weights], [batch, units], transB=1, activation=activation)

    def softmax(self, name: str, x: str) -> str:
        return self._operation(name, "Softmax", [x], self._shapes[x])

    def finish(self, probabilities: str, label: str) -> Document:
        """The document: categorical cross-entropy of `probabilities`, minimised by Adam."""
        loss = self._operation("loss", "CategoricalCrossEntropy", [probabilities, label], [])
        return {
            "format": "arenaplan.graph",
            "version": 1,
            "name": self._name,
            "batch": self._batch,
            "operands": self._operands,
            "operations": self._operations,
            "loss": loss,
            "outputs": [probabilities],
            "optimizer": {"type": "Adam", "learning_rate": 0.001},
            "trainable": "all",
        }


def _number(dimension: int | str) -> int:
    if not isinstance(dimension, int):
        raise ValueError(f"dimension {dimension!r} is symbolic")
    return dimension


def _windows(size: int, kernel: int, stride: int, padding: str) -> int:
    return -(-size // stride) if padding == "SAME_UPPER" else (size - kernel) // stride + 1


def mnist() -> Document:
    """Four convolutions, two poolings, two dense layers: 484,714 parameters, batch 32."""
    model = GraphBuilder("mnist", batch=32)
    x = model.given("image", "input", 28, 28, 1)
    label = model.given("label", "label", 10)
    x = model.conv("conv1", x, 32, 5, activation="Relu")
    x = model.conv("conv2", x, 32, 5, activation="Relu")
    x = model.max_pool("pool1", x, 2)
    x = model.conv("conv3", x, 64, 3, activation="Relu")
    x = model.conv("conv4", x, 64, 3, activation="Relu")
    x = model.max_pool("pool2", x, 2)
    x = model.flatten("flatten", x)
    x = model.dense("dense1", x, 128, activation="Relu")
    x = model.dense("dense2", x, 10)
    return model.finish(model.softmax("softmax", x), label)


#: Expansion, channels, blocks and first stride of each stage: table 2 of Sandler et al.,
#: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", arXiv 1801.04381.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> Document:
    """Width 1.0, 224x224x3, 1000 classes, batch 10, batch norm folded: 3,487,816 parameters.

    Depthwise convolutions of stride 2 follow an explicit Pad and pad nothing themselves.
    """
    model = GraphBuilder("mobilenet_v2", batch=10)
    x = model.given("image", "input", 224, 224, 3)
    label = model.given("label", "label", 1000)
    x = model.conv("stem", x, 32, 3, stride=2, activation="Relu6")
    block, channels = 0, 32
    for expansion, filters, repeats, first_stride in _STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            x = _inverted_residual(model, f"block{block}", x, channels, expansion, filters, stride)
            block, channels = block + 1, filters
    x = model.conv("head", x, 1280, 1, activation="Relu6")
    x = model.global_mean("mean", x)
    x = model.dense("classifier", x, 1000)
    return model.finish(model.softmax("softmax", x), label)


def _inverted_residual(
    model: GraphBuilder, name: str, x: str, channels: int, expansion: int, filters: int, stride: int
) -> str:
    """Expand, filter each channel, project without an activation; add the input where shapes agree."""
    y = x
    if expansion != 1:
        y = model.conv(f"{name}.expand", y, channels * expansion, 1, activation="Relu6")
    if stride == 2:
        y = model.pad_end(f"{name}.pad", y)
    padding = "VALID" if stride == 2 else "SAME_UPPER"
    y = model.depthwise(f"{name}.depthwise", y, stride=stride, padding=padding, activation="Relu6")
    y = model.conv(f"{name}.project", y, filters, 1)
    return model.add(f"{name}.add", x, y) if stride == 1 and channels == filters else y


MODELS: Mapping[str, Callable[[], Document]] = {"mnist": mnist, "mobilenet_v2": mobilenet_v2}


def render(document: Document) -> str:
    """JSON with one operand or operation on each line, so that changes read well."""
    lines = []
    for key, value in document.items():
        if key in ("operands", "operations"):
            rows = ",\n    ".join(json.dumps(row) for row in value)
            lines.append(f'  "{key}": [\n    {rows}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    for name, build in MODELS.items():
        path = Path(__file__).with_name(f"{name}.json")
        path.write_text(render(build()), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
