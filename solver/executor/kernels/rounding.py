"""Kernels of functions that are constant almost everywhere. Nothing asks for them backward."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, bound, present

__all__ = ["KERNELS"]


def _rounding(function: np.ufunc) -> Kernels:
    def forward(call: Call) -> Step:
        x, y = present(call.x[0], call.y[0])
        return bound(function, x, out=y)

    return Kernels(forward, no_derivative)


KERNELS: Mapping[str, Kernels] = {
    "Floor": _rounding(np.floor),
    "Ceil": _rounding(np.ceil),
    "Round": _rounding(np.rint),
    "Sign": _rounding(np.sign),
}
