"""Conversions between float32 and the types of storage: rounding to nearest, ties to even."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from solver.graph.ops.base import Node
from solver.graph.types import Array, DType

__all__ = ["prepare_conversion"]

#: Rounding of a bfloat16: added, with the last bit that stays, before the lower half is dropped.
_HALF = np.uint32(0x7FFF)

#: Set in every NaN, so that one whose bits are all in the lower half does not become infinite.
_QUIET = np.uint32(0x0040)


def prepare_conversion(node: Node, arrays: Mapping[str, Array]) -> Callable[[], None]:
    """The step that writes ``y0`` from ``x0``, C-contiguous arrays of one shape.

    float16 beyond its range becomes infinite, as IEEE 754 rounds; bfloat16 has the range of float32. A
    bfloat16 is made in blocks of the scratch ``bits`` (int32) and ``nan`` (bool); nothing else is allocated.
    """
    source, target = arrays["x0"], arrays["y0"]
    wide, narrow = node.input(0).dtype, node.outputs[0].dtype
    if DType.BFLOAT16 not in (wide, narrow):
        return partial(np.copyto, target, source, casting="unsafe")
    if wide is DType.BFLOAT16:
        return partial(_widen, source.reshape(-1), target.reshape(-1).view(np.uint32))
    return partial(
        _narrow,
        source.reshape(-1).view(np.uint32),
        target.reshape(-1),
        arrays["bits"].view(np.uint32),
        arrays["nan"],
    )


def _widen(source: Array, target: Array) -> None:
    np.copyto(target, source)
    np.left_shift(target, 16, out=target)


def _narrow(source: Array, target: Array, bits: Array, nan: Array) -> None:
    size = bits.size
    for start in range(0, source.size, size):
        part = source[start : start + size]
        work, missing = bits[: part.size], nan[: part.size]
        np.right_shift(part, 16, out=work)
        np.bitwise_and(work, 1, out=work)
        np.add(work, _HALF, out=work)
        np.add(work, part, out=work)
        np.right_shift(work, 16, out=work)
        np.copyto(target[start : start + size], work, casting="same_kind")
        np.isnan(part.view(np.float32), out=missing)
        if missing.any():
            np.right_shift(part, 16, out=work)
            np.bitwise_or(work, _QUIET, out=work)
            np.copyto(target[start : start + size], work, casting="same_kind", where=missing)
