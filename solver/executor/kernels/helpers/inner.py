"""Bias and activation behind the sums of a convolution, and dZ and dB on the way back.

dZ, the derivative before the fused activation, is computed chunk by chunk into scratch; without an
activation it is dY itself.
"""

from __future__ import annotations

import numpy as np

from solver.executor.kernels.base import Call
from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.executor.kernels.helpers.blocks import Step, bound, present
from solver.executor.kernels.helpers.windows import (
    carve,
    channels_last,
    chunk,
    chunk_source,
    fill_source,
    source_shape,
)
from solver.graph.ops.convolution import Convolution
from solver.graph.ops.helpers.spatial import Part
from solver.graph.types import Array

__all__ = ["bias_steps", "finish", "inner", "inner_source", "optional"]

_BIAS = 2


def optional(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    """The array at `position`, or nothing where it was left out."""
    return arrays[position] if position < len(arrays) else None


def finish(call: Call, conv: Convolution, y: Array) -> list[Step]:
    """Steps that add the bias to a chunk of Y seen channels last and apply the activation."""
    bias, name = optional(call.x, _BIAS), conv.activation
    steps = [] if bias is None else [bound(np.add, y, bias, out=y)]
    return steps if name == "None" else [*steps, bound(apply_activation, name, y)]


def inner(call: Call, conv: Convolution, part: Part) -> tuple[Array, list[Step]]:
    """dZ of a part seen channels last, and the steps that write it."""
    layout = conv.window.layout
    dy = chunk(channels_last(present(call.dy[0])[0], layout), part)
    if not conv.is_fused:
        return dy, []
    y = chunk(channels_last(present(call.y[0])[0], layout), part)
    dz = carve(call.scratch["inner"], layout, dy.shape[0], dy.shape[1:-1], conv.filters)
    return dz, [bound(activation_derivative, conv.activation, y, dy, dz)]


def inner_source(call: Call, conv: Convolution, part: Part) -> tuple[Array, list[Step]]:
    """dZ as far as the flipped windows of a part of dX look at it, zeros where they leave it."""
    window, layout = conv.transposed, conv.window.layout
    dy = channels_last(present(call.dy[0])[0], layout)
    if not conv.is_fused:
        return chunk_source(window, part, dy, call.scratch)
    y = channels_last(present(call.y[0])[0], layout)
    shape = source_shape(window.axes, part.rows)
    target = carve(call.scratch["source"], layout, part.examples, shape, window.channels)

    def derive(region: tuple[slice, ...], inside: Array) -> Step:
        return bound(activation_derivative, conv.activation, y[region], dy[region], inside)

    return target, fill_source(window, part, target, derive)


def bias_steps(call: Call, dz: Array, *, first: bool) -> list[Step]:
    """Steps that add the sum of a chunk of dZ, seen channels last, to dB, if the step computes it."""
    db = optional(call.dx, _BIAS)
    if db is None:
        return []
    axes = tuple(range(dz.ndim - 1))
    if first:
        return [bound(np.add.reduce, dz, axis=axes, out=db)]
    partial = call.scratch["partial_bias"]
    return [bound(np.add.reduce, dz, axis=axes, out=partial), bound(np.add, db, partial, out=db)]
