"""Kernels that find the largest elements, one after the other.

Elements become integers in the same order, so that one that has been taken can be told from minus infinity:
the bits of a float, those behind the sign inverted where it is negative (as radix sorts take them).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, present, run_all, with_small_buffers
from solver.graph.ops.ordering import Ranked, ranked
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    sizes = ranked(call.node)
    source = x.reshape(sizes.outer, sizes.size, sizes.inner)
    target = y.reshape(sizes.outer, -1, sizes.inner)
    parts = (slice(start, start + sizes.chunk) for start in range(0, sizes.outer, sizes.chunk))
    return with_small_buffers(run_all([_chunk(call, sizes, source[p], target[p]) for p in parts]))


def _chunk(call: Call, sizes: Ranked, source: Array, target: Array) -> Step:
    """A step that writes the places [outer, k, inner] of the first k elements of [outer, size, inner]."""
    count = source.shape[0] * sizes.inner
    scratch = {name: array[:count] for name, array in call.scratch.items()}
    keys, first, best, places = (scratch[name] for name in ("keys", "first", "best", "places"))
    by_row = keys.reshape(source.shape[0], sizes.inner, sizes.size)
    taken = np.iinfo(keys.dtype).min

    def run() -> None:
        _write_keys(source.swapaxes(1, 2), by_row, scratch.get("signs"))
        if not call.attributes["largest"]:
            np.invert(keys, out=keys)
        first.fill(sizes.size)
        first[0] = 0
        np.add.accumulate(first, out=first)
        for k in range(target.shape[1]):
            np.argmax(keys, axis=1, out=best)
            np.copyto(target[:, k], best.reshape(source.shape[0], sizes.inner))
            np.add(first, best, out=places)
            keys.reshape(-1).put(places, taken, mode="clip")

    return run


def _write_keys(source: Array, keys: Array, signs: Array | None) -> None:
    if signs is None:
        np.copyto(keys, source)
        return
    whole = keys.reshape(signs.shape)
    np.add(source, 0, out=keys.view(source.dtype))  # no negative zero
    np.right_shift(whole, 8 * whole.itemsize - 1, out=signs)
    np.bitwise_and(signs, np.iinfo(whole.dtype).max, out=signs)
    np.bitwise_xor(whole, signs, out=whole)


KERNELS: Mapping[str, Kernels] = {"ArgTopK": Kernels(_forward, no_derivative)}
