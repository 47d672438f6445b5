"""Kernels that copy elements to other places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import (
    Step,
    bound,
    cuts,
    present,
    run_all,
    sum_into,
    sum_steps,
    with_small_buffers,
)
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


def _part(array: Array, index: Iterable[slice]) -> Array:
    """A view; of a scalar, too, where indexing with nothing makes a number."""
    whole: tuple[Any, ...] = (*index, ...)
    part: Array = array[whole]
    return part


def _inside(call: Call, padded: Array) -> Array:
    """The part of a padded array that holds the input."""
    sizes = call.node.input(0).shape
    pairs = zip(sizes, padding(call.node), strict=True)
    return _part(padded, (slice(before, before + size) for size, (before, _) in pairs))


def _borders(call: Call, padded: Array) -> list[Array]:
    """Disjoint views that cover the padding, so that no element is written twice."""
    views: list[Array] = []
    left: list[slice] = []
    for size, (before, after) in zip(call.node.input(0).shape, padding(call.node), strict=True):
        borders = (slice(0, before), slice(before + size, before + size + after))
        views += [padded[(*left, border)] for border in borders if border.stop > border.start]
        left.append(slice(before, before + size))
    return views


def _repeats(mode: str, size: int, before: int, after: int) -> list[tuple[slice, slice]]:
    """(place in Y, what of X stands there) along an axis: what is inside first, then each border."""
    behind = before + size
    if mode == "edge":
        sources = (slice(0, 1), slice(size - 1, size))
    elif mode == "reflect":
        stop = size - 2 - after
        sources = (slice(before, 0, -1), slice(size - 2, stop if stop >= 0 else None, -1))
    else:
        sources = (slice(size - before, size), slice(0, after))
    borders = zip((slice(0, before), slice(behind, behind + after)), sources, strict=True)
    return [(slice(before, behind), slice(0, size)), *(b for b in borders if b[0].stop > b[0].start)]


def _regions(call: Call, padded: Array, data: Array) -> Iterator[tuple[Array, Array]]:
    """Disjoint views that cover a padded array, each with the view of the data that it repeats.

    The first is the data itself; along an edge the view of the data has a single element.
    """
    pairs = zip(call.node.input(0).shape, padding(call.node), strict=True)
    for parts in product(*(_repeats(call.attributes["mode"], size, *pads) for size, pads in pairs)):
        yield _part(padded, (place for place, _ in parts)), _part(data, (source for _, source in parts))


def _pad_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    if call.attributes["mode"] != "constant":
        return run_all([bound(np.copyto, place, source) for place, source in _regions(call, y, x)])
    fill = call.x[2] if len(call.x) > 2 else None
    value = (call.attributes["constant_value"] or 0.0) if fill is None else fill.reshape(())
    inside, borders = _inside(call, y), _borders(call, y)

    def run() -> None:
        for border in borders:
            np.copyto(border, value, casting="unsafe")
        np.copyto(inside, x)

    return run


def _pad_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    if call.attributes["mode"] == "constant":
        return bound(np.copyto, dx, _inside(call, dy))
    (inside, _), *borders = _regions(call, dy, dx)
    steps = [bound(np.copyto, dx, inside)]
    for border, target in borders:
        for index in cuts(target.shape):
            part = border[
                tuple(slice(None) if size == 1 else i for size, i in zip(target.shape, index, strict=True))
            ]
            steps.append(sum_into(part, target[index], call.scratch.get("partial"), first=False))
    return with_small_buffers(run_all(steps))


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
    "StopGradient": Kernels(_flat_forward, no_derivative),
}
