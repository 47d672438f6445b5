"""Kernels of the activations. dY may share memory with dX, and X with Y where X is not read backward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.executor.kernels.helpers.blocks import (
    Step,
    block_views,
    bound,
    flat_blocks,
    is_new,
    present,
    run_all,
    staging,
    sum_into,
    with_small_buffers,
)
from solver.executor.kernels.helpers.elementwise import elementwise, fixed
from solver.executor.kernels.helpers.gated import (
    elu,
    elu_slope,
    gelu,
    gelu_slope,
    hard_sigmoid,
    hard_sigmoid_slope,
    hard_swish,
    hard_swish_slope,
    leaky_relu,
    leaky_relu_slope,
    swish,
    swish_slope,
)
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
        array = call.x[position] if position < len(call.x) else None
        return call.attributes[key] if array is None else array.reshape(())

    return bound(1, "min"), bound(2, "max")


def _clip_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    low, high = _bounds(call)
    if low is None and high is None:
        return bound(np.copyto, y, x)
    return bound(np.clip, x, low, high, out=y)


def _clip_backward(call: Call) -> Step:
    inclusive = bool(call.attributes.get("inclusive"))
    compared, dy, dx = present(call.x[0] if inclusive else call.y[0], call.dy[0], call.dx[0])
    is_above, is_below = (np.greater_equal, np.less_equal) if inclusive else (np.greater, np.less)
    low, high = _bounds(call)
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    above, below = call.scratch["above"], call.scratch["below"]
    blocks = [
        (*parts, above[: parts[0].size], below[: parts[0].size]) for parts in flat_blocks(compared, dy, dx)
    ]

    def run() -> None:
        for part, dy_part, dx_part, over, under in blocks:
            is_above(part, low, out=over)
            is_below(part, high, out=under)
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
    blocks = _with_rows(call, "product", y, dy, dx)

    def run() -> None:
        for y_part, dy_part, dx_part, product, row in blocks:
            np.multiply(y_part, dy_part, out=product)
            np.add.reduce(product, axis=1, out=row, keepdims=True)
            np.subtract(dy_part, row, out=dx_part)
            np.multiply(dx_part, y_part, out=dx_part)

    return with_small_buffers(run)


def _log_softmax_forward(call: Call) -> Step:
    x, y = present(call.x[0], call.y[0])
    blocks = _with_rows(call, "exponential", x, y)

    def run() -> None:
        for x_part, y_part, exponential, row in blocks:
            np.maximum.reduce(x_part, axis=1, out=row, keepdims=True)
            np.subtract(x_part, row, out=y_part)
            np.exp(y_part, out=exponential)
            np.add.reduce(exponential, axis=1, out=row, keepdims=True)
            np.log(row, out=row)
            np.subtract(y_part, row, out=y_part)

    return with_small_buffers(run)


def _log_softmax_backward(call: Call) -> Step:
    """dX = dY - exp(Y) sum(dY)."""
    y, dy, dx = present(call.y[0], call.dy[0], call.dx[0])
    blocks = _with_rows(call, "product", y, dy, dx)

    def run() -> None:
        for y_part, dy_part, dx_part, product, row in blocks:
            np.exp(y_part, out=product)
            np.add.reduce(dy_part, axis=1, out=row, keepdims=True)
            np.multiply(product, row, out=product)
            np.subtract(dy_part, product, out=dx_part)

    return with_small_buffers(run)


def _prelu_forward(call: Call) -> Step:
    x, slope, y = present(call.x[0], call.x[1], call.y[0])
    blocks = [
        (*parts, staging(call.scratch["lower"], parts[0].shape))
        for parts in block_views(x.shape, (x, slope, y))
    ]

    def run() -> None:
        for x_part, slope_part, y_part, lower in blocks:
            np.minimum(x_part, 0, out=lower)
            np.multiply(lower, slope_part, out=lower)
            np.maximum(x_part, 0, out=y_part)
            np.add(y_part, lower, out=y_part)

    return with_small_buffers(run)


def _prelu_backward(call: Call) -> Step:
    """dX = dY where X > 0 and slope dY elsewhere; the derivative of the slope is dY min(X, 0), summed."""
    x, dy = present(call.x[0], call.dy[0])
    dx, dslope = call.dx
    slope = x if call.x[1] is None else call.x[1]
    standing_in = (dy if dx is None else dx, dy if dslope is None else dslope)
    steps, seen = list[Step](), set[int]()
    for parts in block_views(x.shape, (x, dy, slope, *standing_in)):
        x_part, dy_part, slope_part, dx_part, dslope_part = parts
        if dslope is not None:
            term = staging(call.scratch["term"], x_part.shape)
            steps.append(bound(_prelu_slope_term, x_part, dy_part, term))
            first = is_new(seen, dslope_part)
            steps.append(sum_into(term, dslope_part, call.scratch.get("partial"), first=first))
        if dx is not None:
            mask = staging(call.scratch["mask"], x_part.shape)
            steps.append(bound(_prelu_derivative, x_part, dy_part, slope_part, mask, dx_part))
    return with_small_buffers(run_all(steps))


def _prelu_slope_term(x: Array, dy: Array, out: Array) -> None:
    np.minimum(x, 0, out=out)
    np.multiply(out, dy, out=out)


def _prelu_derivative(x: Array, dy: Array, slope: Array, mask: Array, dx: Array) -> None:
    np.less_equal(x, 0, out=mask)
    np.copyto(dx, dy)
    np.multiply(dx, slope, out=dx, where=mask)


def _with_rows(call: Call, wide: str, *arrays: Array) -> list[tuple[Array, ...]]:
    """Blocks of `arrays`, each with scratch of a block and a statistic of each row of classes."""
    return [
        (
            *parts,
            staging(call.scratch[wide], parts[0].shape),
            staging(call.scratch["statistic"], (parts[0].shape[0], 1, parts[0].shape[2])),
        )
        for parts in _softmax_blocks(call, *arrays)
    ]


KERNELS: Mapping[str, Kernels] = {
    "Relu": Kernels(_relu_forward, _elementwise("Relu").backward),
    "Clip": Kernels(_clip_forward, _clip_backward),
    "Sigmoid": _elementwise("Sigmoid"),
    "Tanh": Kernels(_tanh_forward, _elementwise("Tanh").backward),
    "Softmax": Kernels(_softmax_forward, _softmax_backward),
    "LogSoftmax": Kernels(_log_softmax_forward, _log_softmax_backward),
    "LeakyRelu": elementwise(leaky_relu, leaky_relu_slope),
    "Elu": elementwise(elu, elu_slope),
    "HardSigmoid": elementwise(hard_sigmoid, hard_sigmoid_slope),
    "HardSwish": elementwise(fixed(hard_swish), fixed(hard_swish_slope)),
    "Swish": elementwise(swish, swish_slope),
    "Gelu": elementwise(gelu, gelu_slope),
    "PRelu": Kernels(_prelu_forward, _prelu_backward),
}
