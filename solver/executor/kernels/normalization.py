"""Kernels of normalisation, in blocks of rows, all seen as [outer, groups, channels, positions]."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from solver.errors import InternalError
from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import (
    Step,
    bound,
    is_new,
    present,
    run_all,
    staging,
    sum_into,
    with_small_buffers,
)
from solver.graph.ops import lookup
from solver.graph.ops.normalization import INVERSE_DEVIATION, MEAN, Normalisation, Rows
from solver.graph.types import Array

__all__ = ["KERNELS"]

_ROW = (2, 3)
_Block = tuple[slice, slice]


class _View:
    """The operands of one step as rows, block by block."""

    def __init__(self, call: Call) -> None:
        operator = lookup(call.node.operation.type)
        if not isinstance(operator, Normalisation):
            raise InternalError(f"Operator {operator.name!r} normalises nothing.")
        self.call = call
        self.rows: Rows = operator.rows(call.node)
        self.centred = operator.centred

    def blocks(self) -> Iterator[_Block]:
        outer_step, group_step = self.rows.step
        for outer in range(0, self.rows.outer, outer_step):
            for group in range(0, self.rows.groups, group_step):
                yield slice(outer, outer + outer_step), slice(group, group + group_step)

    def tensor(self, array: Array | None, block: _Block) -> Array:
        (tensor,) = present(array)
        return self._in_order(tensor)[block]

    def mean(self, block: _Block) -> Array | None:
        return self.statistic(MEAN, block) if self.centred else None

    def statistic(self, name: str, block: _Block) -> Array:
        return self.call.saved[name].reshape(self.rows.outer, self.rows.groups, 1, 1)[block]

    def parameter(self, array: Array | None, block: _Block) -> Array:
        (parameter,) = present(array)
        return parameter.reshape(1, self.rows.groups, self.rows.channels, 1)[:, block[1]]

    def scratch(self, name: str, like: Array) -> Array:
        """Scratch in the memory order of a block of X."""
        outer, groups, channels, positions = like.shape
        if not self.rows.channels_last:
            return staging(self.call.scratch[name], like.shape)
        return staging(self.call.scratch[name], (outer, positions, groups, channels)).transpose(0, 2, 3, 1)

    def per_row(self, name: str, like: Array) -> Array:
        return staging(self.call.scratch[name], (*like.shape[:2], 1, 1))

    def _in_order(self, array: Array) -> Array:
        rows = self.rows
        if not rows.channels_last:
            return array.reshape(rows.outer, rows.groups, rows.channels, rows.positions)
        shape = (rows.outer, rows.positions, rows.groups, rows.channels)
        return array.reshape(shape).transpose(0, 2, 3, 1)


def _optional(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    return arrays[position] if position < len(arrays) else None


# ------------------------------------------------------------------------------------------- forward


def _forward(call: Call) -> Step:
    view, shift = _View(call), _optional(call.x, 2)
    epsilon = float(call.attributes["epsilon"])
    steps: list[Step] = []
    for block in view.blocks():
        x, y = view.tensor(call.x[0], block), view.tensor(call.y[0], block)
        mean, inverse = view.mean(block), view.statistic(INVERSE_DEVIATION, block)
        steps.append(bound(_normalise, x, y, mean, inverse, view.scratch("square", x), epsilon))
        steps.append(bound(np.multiply, y, view.parameter(call.x[1], block), out=y))
        if shift is not None:
            steps.append(bound(np.add, y, view.parameter(shift, block), out=y))
    return with_small_buffers(run_all(steps))


def _normalise(x: Array, y: Array, mean: Array | None, inverse: Array, square: Array, epsilon: float) -> None:
    """The mean first and the deviations from it squared then: no difference of large sums."""
    size, centred = math.prod(x.shape[2:]), x
    if mean is not None:
        np.add.reduce(x, axis=_ROW, out=mean, keepdims=True)
        np.divide(mean, size, out=mean)
        np.subtract(x, mean, out=y)
        centred = y
    np.multiply(centred, centred, out=square)
    np.add.reduce(square, axis=_ROW, out=inverse, keepdims=True)
    np.divide(inverse, size, out=inverse)
    np.add(inverse, epsilon, out=inverse)
    np.sqrt(inverse, out=inverse)
    np.reciprocal(inverse, out=inverse)
    np.multiply(centred, inverse, out=y)


# ------------------------------------------------------------------------------------------ backward


def _backward(call: Call) -> Step:
    """With n the normalised X: the derivative of the scale is the sum of dY n, that of the shift of dY."""
    view = _View(call)
    seen: tuple[set[int], set[int]] = (set(), set())
    steps: list[Step] = []
    for block in view.blocks():
        dy = view.tensor(call.dy[0], block)
        if _reads_input(call):
            steps.append(_normal_step(view, block, dy))
        for position, collected in zip((1, 2), seen, strict=True):
            target = _optional(call.dx, position)
            if target is not None:
                steps += _parameter_steps(view, dy, position, view.parameter(target, block), collected)
        if call.dx[0] is not None:
            steps.append(_input_step(view, block, dy))
    return with_small_buffers(run_all(steps))


def _reads_input(call: Call) -> bool:
    return call.dx[0] is not None or call.dx[1] is not None


def _normal_step(view: _View, block: _Block, like: Array) -> Step:
    x = view.tensor(view.call.x[0], block)
    mean, inverse = view.mean(block), view.statistic(INVERSE_DEVIATION, block)
    normal = view.scratch("normal", like)
    if mean is None:
        return bound(np.multiply, x, inverse, out=normal)

    def run() -> None:
        np.subtract(x, mean, out=normal)
        np.multiply(normal, inverse, out=normal)

    return run


def _parameter_steps(view: _View, dy: Array, position: int, target: Array, seen: set[int]) -> list[Step]:
    source, steps = dy, list[Step]()
    if position == 1:
        source = view.scratch("product", dy)
        steps.append(bound(np.multiply, dy, view.scratch("normal", dy), out=source))
    first = is_new(seen, target)
    return [*steps, sum_into(source, target, view.call.scratch["partial"], first=first)]


def _input_step(view: _View, block: _Block, dy: Array) -> Step:
    """dX = (g - mean(g) - n mean(g n)) / deviation, where g = dY scale; no mean(g) where the mean stays."""
    call = view.call
    dx, scale = view.tensor(call.dx[0], block), view.parameter(call.x[1], block)
    inverse, normal = view.statistic(INVERSE_DEVIATION, block), view.scratch("normal", dy)
    product = view.scratch("product", dy)
    first = view.per_row("first", dy) if view.centred else None
    second = view.per_row("second", dy)
    size = view.rows.size

    def run() -> None:
        np.multiply(dy, scale, out=product)
        if first is not None:
            np.add.reduce(product, axis=_ROW, out=first, keepdims=True)
            np.divide(first, size, out=first)
        np.multiply(product, normal, out=dx)
        np.add.reduce(dx, axis=_ROW, out=second, keepdims=True)
        np.divide(second, size, out=second)
        np.multiply(normal, second, out=dx)
        np.subtract(product, dx, out=dx)
        if first is not None:
            np.subtract(dx, first, out=dx)
        np.multiply(dx, inverse, out=dx)

    return run


_KERNELS = Kernels(_forward, _backward)

KERNELS: Mapping[str, Kernels] = {
    "LayerNormalization": _KERNELS,
    "RMSNormalization": _KERNELS,
    "InstanceNormalization": _KERNELS,
    "GroupNormalization": _KERNELS,
}
