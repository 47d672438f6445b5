"""Kernels of bits. There is nothing to do backward: nothing asks for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step
from solver.executor.kernels.helpers.elementwise import forward_only

__all__ = ["KERNELS"]


def _shift_forward(call: Call) -> Step:
    function = np.left_shift if call.attributes["direction"] == "LEFT" else np.right_shift
    return forward_only(function).forward(call)


KERNELS: Mapping[str, Kernels] = {
    "BitwiseAnd": forward_only(np.bitwise_and),
    "BitwiseOr": forward_only(np.bitwise_or),
    "BitwiseXor": forward_only(np.bitwise_xor),
    "BitwiseNot": forward_only(np.bitwise_not),
    "BitShift": Kernels(_shift_forward, no_derivative),
}
