"""Kernels that put pieces of tensors together, take them apart or cut them out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present, run_all
from solver.graph.ops.slicing import Index, cut, pieces
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _places(call: Call, parts: tuple[Array | None, ...], whole: Array) -> list[tuple[Array | None, Array]]:
    """Pairs of a part, or None, and its view of the whole."""
    axis = call.attributes["axis"] % whole.ndim
    types = call.node.inputs if call.node.operation.type == "Concat" else call.node.outputs
    sizes = tuple(type_.shape[axis] for type_ in types if type_ is not None)
    return [(part, whole[index]) for part, index in zip(parts, pieces(axis, sizes), strict=True)]


def _concat_forward(call: Call) -> Step:
    (y,) = present(call.y[0])
    return run_all([bound(np.copyto, place, *present(x)) for x, place in _places(call, call.x, y)])


def _concat_backward(call: Call) -> Step:
    (dy,) = present(call.dy[0])
    places = _places(call, call.dx, dy)
    return run_all([bound(np.copyto, dx, place) for dx, place in places if dx is not None])


def _split_forward(call: Call) -> Step:
    (x,) = present(call.x[0])
    return run_all([bound(np.copyto, *present(y), place) for y, place in _places(call, call.y, x)])


def _split_backward(call: Call) -> Step:
    (dx,) = present(call.dx[0])
    return run_all(
        [bound(np.copyto, place, 0 if dy is None else dy) for dy, place in _places(call, call.dy, dx)]
    )


def _index(call: Call) -> Index:
    """The index as NumPy takes it: a stop before the first element is left out."""
    return tuple(
        slice(part.start, part.stop if part.stop >= 0 else None, part.step) for part in cut(call.node)
    )


def _slice_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    return bound(np.copyto, y, x[_index(call)])


def _slice_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return run_all([bound(dx.fill, 0), bound(np.copyto, dx[_index(call)], dy)])


KERNELS: Mapping[str, Kernels] = {
    "Concat": Kernels(_concat_forward, _concat_backward),
    "Split": Kernels(_split_forward, _split_backward),
    "Slice": Kernels(_slice_forward, _slice_backward),
}
