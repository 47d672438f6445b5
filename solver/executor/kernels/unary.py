"""Kernels of functions of one operand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present
from solver.executor.kernels.helpers.elementwise import Function, elementwise, fixed
from solver.executor.kernels.helpers.erf import erf
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _ufunc(function: np.ufunc) -> Function:
    def run(x: Array, y: Array) -> None:
        function(x, out=y)

    return run


def _minus_square(y: Array, factor: Array) -> None:
    np.multiply(y, y, out=factor)
    np.multiply(factor, -1, out=factor)


def _erf_slope(x: Array, factor: Array) -> None:
    """2 / sqrt(pi) exp(-x^2)."""
    np.multiply(x, x, out=factor)
    np.multiply(factor, -1, out=factor)
    np.exp(factor, out=factor)
    np.multiply(factor, 2 / math.sqrt(math.pi), out=factor)


def _minus_sine(x: Array, factor: Array) -> None:
    np.sin(x, out=factor)
    np.multiply(factor, -1, out=factor)


def _logistic(x: Array, factor: Array) -> None:
    """1 / (1 + exp(-x)) as (1 + tanh(x / 2)) / 2, which does not overflow."""
    np.multiply(x, 0.5, out=factor)
    np.tanh(factor, out=factor)
    np.multiply(factor, 0.5, out=factor)
    np.add(factor, 0.5, out=factor)


def _inverse_slope(sign: int, constant: int, *, root: bool, negated: bool = False) -> Function:
    """1 / (constant + sign * x^2), or 1 / sqrt of it: slopes of inverse sines, cosines, tangents."""

    def run(x: Array, factor: Array) -> None:
        np.multiply(x, x, out=factor)
        np.multiply(factor, sign, out=factor)
        np.add(factor, constant, out=factor)
        if root:
            np.sqrt(factor, out=factor)
        np.divide(-1 if negated else 1, factor, out=factor)

    return run


def _negated(source: Array | None, target: Array | None) -> Step:
    # np.negative is wrong for some strides (NumPy 2.4).
    read, written = present(source, target)
    return bound(np.multiply, read, -1, out=written)


KERNELS: Mapping[str, Kernels] = {
    "Exp": elementwise(fixed(_ufunc(np.exp)), fixed(lambda y, factor: np.copyto(factor, y))),
    "Log": elementwise(fixed(_ufunc(np.log)), fixed(_ufunc(np.reciprocal))),
    "Sqrt": elementwise(fixed(_ufunc(np.sqrt)), fixed(lambda y, factor: np.divide(0.5, y, out=factor))),
    "Reciprocal": elementwise(fixed(_ufunc(np.reciprocal)), fixed(_minus_square)),
    "Neg": Kernels(
        lambda call: _negated(call.x[0], call.y[0]), lambda call: _negated(call.dy[0], call.dx[0])
    ),
    "Abs": elementwise(fixed(_ufunc(np.abs)), fixed(_ufunc(np.sign))),
    "Erf": elementwise(fixed(erf), fixed(_erf_slope)),
    "Sin": elementwise(fixed(_ufunc(np.sin)), fixed(_ufunc(np.cos))),
    "Cos": elementwise(fixed(_ufunc(np.cos)), fixed(_minus_sine)),
    "Softplus": elementwise(fixed(lambda x, y: np.logaddexp(x, 0, out=y)), fixed(_logistic)),
    "Asin": elementwise(fixed(_ufunc(np.arcsin)), fixed(_inverse_slope(-1, 1, root=True))),
    "Acos": elementwise(fixed(_ufunc(np.arccos)), fixed(_inverse_slope(-1, 1, root=True, negated=True))),
    "Atan": elementwise(fixed(_ufunc(np.arctan)), fixed(_inverse_slope(1, 1, root=False))),
    "Asinh": elementwise(fixed(_ufunc(np.arcsinh)), fixed(_inverse_slope(1, 1, root=True))),
    "Acosh": elementwise(fixed(_ufunc(np.arccosh)), fixed(_inverse_slope(1, -1, root=True))),
    "Atanh": elementwise(fixed(_ufunc(np.arctanh)), fixed(_inverse_slope(-1, 1, root=False))),
}
