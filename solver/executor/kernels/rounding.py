"""Kernels of functions that are constant almost everywhere. Nothing asks for them backward."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.errors import InternalError
from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present

__all__ = ["KERNELS"]


def _no_derivative(call: Call) -> Step:
    raise InternalError(f"Operation {call.node.operation.id!r} has no derivative.")


def _rounding(function: np.ufunc) -> Kernels:
    def forward(call: Call) -> Step:
        x, y = present(call.x[0], call.y[0])
        return bound(function, x, out=y)

    return Kernels(forward, _no_derivative)


KERNELS: Mapping[str, Kernels] = {
    "Floor": _rounding(np.floor),
    "Ceil": _rounding(np.ceil),
    "Round": _rounding(np.rint),
    "Sign": _rounding(np.sign),
}
