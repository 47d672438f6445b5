"""Kernels of functions that are constant almost everywhere. Nothing asks for them backward."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Kernels
from solver.executor.kernels.helpers.elementwise import forward_only

__all__ = ["KERNELS"]


KERNELS: Mapping[str, Kernels] = {
    "Floor": forward_only(np.floor),
    "Ceil": forward_only(np.ceil),
    "Round": forward_only(np.rint),
    "Sign": forward_only(np.sign),
}
