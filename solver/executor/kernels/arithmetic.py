"""Kernels of binary arithmetic with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.activation import apply_activation
from solver.executor.kernels.helpers.blocks import Step, present, with_small_buffers
from solver.executor.kernels.helpers.broadcast import Parts, broadcast_backward, same
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _negated(parts: Parts, out: Array) -> None:
    np.multiply(parts.dz, -1, out=out)  # np.negative is wrong for some strides (NumPy 2.4)


def _with_operand(function: np.ufunc, position: int) -> Callable[[Parts, Array], None]:
    """dZ multiplied with an operand, or divided by it."""

    def run(parts: Parts, out: Array) -> None:
        function(parts.dz, parts.x[position], out=out)

    return run


def _quotient_right(parts: Parts, out: Array) -> None:
    """-dZ A / B^2, dividing twice: B^2 may underflow where the quotient does not."""
    left, right = parts.x
    np.divide(parts.dz, right, out=out)
    np.divide(out, right, out=out)
    np.multiply(out, left, out=out)
    np.multiply(out, -1, out=out)


def _power_base(parts: Parts, out: Array) -> None:
    """dZ B A^(B - 1). Where B is 0 that is 0, for any A: the exponent is taken as 0 there, not as -1."""
    base, exponent = parts.x
    np.equal(exponent, 0, out=out)
    np.add(out, exponent, out=out)
    np.subtract(out, 1, out=out)
    np.power(base, out, out=out)
    np.multiply(out, exponent, out=out)
    np.multiply(out, parts.dz, out=out)


def _power_exponent(parts: Parts, out: Array) -> None:
    """dZ Y log A. Where A is 0 its logarithm is taken as 0, so that Y = 0 has the slope 0."""
    np.equal(parts.x[0], 0, out=out)
    np.add(out, parts.x[0], out=out)
    np.log(out, out=out)
    np.multiply(out, parts.y, out=out)
    np.multiply(out, parts.dz, out=out)


def _forward(function: np.ufunc) -> Callable[[Call], Step]:
    def prepare(call: Call) -> Step:
        a, b, y = present(call.x[0], call.x[1], call.y[0])
        activation = call.attributes.get("activation", "None")

        def run() -> None:
            function(a, b, out=y)
            apply_activation(activation, y)

        return with_small_buffers(run)

    return prepare


KERNELS: Mapping[str, Kernels] = {
    "Add": Kernels(_forward(np.add), broadcast_backward(same, same)),
    "Sub": Kernels(_forward(np.subtract), broadcast_backward(same, _negated)),
    "Mul": Kernels(
        _forward(np.multiply),
        broadcast_backward(_with_operand(np.multiply, 1), _with_operand(np.multiply, 0)),
    ),
    "Div": Kernels(_forward(np.divide), broadcast_backward(_with_operand(np.divide, 1), _quotient_right)),
    "Pow": Kernels(_forward(np.power), broadcast_backward(_power_base, _power_exponent)),
}
