"""Kernels of the convolution family: GEMMs over chunks of examples, taps for depthwise.

Columns hold every window of a chunk written out, so that one matrix product treats them all:

    NHWC   Y[m*P, O]  = columns[m*P, K] @ W[O, K].T          m examples, P windows each,
    NCHW   Y[m][O, P] = W[O, K] @ columns[m][K, P]           K = taps * channels of a group

    dW[O, K] = dZ.T @ columns     dColumns = dZ @ W, added back tap by tap

Pointwise convolutions need no columns: the data are the columns. A depthwise convolution is no
matrix product at all; it multiplies and accumulates tap by tap over blocks of output rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solver.executor.kernels import _depthwise
from solver.executor.kernels._activation import activation_derivative, apply_activation
from solver.executor.kernels._blocks import Step, bound, present, run_all
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops.convolution import OPERATORS, WINDOWS_PER_PRODUCT, Geometry, geometry
from solver.graph.types import Array

__all__ = ["KERNELS"]

X, W, B = 0, 1, 2

Index = tuple[slice | int, ...]


class _Chunks:
    """The arrays of one call, cut into chunks of examples and seen as matrices."""

    def __init__(self, call: Call, size: int) -> None:
        self.call, self.size, self.g = call, size, geometry(call.node)
        self.weight_shape = (self.g.groups, self.g.outputs // self.g.groups, -1)

    def __iter__(self) -> Iterator[slice]:
        for start in range(0, self.g.batch, self.size):
            yield slice(start, min(start + self.size, self.g.batch))

    def grouped(self, array: Array, part: slice) -> Array:
        """Data of a chunk, group by group: ``[g, m, *spatial, C/g]`` or ``[g, m, C/g, *spatial]``."""
        chunk, groups = array[part], self.g.groups
        if self.g.is_nchw:
            return np.moveaxis(chunk.reshape(len(chunk), groups, -1, *chunk.shape[2:]), 1, 0)
        return np.moveaxis(chunk.reshape(*chunk.shape[:-1], groups, -1), -2, 0)

    def matrices(self, array: Array, part: slice) -> list[Array]:
        """Data with P positions an example, a matrix a group: ``[m*P, C/g]``, or ``[m, C/g, P]`` under NCHW."""
        grouped = self.grouped(array, part)
        m, positions = part.stop - part.start, self.g.window.positions
        if self.g.is_nchw:
            return [one.reshape(m, -1, positions) for one in grouped]
        return [_rows(one, m * positions) for one in grouped]

    def columns(self, part: slice) -> list[Array]:
        """The scratch of columns, a matrix a group: ``[m*P, K]``, or ``[m, K, P]`` under NCHW."""
        scratch, m = self.call.scratch["columns"], part.stop - part.start
        if self.g.is_nchw:
            return [one[:m].reshape(m, -1, self.g.window.positions) for one in scratch]
        return [one[:m].reshape(m * self.g.window.positions, -1) for one in scratch]

    def tap_views(self, part: slice) -> list[tuple[Index, Index, Array]]:
        """For each tap: where it stands in the columns, where in the data, and the columns' view."""
        window, scratch, m = self.g.window, self.call.scratch["columns"], part.stop - part.start
        each = (slice(None), slice(None))
        found: list[tuple[Index, Index, Array]] = []
        for tap in window.tap_slices():
            if tap.is_empty:
                continue
            if self.g.is_nchw:
                view = scratch[:, :m].reshape(self.g.groups, m, -1, window.taps, *window.output)
                found.append(
                    ((*each, slice(None), tap.index, *tap.out), (*each, slice(None), *tap.data), view)
                )
            else:
                view = scratch[:, :m].reshape(self.g.groups, m, *window.output, window.taps, -1)
                found.append(((*each, *tap.out, tap.index), (*each, *tap.data), view))
        return found

    def gather(self, x: Array, part: slice) -> list[Step]:
        """Steps that write the windows of a chunk out as columns; what is padding stays zero."""
        data = self.grouped(x, part)
        return [bound(np.copyto, view[to], data[source]) for to, source, view in self.tap_views(part)]

    def scatter(self, dx: Array, part: slice) -> list[Step]:
        """Steps that add columns back to the data they came from."""
        target = self.grouped(dx, part)
        steps = [bound(dx[part].fill, 0)]
        for source, to, view in self.tap_views(part):
            steps.append(bound(np.add, target[to], view[source], out=target[to]))
        return steps

    def inner(self, part: slice) -> tuple[Array, list[Step]]:
        """Derivative before the activation, shaped as the data of the chunk, and the steps that write it."""
        dy = _there(self.call.dy[0])
        if self.g.activation == "None":
            return dy[part], []
        m = part.stop - part.start
        dz = self.call.scratch["inner"][:m].reshape(dy[part].shape)
        return dz, [
            bound(activation_derivative, self.g.activation, _there(self.call.y[0])[part], dy[part], dz)
        ]


def _there(array: Array | None) -> Array:
    return present(array)[0]


def _rows(array: Array, rows: int) -> Array:
    """``[rows, C]`` of channels-last data without a copy, also where the channels are a slice of more."""
    channels, stride = array.shape[-1], array.strides[-2]
    return np.lib.stride_tricks.as_strided(array, (rows, channels), (stride, array.strides[-1]))


# -------------------------------------------------------------------------------------- forward


def _forward(call: Call) -> Step:
    g = geometry(call.node)
    if g.is_depthwise:
        return _depthwise.forward(call, g)
    chunks = _Chunks(call, g.chunk(inner=False))
    x, w, y = present(call.x[X], call.x[W], call.y[0])
    weights = w.reshape(chunks.weight_shape)
    bias = call.x[B] if call.node.has_input(B) else None
    steps: list[Step] = [bound(call.scratch["columns"].fill, 0)] if g.needs_columns else []
    for part in chunks:
        steps += chunks.gather(x, part) if g.needs_columns else []
        columns = chunks.columns(part) if g.needs_columns else chunks.matrices(x, part)
        for weight, column, out in zip(weights, columns, chunks.matrices(y, part), strict=True):
            operands = (weight, column) if g.is_nchw else (column, weight.T)
            steps.append(bound(np.matmul, *operands, out=out))
        steps += _finish(g, y[part], bias)
    return run_all(steps)


def _finish(g: Geometry, y: Array, bias: Array | None) -> list[Step]:
    steps: list[Step] = []
    if bias is not None:
        shaped = bias.reshape(-1, *(1,) * (y.ndim - 2)) if g.is_nchw else bias
        steps.append(bound(np.add, y, shaped, out=y))
    if g.activation != "None":
        steps.append(bound(apply_activation, g.activation, y))
    return steps


# ------------------------------------------------------------------------------------- backward


def _backward(call: Call) -> Step:
    g = geometry(call.node)
    if g.is_depthwise:
        return _depthwise.backward(call, g)
    wanted = frozenset(i for i, dx in enumerate(call.dx) if dx is not None)
    chunks = _Chunks(call, OPERATORS[0].backward_chunk(g, wanted))
    steps: list[Step] = [bound(call.scratch["columns"].fill, 0)] if "columns" in call.scratch else []
    for number, part in enumerate(chunks):
        dz, prepare = chunks.inner(part)
        steps += prepare
        if call.dx[W] is not None:
            steps += _weight_steps(call, chunks, part, dz, first=number == 0)
        if g.groups and len(call.dx) > B and call.dx[B] is not None:
            steps += _bias_steps(call, g, dz, first=number == 0)
        if call.dx[X] is not None:
            steps += _data_steps(call, chunks, part, dz)
    return run_all(steps)


def _of_chunk(chunks: _Chunks, dz: Array) -> list[Array]:
    return chunks.matrices(dz, slice(0, len(dz)))


def _weight_steps(call: Call, chunks: _Chunks, part: slice, dz: Array, *, first: bool) -> list[Step]:
    """Add this chunk's ``dZ.T @ columns``, group by group and a block of windows at a time."""
    x, dw = present(call.x[X], call.dx[W])
    needs = chunks.g.needs_columns
    steps = chunks.gather(x, part) if needs else []
    columns = chunks.columns(part) if needs else chunks.matrices(x, part)
    for target, inner, column in zip(
        dw.reshape(chunks.weight_shape), _of_chunk(chunks, dz), columns, strict=True
    ):
        for k, (left, right) in enumerate(_products(inner, column, is_nchw=chunks.g.is_nchw)):
            if first and k == 0:
                steps.append(bound(np.matmul, left, right, out=target))
                continue
            part_sum = call.scratch["weight_part"]
            steps.append(bound(np.matmul, left, right, out=part_sum))
            steps.append(bound(np.add, target, part_sum, out=target))
    return steps


def _products(inner: Array, column: Array, *, is_nchw: bool) -> Iterator[tuple[Array, Array]]:
    """Factors whose products add up to the weight derivative of one group."""
    if is_nchw:
        for dz, columns in zip(inner, column, strict=True):
            yield dz, columns.T
        return
    for start in range(0, len(inner), WINDOWS_PER_PRODUCT):
        block = slice(start, start + WINDOWS_PER_PRODUCT)
        yield inner[block].T, column[block]


def _bias_steps(call: Call, g: Geometry, dz: Array, *, first: bool) -> list[Step]:
    db = _there(call.dx[B])
    axes = tuple(axis for axis in range(dz.ndim) if axis != (1 if g.is_nchw else dz.ndim - 1))
    if first:
        return [bound(np.add.reduce, dz, axis=axes, out=db)]
    part = call.scratch["bias_part"]
    return [bound(np.add.reduce, dz, axis=axes, out=part), bound(np.add, db, part, out=db)]


def _data_steps(call: Call, chunks: _Chunks, part: slice, dz: Array) -> list[Step]:
    w, dx = present(call.x[W], call.dx[X])
    columns = chunks.columns(part) if chunks.g.needs_columns else chunks.matrices(dx, part)
    steps = []
    for weight, inner, column in zip(
        w.reshape(chunks.weight_shape), _of_chunk(chunks, dz), columns, strict=True
    ):
        operands = (weight.T, inner) if chunks.g.is_nchw else (inner, weight)
        steps.append(bound(np.matmul, *operands, out=column))
    return steps + (chunks.scatter(dx, part) if chunks.g.needs_columns else [])


KERNELS = {"Conv": Kernels(_forward, _backward)}
