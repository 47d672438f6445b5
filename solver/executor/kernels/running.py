"""Kernels of running sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, present
from solver.graph.ops.running import summed_axis
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _running(call: Call, source: Array, target: Array, *, backward: bool) -> Step:
    """Along the axis as the middle one of three; from the end is from the start of a view that goes back."""
    axis, shape = summed_axis(call.node), source.shape
    flat = (-1, shape[axis], int(np.prod(shape[axis + 1 :])))
    read, written = source.reshape(flat), target.reshape(flat)
    if bool(call.attributes["reverse"]) is not backward:
        read, written = read[:, ::-1], written[:, ::-1]
    exclusive = bool(call.attributes["exclusive"])
    first, rest = (written[:, :1], written[:, 1:]) if exclusive else (None, written)
    summed = read[:, :-1] if exclusive else read

    def run() -> None:
        if first is not None:
            first[...] = 0
        np.add.accumulate(summed, axis=1, out=rest)

    return run


KERNELS: Mapping[str, Kernels] = {
    "CumSum": Kernels(
        lambda call: _running(call, *present(call.x[0], call.y[0]), backward=False),
        lambda call: _running(call, *present(call.dy[0], call.dx[0]), backward=True),
    )
}
