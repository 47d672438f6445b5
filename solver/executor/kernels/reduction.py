"""Kernels of the reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import (
    Step,
    block_views,
    bound,
    present,
    run_all,
    sum_steps,
    with_small_buffers,
)
from solver.graph.ops.reduction import kept_shape

__all__ = ["KERNELS"]


def _reduce(call: Call, function: np.ufunc) -> list[Step]:
    x, y = present(call.x[0], call.y[0])
    kept = y.reshape(kept_shape(call.node))
    return sum_steps(x, kept, call.scratch.get("partial"), function=function)


def _forward(function: np.ufunc) -> Callable[[Call], Step]:
    def prepare(call: Call) -> Step:
        return with_small_buffers(run_all(_reduce(call, function)))

    return prepare


def _sum_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return with_small_buffers(bound(np.copyto, dx, dy.reshape(kept_shape(call.node))))


def _mean_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    divide = bound(np.divide, y, x.size // y.size, out=y)
    return with_small_buffers(run_all([*_reduce(call, np.add), divide]))


def _mean_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    spread, count = dy.reshape(kept_shape(call.node)), dx.size // dy.size
    return with_small_buffers(bound(np.divide, spread, count, out=dx))


def _max_backward(call: Call) -> Step:
    """dX = (X == Y) dY / (number of X == Y), counted by blocks while dX holds the ones and zeros."""
    x, y, dy, dx = present(call.x[0], call.y[0], call.dy[0], call.dx[0])
    kept = kept_shape(call.node)
    share = call.scratch["share"].reshape(kept)
    steps = [
        bound(np.equal, x_part, y_part, out=dx_part)
        for x_part, y_part, dx_part in block_views(x.shape, (x, y.reshape(kept), dx))
    ]
    steps += sum_steps(dx, share, call.scratch["partial"])
    steps.append(bound(np.divide, dy.reshape(kept), share, out=share))
    for dx_part, share_part in block_views(x.shape, (dx, share)):
        steps.append(bound(np.multiply, dx_part, share_part, out=dx_part))
    return with_small_buffers(run_all(steps))


KERNELS: Mapping[str, Kernels] = {
    "ReduceMean": Kernels(_mean_forward, _mean_backward),
    "ReduceSum": Kernels(_forward(np.add), _sum_backward),
    "ReduceMax": Kernels(_forward(np.maximum), _max_backward),
}
