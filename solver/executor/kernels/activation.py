"""Kernels of the activations. X may share memory with Y, and dY with dX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels._activation import activation_derivative, apply_activation
from solver.executor.kernels._blocks import Step, bound, flat_blocks, present, staging, with_small_buffers
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops.activation import softmax_block
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _elementwise(name: str) -> Kernels:
    def forward(call: Call) -> Step:
        x, y = present(call.x[0], call.y[0])

        def run() -> None:
            np.copyto(y, x)
            apply_activation(name, y)

        return run

    def backward(call: Call) -> Step:
        y, dy, dx = present(call.y[0], call.dy[0], call.dx[0])
        factor = call.scratch["factor"]
        blocks = [(*parts, factor[: parts[0].size]) for parts in flat_blocks(y, dy, dx)]

        def run() -> None:
            for y_part, dy_part, dx_part, scaled in blocks:
                activation_derivative(name, y_part, dy_part, scaled)
                np.copyto(dx_part, scaled)

        return run

    return Kernels(forward, backward)


def _relu_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    return bound(np.maximum, x, 0, out=y)


def _tanh_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    return bound(np.tanh, x, out=y)


def _bounds(call: Call) -> tuple[Array | float | None, Array | float | None]:
    """Lower and upper bound: scalar arrays where they are inputs, else numbers; None where unbounded."""

    def bound(position: int, key: str) -> Array | float | None:
        given = call.x[position] if position < len(call.x) else None
        return call.attributes[key] if given is None else given.reshape(())

    return bound(1, "min"), bound(2, "max")


def _clip_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    low, high = _bounds(call)
    if low is None and high is None:
        return bound(np.copyto, y, x)
    return bound(np.clip, x, low, high, out=y)


def _clip_backward(call: Call) -> Step:
    y, dy, dx = present(call.y[0], call.dy[0], call.dx[0])
    low, high = _bounds(call)
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    above, below = call.scratch["above"], call.scratch["below"]
    blocks = [(*parts, above[: parts[0].size], below[: parts[0].size]) for parts in flat_blocks(y, dy, dx)]

    def run() -> None:
        for y_part, dy_part, dx_part, over, under in blocks:
            np.greater(y_part, low, out=over)
            np.less(y_part, high, out=under)
            np.multiply(over, under, out=over)
            np.multiply(dy_part, over, out=dx_part)

    return run


def _softmax_blocks(call: Call, *arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Views [outer, classes, inner] of `arrays` block by block."""
    shape = call.node.input(0).shape
    axis = call.attributes["axis"] % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    rows, classes, columns = softmax_block(shape, axis)
    seen = [array.reshape(outer, classes, inner) for array in arrays]
    for row in range(0, outer, rows):
        for column in range(0, inner, columns):
            yield tuple(view[row : row + rows, :, column : column + columns] for view in seen)


def _softmax_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    statistic = call.scratch["statistic"]
    blocks = [
        (x_part, y_part, staging(statistic, (x_part.shape[0], 1, x_part.shape[2])))
        for x_part, y_part in _softmax_blocks(call, x, y)
    ]

    def run() -> None:
        for x_part, y_part, row in blocks:
            np.maximum.reduce(x_part, axis=1, out=row, keepdims=True)
            np.subtract(x_part, row, out=y_part)
            np.exp(y_part, out=y_part)
            np.add.reduce(y_part, axis=1, out=row, keepdims=True)
            np.divide(y_part, row, out=y_part)

    return with_small_buffers(run)


def _softmax_backward(call: Call) -> Step:
    """dX = Y (dY - sum(Y dY))."""
    y, dy, dx = present(call.y[0], call.dy[0], call.dx[0])
    blocks = []
    for parts in _softmax_blocks(call, y, dy, dx):
        rows, _, columns = parts[0].shape
        product = staging(call.scratch["product"], parts[0].shape)
        blocks.append((*parts, product, staging(call.scratch["statistic"], (rows, 1, columns))))

    def run() -> None:
        for y_part, dy_part, dx_part, product, row in blocks:
            np.multiply(y_part, dy_part, out=product)
            np.add.reduce(product, axis=1, out=row, keepdims=True)
            np.subtract(dy_part, row, out=dx_part)
            np.multiply(dx_part, y_part, out=dx_part)

    return with_small_buffers(run)


KERNELS: Mapping[str, Kernels] = {
    "Relu": Kernels(_relu_forward, _elementwise("Relu").backward),
    "Clip": Kernels(_clip_forward, _clip_backward),
    "Sigmoid": _elementwise("Sigmoid"),
    "Tanh": Kernels(_tanh_forward, _elementwise("Tanh").backward),
    "Softmax": Kernels(_softmax_forward, _softmax_backward),
}
