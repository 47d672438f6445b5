"""Kernels that copy elements to other places."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels._blocks import Step, bound, present, run_all, sum_steps, with_small_buffers
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops.movement import padding
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _flat_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    return bound(np.copyto, y.reshape(-1), x.reshape(-1))


def _flat_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return bound(np.copyto, dx.reshape(-1), dy.reshape(-1))


def _transpose_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    return bound(np.copyto, y, x.transpose(call.attributes["perm"]))


def _transpose_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return bound(np.copyto, dx.transpose(call.attributes["perm"]), dy)


def _inside(call: Call, padded: Array) -> Array:
    """The part of a padded array that holds the input."""
    sizes = call.node.input(0).shape
    pairs = zip(sizes, padding(call.node), strict=True)
    return padded[tuple(slice(before, before + size) for size, (before, _) in pairs)]


def _borders(call: Call, padded: Array) -> list[Array]:
    """Disjoint views that cover the padding, so that no element is written twice."""
    views: list[Array] = []
    left: list[slice] = []
    for size, (before, after) in zip(call.node.input(0).shape, padding(call.node), strict=True):
        borders = (slice(0, before), slice(before + size, before + size + after))
        views += [padded[(*left, border)] for border in borders if border.stop > border.start]
        left.append(slice(before, before + size))
    return views


def _pad_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    given = call.x[2] if len(call.x) > 2 else None
    value = (call.attributes["constant_value"] or 0.0) if given is None else given.reshape(())
    inside, borders = _inside(call, y), _borders(call, y)

    def run() -> None:
        for border in borders:
            np.copyto(border, value, casting="unsafe")
        np.copyto(inside, x)

    return run


def _pad_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return bound(np.copyto, dx, _inside(call, dy))


def _expand_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    return with_small_buffers(bound(np.copyto, y, x))


def _expand_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return with_small_buffers(run_all(sum_steps(dy, dx, call.scratch.get("partial"))))


def _cast_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    return with_small_buffers(bound(np.copyto, y, x, casting="unsafe"))


def _cast_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return with_small_buffers(bound(np.copyto, dx, dy))


_FLAT = Kernels(_flat_forward, _flat_backward)

KERNELS: Mapping[str, Kernels] = {
    "Reshape": _FLAT,
    "Flatten": _FLAT,
    "Squeeze": _FLAT,
    "Unsqueeze": _FLAT,
    "Transpose": Kernels(_transpose_forward, _transpose_backward),
    "Pad": Kernels(_pad_forward, _pad_backward),
    "Expand": Kernels(_expand_forward, _expand_backward),
    "Cast": Kernels(_cast_forward, _cast_backward),
}
