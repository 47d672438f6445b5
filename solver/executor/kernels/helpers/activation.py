"""Activations that an operator applies to its own output, and their derivative read back from it.

Every function works in place or into memory given to it; nothing of tensor size is allocated
(NumPy's iterator may reserve 8192 elements an operand where strides do not merge).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from solver.graph.types import Array

__all__ = ["activation_derivative", "apply_activation"]

#: Upper end of Relu6 (Krizhevsky, "Convolutional deep belief networks on CIFAR-10", 2010).
_SIX = 6.0


def apply_activation(name: str, y: Array) -> None:
    """Overwrite `y` with the activation of it; ``"None"`` leaves it alone."""
    _FORWARD[name](y)


def activation_derivative(name: str, y: Array, dy: Array, out: Array) -> None:
    """Write ``dy * act'(y)`` to `out`, where `y` is the activation's output, not its input.

    `out` may be `dy` itself for ``"None"`` only; otherwise it overlaps neither `y` nor `dy`. At
    the kinks of Relu and Relu6 the derivative is 0.
    """
    _DERIVATIVE[name](y, dy, out)


def _sigmoid(y: Array) -> None:
    # exp overflows to infinity for very negative y, whose reciprocal is the right answer, 0.
    with np.errstate(over="ignore"):
        np.multiply(y, -1, out=y)  # np.negative in place is wrong for some strides (NumPy 2.4)
        np.exp(y, out=y)
        np.add(y, 1, out=y)
        np.reciprocal(y, out=y)


def _none_derivative(y: Array, dy: Array, out: Array) -> None:
    del y
    if out is not dy:
        np.copyto(out, dy)


def _relu_derivative(y: Array, dy: Array, out: Array) -> None:
    np.greater(y, 0, out=out)
    np.multiply(out, dy, out=out)


def _relu6_derivative(y: Array, dy: Array, out: Array) -> None:
    # y (6 - y) is positive exactly inside (0, 6): one mask instead of two.
    np.subtract(_SIX, y, out=out)
    np.multiply(out, y, out=out)
    np.greater(out, 0, out=out)
    np.multiply(out, dy, out=out)


def _sigmoid_derivative(y: Array, dy: Array, out: Array) -> None:
    np.subtract(1, y, out=out)
    np.multiply(out, y, out=out)
    np.multiply(out, dy, out=out)


def _tanh_derivative(y: Array, dy: Array, out: Array) -> None:
    np.multiply(y, y, out=out)
    np.subtract(1, out, out=out)
    np.multiply(out, dy, out=out)


_FORWARD: Mapping[str, Callable[[Array], object]] = {
    "None": lambda y: None,
    "Relu": lambda y: np.maximum(y, 0, out=y),
    "Relu6": lambda y: np.clip(y, 0, _SIX, out=y),
    "Sigmoid": _sigmoid,
    "Tanh": lambda y: np.tanh(y, out=y),
}
_DERIVATIVE: Mapping[str, Callable[[Array, Array, Array], None]] = {
    "None": _none_derivative,
    "Relu": _relu_derivative,
    "Relu6": _relu6_derivative,
    "Sigmoid": _sigmoid_derivative,
    "Tanh": _tanh_derivative,
}
