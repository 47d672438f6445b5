"""Kernels of comparisons. There is nothing to do backward: nothing asks for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Kernels
from solver.executor.kernels.helpers.elementwise import forward_only

__all__ = ["KERNELS"]


KERNELS: Mapping[str, Kernels] = {
    "Equal": forward_only(np.equal),
    "Greater": forward_only(np.greater),
    "GreaterOrEqual": forward_only(np.greater_equal),
    "Less": forward_only(np.less),
    "LessOrEqual": forward_only(np.less_equal),
    "And": forward_only(np.logical_and),
    "Or": forward_only(np.logical_or),
    "Not": forward_only(np.logical_not),
    "IsNaN": forward_only(np.isnan),
}
