"""Kernels of the reductions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels._blocks import Step, bound, present, run_all, sum_steps, with_small_buffers
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops.reduction import kept_shape

__all__ = ["KERNELS"]


def _mean_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    steps = sum_steps(x, y.reshape(kept_shape(call.node)), call.scratch.get("partial"))
    count = x.size // y.size
    return with_small_buffers(run_all([*steps, bound(np.divide, y, count, out=y)]))


def _mean_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    spread, count = dy.reshape(kept_shape(call.node)), dx.size // dy.size
    return with_small_buffers(bound(np.divide, spread, count, out=dx))


KERNELS: Mapping[str, Kernels] = {"ReduceMean": Kernels(_mean_forward, _mean_backward)}
