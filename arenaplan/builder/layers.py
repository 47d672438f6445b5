"""Operations with parameters. Images are NHWC; the parameters of a layer bear its name."""

from __future__ import annotations

import math

from arenaplan.builder.tape import Tensor
from solver.arguments import checks_arguments
from solver.graph import Role

__all__ = [
    "batch_norm",
    "conv",
    "dense",
    "depthwise",
    "embedding",
    "layer_norm",
    "lstm",
    "project",
    "upsample",
]


@checks_arguments
def conv(
    x: Tensor,
    filters: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    padding: str = "SAME_UPPER",
    activation: str = "None",
    bias: bool = True,
    name: str | None = None,
) -> Tensor:
    """Convolution of [batch, height, width, channels] with square windows."""
    tape = x.tape
    name = tape.name("conv", name)
    weight = tape.parameter(f"{name}.weight", [filters, kernel, kernel, x.shape[-1] // groups], "he_normal")
    return tape.apply(
        "Conv",
        x,
        weight,
        *([tape.parameter(f"{name}.bias", [filters], "zeros")] if bias else []),
        name=name,
        data_layout="NHWC",
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        group=groups,
        auto_pad=padding,
        activation=activation,
    )


@checks_arguments
def depthwise(
    x: Tensor,
    *,
    stride: int = 1,
    padding: str = "SAME_UPPER",
    activation: str = "None",
    bias: bool = True,
    name: str | None = None,
) -> Tensor:
    """One 3x3 filter for each channel."""
    channels = x.shape[-1]
    return conv(
        x,
        channels,
        3,
        stride=stride,
        groups=channels,
        padding=padding,
        activation=activation,
        bias=bias,
        name=name,
    )


@checks_arguments
def dense(x: Tensor, units: int, *, activation: str = "None", name: str | None = None) -> Tensor:
    """A fully connected layer over [batch, features]; its weight is [units, features]."""
    tape = x.tape
    name = tape.name("dense", name)
    kind = "glorot_uniform" if activation == "None" else "he_normal"
    weight = tape.parameter(f"{name}.weight", [units, x.shape[-1]], kind)
    bias = tape.parameter(f"{name}.bias", [units], "zeros")
    return tape.apply("Gemm", x, weight, bias, name=name, transB=1, activation=activation)


@checks_arguments
def project(x: Tensor, units: int, *, bias: bool = True, name: str | None = None) -> Tensor:
    """A linear map of the last axis, whatever stands before it; its weight is [features, units]."""
    tape = x.tape
    name = tape.name("project", name)
    features = x.shape[-1]
    weight = tape.parameter(f"{name}.weight", [features, units], "normal", scale=math.sqrt(1 / features))
    y = tape.apply("MatMul", x, weight, name=name)
    if not bias:
        return y
    return tape.apply("Add", y, tape.parameter(f"{name}.bias", [units], "zeros"), name=f"{name}.add")


@checks_arguments
def layer_norm(x: Tensor, *, name: str | None = None) -> Tensor:
    """Over the last axis."""
    tape = x.tape
    name = tape.name("norm", name)
    scale = tape.parameter(f"{name}.scale", x.shape[-1:], "ones")
    shift = tape.parameter(f"{name}.shift", x.shape[-1:], "zeros")
    return tape.apply("LayerNormalization", x, scale, shift, name=name)


@checks_arguments
def batch_norm(x: Tensor, *, scale: str = "ones", name: str | None = None) -> Tensor:
    """Over everything but channels, with statistics of the batch; running ones are kept for later use.

    With a `scale` that starts at zeros, a block begins as what goes round it.
    """
    tape, channels = x.tape, x.shape[-1:]
    name = tape.name("norm", name)
    return tape.apply(
        "BatchNormalization",
        x,
        tape.parameter(f"{name}.scale", channels, scale),
        tape.parameter(f"{name}.shift", channels, "zeros"),
        tape.parameter(f"{name}.mean", channels, "zeros", role=Role.STATE),
        tape.parameter(f"{name}.variance", channels, "ones", role=Role.STATE),
        name=name,
        data_layout="NHWC",
        training_mode=1,
    )


@checks_arguments
def lstm(x: Tensor, units: int, *, name: str | None = None) -> Tensor:
    """The last hidden state after a sequence [batch, time, features]; the graph has a cell a step."""
    tape, half = x.tape, math.sqrt(1 / units)
    name = tape.name("lstm", name)
    w = tape.parameter(f"{name}.w", [4 * units, x.shape[-1]], "uniform", scale=half)
    r = tape.parameter(f"{name}.r", [4 * units, units], "uniform", scale=half)
    b = tape.parameter(f"{name}.b", [8 * units], "zeros")
    (last,) = tape.apply_many("LSTM", x, w, r, b, name=name, outputs=("", "last"), layout=1)
    return last.reshape(-1, units)


@checks_arguments
def embedding(index: Tensor, table: Tensor, *, name: str | None = None) -> Tensor:
    """A row of the table for each index."""
    return index.tape.apply("Gather", table, index, name=index.tape.name("embedding", name))


@checks_arguments
def upsample(x: Tensor, filters: int, *, name: str | None = None) -> Tensor:
    """Twice the height and width: each position becomes a block of 2x2."""
    tape, channels = x.tape, x.shape[-1]
    name = tape.name("upsample", name)
    weight = tape.parameter(
        f"{name}.weight", [channels, 2, 2, filters], "normal", scale=math.sqrt(2 / channels)
    )
    bias = tape.parameter(f"{name}.bias", [filters], "zeros")
    return tape.apply("ConvTranspose", x, weight, bias, name=name, data_layout="NHWC", strides=[2, 2])
