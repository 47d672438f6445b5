"""Kernels of the transposed convolution: those of the convolution from Y to X, run the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.convolution import convolve, spread, weigh
from solver.executor.kernels.helpers.blocks import Step, bound, optional, present, run_all, with_small_buffers
from solver.executor.kernels.helpers.windows import channels_last
from solver.graph.ops.upsampling import transposed

__all__ = ["KERNELS"]

X, W, B = 0, 1, 2


def _forward(call: Call) -> Step:
    """Y is what the convolution calls the derivative of its input, X that of its output."""
    conv = transposed(call.node)
    x, w, y = present(call.x[X], call.x[W], call.y[0])
    steps = spread(replace(call, x=(None, w), y=(), dy=(x,), dx=(y, None)), conv)
    bias = optional(call.x, B)
    if bias is not None:
        images = channels_last(y, conv.window.layout)
        steps.append(bound(np.add, images, bias, out=images))
    return with_small_buffers(run_all(steps))


def _backward(call: Call) -> Step:
    """dX is the convolution of dY; dW takes dY for the images and X for the derivative."""
    conv = transposed(call.node)
    (dy,) = present(call.dy[0])
    dx, dw, db = (optional(call.dx, i) for i in (X, W, B))
    steps: list[Step] = []
    if dw is not None:
        steps += weigh(replace(call, x=(dy, None), y=(), dy=(call.x[X],), dx=(None, dw)), conv)
    if dx is not None:
        steps += convolve(replace(call, x=(dy, call.x[W]), y=(dx,), dy=(), dx=()), conv)
    if db is not None:
        images = channels_last(dy, conv.window.layout)
        steps.append(bound(np.add.reduce, images, axis=tuple(range(images.ndim - 1)), out=db))
    return with_small_buffers(run_all(steps))


KERNELS: Mapping[str, Kernels] = {"ConvTranspose": Kernels(_forward, _backward)}
