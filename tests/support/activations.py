"""The activations an operator may fuse, in plain NumPy, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from solver.graph.types import Array

__all__ = ["PLAIN_ACTIVATIONS"]

PLAIN_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "None": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0),
    "Relu6": lambda x: np.clip(x, 0, 6),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}
