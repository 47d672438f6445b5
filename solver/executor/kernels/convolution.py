"""Kernels of the convolution."""

from __future__ import annotations

from collections.abc import Mapping

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, run_all, with_small_buffers
from solver.executor.kernels.helpers.convolve import convolve, spread, weigh
from solver.executor.kernels.helpers.inner import optional
from solver.graph.ops.convolution import convolution

__all__ = ["KERNELS"]

X, W, B = 0, 1, 2


def _forward(call: Call) -> Step:
    return with_small_buffers(run_all(convolve(call, convolution(call.node))))


def _backward(call: Call) -> Step:
    conv = convolution(call.node)
    steps: list[Step] = []
    if optional(call.dx, W) is not None or optional(call.dx, B) is not None:
        steps += weigh(call, conv)
    if optional(call.dx, X) is not None:
        steps += spread(call, conv)
    return with_small_buffers(run_all(steps))


KERNELS: Mapping[str, Kernels] = {"Conv": Kernels(_forward, _backward)}
