"""X times a gate that opens from 0 to 1 with X, and one-sided functions: values and slopes.

Functions are as the module `elementwise` takes them: (x, y, *scratch) forward, (source, factor, *scratch)
backward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from solver.executor.kernels.helpers.activation import apply_activation
from solver.executor.kernels.helpers.elementwise import Function
from solver.executor.kernels.helpers.erf import erf
from solver.graph.types import Array

__all__ = [
    "elu",
    "elu_slope",
    "gelu",
    "gelu_slope",
    "hard_sigmoid",
    "hard_sigmoid_slope",
    "hard_swish",
    "hard_swish_slope",
    "leaky_relu",
    "leaky_relu_slope",
    "swish",
    "swish_slope",
]

_Attributes = Mapping[str, Any]

# ------------------------------------------------------------------------------------------ one-sided


def leaky_relu(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(x: Array, y: Array, lower: Array) -> None:
        np.minimum(x, 0, out=lower)
        np.multiply(lower, alpha, out=lower)
        np.maximum(x, 0, out=y)
        np.add(y, lower, out=y)

    return run


def leaky_relu_slope(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(source: Array, factor: Array, mask: Array) -> None:
        np.greater(source, 0, out=mask)
        factor.fill(alpha)
        np.copyto(factor, 1, where=mask)

    return run


def elu(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(x: Array, y: Array, lower: Array) -> None:
        np.minimum(x, 0, out=lower)
        np.expm1(lower, out=lower)
        np.multiply(lower, alpha, out=lower)
        np.maximum(x, 0, out=y)
        np.add(y, lower, out=y)

    return run


def elu_slope(attributes: _Attributes) -> Function:
    """Y + alpha below 0 where Y is read, alpha exp(X) where X is."""
    alpha = float(attributes["alpha"])

    def of_output(y: Array, factor: Array, mask: Array) -> None:
        np.greater(y, 0, out=mask)
        np.add(y, alpha, out=factor)
        np.copyto(factor, 1, where=mask)

    def of_input(x: Array, factor: Array, mask: Array) -> None:
        np.greater(x, 0, out=mask)
        np.minimum(x, 0, out=factor)
        np.exp(factor, out=factor)
        np.multiply(factor, alpha, out=factor)
        np.copyto(factor, 1, where=mask)

    return of_output if alpha > 0 else of_input


def hard_sigmoid(attributes: _Attributes) -> Function:
    alpha, beta = float(attributes["alpha"]), float(attributes["beta"])

    def run(x: Array, y: Array) -> None:
        np.multiply(x, alpha, out=y)
        np.add(y, beta, out=y)
        np.clip(y, 0, 1, out=y)

    return run


def hard_sigmoid_slope(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(y: Array, factor: Array) -> None:
        # y (1 - y) is positive exactly inside (0, 1): one mask instead of two.
        np.subtract(1, y, out=factor)
        np.multiply(factor, y, out=factor)
        np.greater(factor, 0, out=factor)
        np.multiply(factor, alpha, out=factor)

    return run


# --------------------------------------------------------------------------------------------- gated


def hard_swish(x: Array, y: Array, gate: Array) -> None:
    np.divide(x, 6, out=gate)
    np.add(gate, 0.5, out=gate)
    np.clip(gate, 0, 1, out=gate)
    np.multiply(x, gate, out=y)


def hard_swish_slope(x: Array, factor: Array, mask: Array) -> None:
    """X / 3 + 1 / 2 between -3 and 3, 0 and 1 outside and at the ends."""
    np.divide(x, 3, out=factor)
    np.add(factor, 0.5, out=factor)
    np.less_equal(x, -3, out=mask)
    np.copyto(factor, 0, where=mask)
    np.greater_equal(x, 3, out=mask)
    np.copyto(factor, 1, where=mask)


def swish(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(x: Array, y: Array, gate: Array) -> None:
        np.multiply(x, alpha, out=gate)
        apply_activation("Sigmoid", gate)
        np.multiply(x, gate, out=y)

    return run


def swish_slope(attributes: _Attributes) -> Function:
    """s (1 + alpha X (1 - s)), where s is the gate."""
    alpha = float(attributes["alpha"])

    def run(x: Array, factor: Array, gate: Array) -> None:
        np.multiply(x, alpha, out=gate)
        apply_activation("Sigmoid", gate)
        np.subtract(1, gate, out=factor)
        np.multiply(factor, x, out=factor)
        np.multiply(factor, alpha, out=factor)
        np.add(factor, 1, out=factor)
        np.multiply(factor, gate, out=factor)

    return run


#: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
_CUBIC = 0.044715
_ROOT = math.sqrt(2 / math.pi)


def gelu(attributes: _Attributes) -> Function:
    return _gelu_tanh if attributes["approximate"] == "tanh" else _gelu_exact


def gelu_slope(attributes: _Attributes) -> Function:
    return _gelu_tanh_slope if attributes["approximate"] == "tanh" else _gelu_exact_slope


def _distribution(x: Array, out: Array, argument: Array, *work: Array) -> None:
    """The normal distribution function, (1 + erf(x / sqrt 2)) / 2."""
    np.multiply(x, math.sqrt(0.5), out=argument)
    erf(argument, out, *work)
    np.add(out, 1, out=out)
    np.multiply(out, 0.5, out=out)


def _gelu_exact(x: Array, y: Array, gate: Array, *work: Array) -> None:
    _distribution(x, gate, *work)
    np.multiply(x, gate, out=y)


def _gelu_exact_slope(x: Array, factor: Array, argument: Array, *work: Array) -> None:
    """The distribution function, and X times the density."""
    _distribution(x, factor, argument, *work)
    np.multiply(x, x, out=argument)
    np.multiply(argument, -0.5, out=argument)
    np.exp(argument, out=argument)
    np.multiply(argument, 1 / math.sqrt(2 * math.pi), out=argument)
    np.multiply(argument, x, out=argument)
    np.add(factor, argument, out=factor)


def _cubic_tanh(x: Array, square: Array, out: Array) -> None:
    """tanh(sqrt(2 / pi) (x + 0.044715 x^3)), given x^2."""
    np.multiply(square, _CUBIC * _ROOT, out=out)
    np.add(out, _ROOT, out=out)
    np.multiply(out, x, out=out)
    np.tanh(out, out=out)


def _gelu_tanh(x: Array, y: Array, gate: Array) -> None:
    np.multiply(x, x, out=gate)
    _cubic_tanh(x, gate, gate)
    np.add(gate, 1, out=gate)
    np.multiply(gate, 0.5, out=gate)
    np.multiply(x, gate, out=y)


def _gelu_tanh_slope(x: Array, factor: Array, slope: Array, square: Array) -> None:
    """(1 + t) / 2 + X (1 - t^2) u' / 2, where t = tanh(u)."""
    np.multiply(x, x, out=square)
    _cubic_tanh(x, square, factor)
    np.multiply(square, 3 * _CUBIC * _ROOT, out=slope)
    np.add(slope, _ROOT, out=slope)
    np.multiply(slope, x, out=slope)
    np.multiply(factor, factor, out=square)
    np.subtract(1, square, out=square)
    np.multiply(slope, square, out=slope)
    np.add(factor, slope, out=factor)
    np.add(factor, 1, out=factor)
    np.multiply(factor, 0.5, out=factor)
