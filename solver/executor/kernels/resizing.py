"""Kernels of Resize: a pass along each axis, tap by tap, over a block of examples at a time.

A table along an axis says which inputs an output looks at, and how much they weigh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present, run_all, staging, with_small_buffers
from solver.graph.ops.resizing import Passes, ResizedAxis, passes
from solver.graph.types import Array

__all__ = ["KERNELS", "interpolation"]


@dataclass(frozen=True, slots=True)
class _Table:
    """Inputs that each output is interpolated from, and their weights: [taps, outputs], for `size` inputs.

    An output that has fewer taps than others has weights of 0.
    """

    index: Array
    weights: Array
    size: int

    @property
    def taps(self) -> list[tuple[Array, Array | None]]:
        """(index, weights as a column) of each tap; no weights where all are 1."""
        columns = [None if np.all(weights == 1) else weights[:, None] for weights in self.weights]
        return list(zip(self.index, columns, strict=True))

    def part(self, outputs: slice) -> _Table:
        """The table of some of the outputs."""
        return _Table(self.index[:, outputs], self.weights[:, outputs], self.size)

    def transposed(self) -> _Table:
        """The table that takes derivatives of the outputs to those of the inputs."""
        weights, count = self.weights.T.reshape(-1), self.index.shape[1]
        inputs, outputs = self.index.T.reshape(-1), np.repeat(np.arange(count), len(self.index))
        used = np.flatnonzero(weights)
        used = used[np.argsort(inputs[used], kind="stable")]
        readers = np.bincount(inputs[used], minlength=self.size)
        first = np.repeat(np.cumsum(readers) - readers, readers)
        places = np.arange(used.size) - first, inputs[used]
        table = _Table(
            np.zeros((int(readers.max()), self.size), np.intp),
            np.zeros((int(readers.max()), self.size), weights.dtype),
            count,
        )
        table.index[places], table.weights[places] = outputs[used], weights[used]
        return table


def interpolation(axis: ResizedAxis, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> _Table:
    """The table of an axis, after ONNX."""
    x = _coordinates(axis, attributes["coordinate_transformation_mode"])
    if attributes["mode"] == "nearest":
        taps, weights = _nearest(x, attributes["nearest_mode"])[None], np.ones((1, axis.out))
    else:
        taps, weights = _filtered(x, axis, attributes)
        if attributes["exclude_outside"]:
            weights = weights * ((taps >= 0) & (taps < axis.size))
            weights /= weights.sum(axis=0)
    return _Table(np.clip(taps, 0, axis.size - 1).astype(np.intp), weights.astype(dtype), axis.size)


def _coordinates(axis: ResizedAxis, mode: str) -> Array:
    """Position of each output on the input's axis; positions are the centres of elements."""
    y = np.arange(axis.out, dtype=np.float64)
    width = axis.scale * axis.size
    if mode == "asymmetric":
        return np.asarray(y / axis.scale)
    if mode == "align_corners":
        return np.asarray(y * ((axis.size - 1) / (width - 1))) if width != 1 else np.zeros(axis.out)
    if mode == "pytorch_half_pixel" and axis.out == 1:
        return np.zeros(1)
    x = (y + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        x += axis.size / 2 * (1 - axis.out / width)
    return np.asarray(x)


def _nearest(x: Array, mode: str) -> Array:
    if mode == "floor":
        return np.asarray(np.floor(x))
    if mode == "ceil":
        return np.asarray(np.ceil(x))
    return np.asarray(np.ceil(x - 0.5) if mode == "round_prefer_floor" else np.floor(x + 0.5))


def _filtered(x: Array, axis: ResizedAxis, attributes: Mapping[str, Any]) -> tuple[Array, Array]:
    """Taps on both sides, weighed by a filter that anti-aliasing makes as wide as the outputs lie apart."""
    is_linear, antialias = attributes["mode"] == "linear", attributes["antialias"]
    shrink = min(axis.scale, 1.0) if antialias else 1.0
    reach = math.ceil((1 if is_linear else 2) / shrink)
    taps = np.floor(x) + np.arange(1 - reach, reach + 1)[:, None]
    distance = np.abs(taps - x) * shrink
    weights = np.maximum(1 - distance, 0) if is_linear else _cubic(distance, attributes["cubic_coeff_a"])
    if antialias:
        weights /= weights.sum(axis=0)
    return taps, weights


def _cubic(distance: Array, a: float) -> Array:
    """Keys' convolution kernel (1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _prepare(call: Call, source: Array, target: Array, *, backward: bool) -> Step:
    plan = passes(call.node, backward=backward)
    if not plan.axes:
        return bound(np.copyto, target, source)
    tables = [interpolation(axis, call.attributes, source.dtype) for axis in plan.axes]
    if backward:
        tables = [table.transposed() for table in tables]
    inputs = source.reshape(plan.examples, *plan.shapes[0])
    outputs = target.reshape(plan.examples, *plan.shapes[-1])
    steps: list[Step] = []
    for start in range(0, plan.examples, plan.step):
        block = slice(start, start + plan.step)
        for rows in _row_blocks(plan):
            parts = [tables[0].part(rows), *tables[1:]]
            chain = _chain(call, plan, inputs[block], outputs[block, rows])
            for axis, table, (before, after) in zip(plan.axes, parts, chain, strict=True):
                depth = axis.axis + 1
                steps += _pass(table, _matrices(before, depth), _matrices(after, depth), call)
    return with_small_buffers(run_all(steps))


def _row_blocks(plan: Passes) -> Iterator[slice]:
    """Rows of the first pass's result that go through the others together."""
    if not plan.rows:
        yield slice(None)
        return
    for start in range(0, plan.shapes[1][0], plan.rows):
        yield slice(start, start + plan.rows)


def _chain(call: Call, plan: Passes, first: Array, last: Array) -> Iterator[tuple[Array, Array]]:
    """(what each pass reads, what it writes) of a block."""
    before = first
    for number in range(1, len(plan.shapes)):
        after = last
        if number < len(plan.axes):
            memory = call.scratch["between" if number % 2 else "beside"]
            after = staging(memory, plan.behind(number, *last.shape[:2]))
        yield before, after
        before = after


def _matrices(array: Array, axis: int) -> Array:
    """[outer, the axis, inner]."""
    return array.reshape(math.prod(array.shape[:axis]), array.shape[axis], -1)


def _pass(table: _Table, source: Array, target: Array, call: Call) -> Iterator[Step]:
    """The first tap writes, the others are added by way of scratch."""
    memory = call.scratch["tap"]
    for outer, rows in _parts(target, memory.size):
        into, rows_in = target[outer, rows], source[outer]
        for k, (index, weights) in enumerate(table.taps):
            part = staging(memory, into.shape) if k else into
            # No index lies outside: "clip" never clips, and unlike "raise" writes straight to its output.
            yield bound(np.take, rows_in, index[rows], axis=1, out=part, mode="clip")
            if weights is not None:
                yield bound(np.multiply, part, weights[rows], out=part)
            if k:
                yield bound(np.add, into, part, out=into)


def _parts(target: Array, room: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of a target [outer, rows, inner] without gaps: several outer ones, or some rows of one."""
    outer, rows, inner = target.shape
    if rows * inner <= room:
        step = room // (rows * inner)
        yield from ((slice(start, start + step), slice(None)) for start in range(0, outer, step))
        return
    step = max(1, room // inner)
    for start in range(outer):
        yield from ((slice(start, start + 1), slice(row, row + step)) for row in range(0, rows, step))


KERNELS: Mapping[str, Kernels] = {
    "Resize": Kernels(
        lambda call: _prepare(call, *present(call.x[0], call.y[0]), backward=False),
        lambda call: _prepare(call, *present(call.dy[0], call.dx[0]), backward=True),
    )
}
