"""Kernels of bits. There is nothing to do backward: nothing asks for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, bound, present, with_small_buffers

__all__ = ["KERNELS"]


def _of_bits(function: np.ufunc) -> Kernels:
    def forward(call: Call) -> Step:
        operands, (y,) = present(*call.x), present(call.y[0])
        return with_small_buffers(bound(function, *operands, out=y))

    return Kernels(forward, no_derivative)


def _shift_forward(call: Call) -> Step:
    function = np.left_shift if call.attributes["direction"] == "LEFT" else np.right_shift
    return _of_bits(function).forward(call)


KERNELS: Mapping[str, Kernels] = {
    "BitwiseAnd": _of_bits(np.bitwise_and),
    "BitwiseOr": _of_bits(np.bitwise_or),
    "BitwiseXor": _of_bits(np.bitwise_xor),
    "BitwiseNot": _of_bits(np.bitwise_not),
    "BitShift": Kernels(_shift_forward, no_derivative),
}
