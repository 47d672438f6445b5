"""Kernels of comparisons. There is nothing to do backward: nothing asks for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, bound, present, with_small_buffers

__all__ = ["KERNELS"]


def _truth(function: np.ufunc) -> Kernels:
    def forward(call: Call) -> Step:
        operands, (y,) = present(*call.x), present(call.y[0])
        return with_small_buffers(bound(function, *operands, out=y))

    return Kernels(forward, no_derivative)


KERNELS: Mapping[str, Kernels] = {
    "Equal": _truth(np.equal),
    "Greater": _truth(np.greater),
    "GreaterOrEqual": _truth(np.greater_equal),
    "Less": _truth(np.less),
    "LessOrEqual": _truth(np.less_equal),
    "And": _truth(np.logical_and),
    "Or": _truth(np.logical_or),
    "Not": _truth(np.logical_not),
    "IsNaN": _truth(np.isnan),
}
