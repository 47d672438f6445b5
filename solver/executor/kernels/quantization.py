"""Kernels of quantisation: by blocks, each widened to floats and narrowed again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, block_views, present, staging, with_small_buffers
from solver.graph.ops.quantization import scaled
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _views(call: Call) -> list[tuple[Array, ...]]:
    """Blocks of X and Y with their scales, and zero points if X has them."""
    x, y, scale = present(call.x[0], call.y[0], call.x[1])
    shapes = scaled(call.node)
    arrays = [x.reshape(shapes.data), y.reshape(shapes.data), scale.reshape(shapes.scale)]
    if len(call.x) > 2 and call.x[2] is not None:
        arrays.append(call.x[2].reshape(shapes.zero(call.node.input(2))))
    return list(block_views(shapes.data, arrays))


def _dequantize(call: Call) -> Step:
    views = _views(call)

    def run() -> None:
        for x, y, scale, *zero in views:
            if zero:
                np.subtract(x, zero[0], out=y, dtype=y.dtype, casting="unsafe")
            else:
                np.copyto(y, x, casting="unsafe")
            np.multiply(y, scale, out=y)

    return with_small_buffers(run)


def _quantize(call: Call) -> Step:
    parts = [(staging(call.scratch["quotient"], views[0].shape), *views) for views in _views(call)]
    magnitudes = call.scratch.get("magnitude")
    limits = np.iinfo(call.node.outputs[0].dtype.numpy)

    def run() -> None:
        for quotient, x, y, scale, *zero in parts:
            np.divide(x, scale, out=quotient, dtype=x.dtype)
            if magnitudes is None:
                np.rint(quotient, out=quotient)
            else:
                _round_away(quotient, staging(magnitudes, quotient.shape))
            if zero:
                np.add(quotient, zero[0], out=quotient)
            np.fmax(quotient, limits.min, out=quotient)
            np.minimum(quotient, limits.max, out=quotient)
            np.copyto(y, quotient, casting="unsafe")

    return with_small_buffers(run)


def _round_away(values: Array, magnitude: Array) -> None:
    """Rounds to the nearest whole number, halves away from zero; exact, as the values come from float32."""
    np.abs(values, out=magnitude)
    np.add(magnitude, 0.5, out=magnitude)
    np.floor(magnitude, out=magnitude)
    np.copysign(magnitude, values, out=values)


KERNELS: Mapping[str, Kernels] = {
    "DequantizeLinear": Kernels(_dequantize, no_derivative),
    "QuantizeLinear": Kernels(_quantize, no_derivative),
}
