"""The error function, vectorised and without allocation.

W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23
(1969): a rational function of x^2 up to |x| = 15/32, and beyond it 1 - exp(-x^2) times a rational function
of |x|. The latter is meant for |x| <= 4; until 6 its error is far below what is left of erf in float64, and
from there on erf is 1. The largest error in float64 is 2.3e-16.
"""

from __future__ import annotations

import numpy as np

from solver.graph.types import Array

__all__ = ["erf"]

_INNER_END = 15 / 32
_END = 6.0

# Highest power first.
_INNER_TOP = (
    1.85777706184603153e-1,
    3.16112374387056560,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_INNER_BOTTOM = (
    1.0,
    2.36012909523441209e1,
    2.44024637934444173e2,
    1.28261652607737228e3,
    2.84423683343917062e3,
)
_OUTER_TOP = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_OUTER_BOTTOM = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)


def erf(x: Array, out: Array, square: Array, inner: Array, work: Array, mask: Array) -> None:
    """Write erf(x) to `out`. All arrays have one shape and share no memory; `mask` is bool."""
    np.abs(x, out=out)
    np.minimum(out, _END, out=out)
    np.multiply(out, out, out=square)
    _polynomial(_INNER_TOP, square, inner)
    np.multiply(inner, out, out=inner)
    _polynomial(_INNER_BOTTOM, square, work)
    np.divide(inner, work, out=inner)
    np.multiply(square, -1, out=square)
    np.exp(square, out=square)
    _polynomial(_OUTER_TOP, out, work)
    np.multiply(square, work, out=square)
    _polynomial(_OUTER_BOTTOM, out, work)
    np.divide(square, work, out=square)
    np.subtract(1, square, out=square)
    np.greater(out, _INNER_END, out=mask)
    np.copyto(inner, square, where=mask)
    np.copysign(inner, x, out=out)


def _polynomial(coefficients: tuple[float, ...], x: Array, out: Array) -> None:
    """Horner's rule."""
    first, second, *others = coefficients
    np.multiply(x, first, out=out)
    np.add(out, second, out=out)
    for coefficient in others:
        np.multiply(out, x, out=out)
        np.add(out, coefficient, out=out)
