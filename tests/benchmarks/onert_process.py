"""Trains a graph in Samsung's onert; a script that an interpreter with onert runs, without this project.

It writes the graph as a `.circle` file, trains it on one batch, and prints one JSON object as its last line:
``{"losses": [...]}``, or ``{"missing": "..."}`` with the name of the package that cannot be imported. The
model with the weights after step n is left as ``after-n.circle``.
`tests.benchmarks.onert_losses` starts it.

Arguments: a directory with ``job.json`` (tensors with shape and maybe a key of ``arrays.npz``, operations,
input, output, batch, learning rate, steps, maybe the path of a finished model) and ``arrays.npz``
(parameters, constants, the input, label).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

#: Ours to circle's: the operator, and what holds its attributes.
_OPERATORS = {
    "Conv": ("CONV_2D", "Conv2DOptions"),
    "MaxPool": ("MAX_POOL_2D", "Pool2DOptions"),
    "Reshape": ("RESHAPE", "ReshapeOptions"),
    "Gemm": ("FULLY_CONNECTED", "FullyConnectedOptions"),
    "Softmax": ("SOFTMAX", "SoftmaxOptions"),
}


def write_circle(path: Path, job: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write the graph of `job` for a batch of 1, which onert replaces by its own.

    Layouts are the same on both sides: images NHWC, weights of Conv
    [out, height, width, in], of Gemm [out, in].
    """
    import flatbuffers
    from circle_schema import circle

    buffers = [circle.Buffer.BufferT()]  # the first one is empty: tensors without data
    tensors: list[Any] = []
    index: dict[str, int] = {}
    for name, shape in job["tensors"].items():
        tensor = circle.Tensor.TensorT()
        tensor.name, tensor.shape = name, shape
        if name in arrays and name != job["input"]:
            data = arrays[name]
            whole = data.dtype.kind == "i"
            tensor.type = (
                circle.TensorType.TensorType.INT32 if whole else circle.TensorType.TensorType.FLOAT32
            )
            tensor.buffer = len(buffers)
            buffer = circle.Buffer.BufferT()
            buffer.data = np.frombuffer(data.astype("<i4" if whole else "<f4").tobytes(), np.uint8)
            buffers.append(buffer)
        index[name] = len(tensors)
        tensors.append(tensor)

    codes, operators = [], []
    for number, operation in enumerate(job["operations"]):
        code, options = _OPERATORS[operation["type"]]
        kind = circle.OperatorCode.OperatorCodeT()
        kind.builtinCode = kind.deprecatedBuiltinCode = getattr(circle.BuiltinOperator.BuiltinOperator, code)
        codes.append(kind)
        operator = circle.Operator.OperatorT()
        operator.opcodeIndex = number
        operator.inputs = [index[name] for name in operation["inputs"]]
        operator.outputs = [index[name] for name in operation["outputs"]]
        operator.builtinOptionsType = getattr(circle.BuiltinOptions.BuiltinOptions, options)
        operator.builtinOptions = getattr(getattr(circle, options), f"{options}T")()
        _fill(operator.builtinOptions, operation["attributes"], circle)
        operators.append(operator)

    part = circle.SubGraph.SubGraphT()
    part.name, part.tensors, part.operators = "main", tensors, operators
    part.inputs, part.outputs = [index[job["input"]]], [index[job["output"]]]
    model = circle.Model.ModelT()
    model.operatorCodes, model.subgraphs, model.buffers = codes, [part], buffers
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"CIR0")
    path.write_bytes(bytes(builder.Output()))


def _fill(options: Any, attributes: Mapping[str, Any], circle: Any) -> None:
    """Copies `attributes` into the fields that these options have."""
    padding, activation = circle.Padding.Padding, circle.ActivationFunctionType.ActivationFunctionType
    height, width = attributes.get("strides", (1, 1))
    kernel = attributes.get("kernel_shape", (1, 1))
    fields = {
        "padding": padding.SAME if attributes.get("auto_pad") == "SAME_UPPER" else padding.VALID,
        "strideH": height,
        "strideW": width,
        "filterHeight": kernel[0],
        "filterWidth": kernel[1],
        "fusedActivationFunction": activation.RELU
        if attributes.get("activation") == "Relu"
        else activation.NONE,
        "beta": 1.0,
    }
    for field, value in fields.items():
        if hasattr(options, field):
            setattr(options, field, value)


def losses(model: Path, job: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[float]:
    """Loss of each step, before its update."""
    from onert.experimental import train

    session = train.session(str(model))
    session.compile(
        train.optimizer.Adam(learning_rate=job["learning_rate"]),
        train.losses.CategoricalCrossentropy("mean"),
        batch_size=job["batch"],
    )
    image, label = arrays[job["input"]], arrays["label"]
    found = []
    for step in range(1, job["steps"] + 1):
        found.append(float(session.train_step([image], [label])["loss"][0]))
        _export(session, Path(f"after-{step}.circle"))
    return found


def _export(session: Any, path: Path) -> None:
    """Write the model with the weights that it has now.

    The binding of onert 0.1.0 keeps no copy of the path that it is given, and writes to whatever name it
    finds there by then. So this happens in an empty directory, and its one file is taken.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)
        try:
            session.session.train_export_circle("model.circle")
            (written,) = Path(empty).iterdir()
            written.replace(before / path)
        finally:
            os.chdir(before)


def main() -> None:
    directory = Path(sys.argv[1]).resolve()
    os.chdir(directory)
    job = json.loads((directory / "job.json").read_text(encoding="utf-8"))
    model = directory / "model.circle"
    with np.load(directory / "arrays.npz") as arrays:
        try:
            if job.get("model"):
                model = Path(job["model"])
            else:
                write_circle(model, job, arrays)
            found: dict[str, Any] = {"losses": losses(model, job, arrays)}
        except ModuleNotFoundError as error:
            found = {"missing": error.name}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
