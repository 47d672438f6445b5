"""Kernels of the activations. dY may share memory with dX, and X with Y where X is not read backward.

Functions are as the module `elementwise` takes them: (x, y, *scratch) forward, (source, factor, *scratch)
backward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

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
from solver.executor.kernels.helpers.elementwise import Function, elementwise, fixed
from solver.executor.kernels.helpers.erf import erf
from solver.graph.ops.activation import softmax_block
from solver.graph.types import Array

__all__ = ["KERNELS"]


_Attributes = Mapping[str, Any]

# ------------------------------------------------------------------------------------------ one-sided


def _leaky_relu(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(x: Array, y: Array, lower: Array) -> None:
        np.minimum(x, 0, out=lower)
        np.multiply(lower, alpha, out=lower)
        np.maximum(x, 0, out=y)
        np.add(y, lower, out=y)

    return run


def _leaky_relu_slope(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(source: Array, factor: Array, mask: Array) -> None:
        np.greater(source, 0, out=mask)
        factor.fill(alpha)
        np.copyto(factor, 1, where=mask)

    return run


def _elu(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(x: Array, y: Array, lower: Array) -> None:
        np.minimum(x, 0, out=lower)
        np.expm1(lower, out=lower)
        np.multiply(lower, alpha, out=lower)
        np.maximum(x, 0, out=y)
        np.add(y, lower, out=y)

    return run


def _elu_slope(attributes: _Attributes) -> Function:
    """Y + alpha below 0 where Y is read, alpha exp(X) where X is."""
    alpha = float(attributes["alpha"])

    def of_output(y: Array, factor: Array, mask: Array) -> None:
        np.greater(y, 0, out=mask)
        np.add(y, alpha, out=factor)
        np.copyto(factor, 1, where=mask)

    def of_input(x: Array, factor: Array, mask: Array) -> None:
        np.greater(x, 0, out=mask)
        np.minimum(x, 0, out=factor)
        np.exp(factor, out=factor)
        np.multiply(factor, alpha, out=factor)
        np.copyto(factor, 1, where=mask)

    return of_output if alpha > 0 else of_input


def _hard_sigmoid(attributes: _Attributes) -> Function:
    alpha, beta = float(attributes["alpha"]), float(attributes["beta"])

    def run(x: Array, y: Array) -> None:
        np.multiply(x, alpha, out=y)
        np.add(y, beta, out=y)
        np.clip(y, 0, 1, out=y)

    return run


def _hard_sigmoid_slope(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(y: Array, factor: Array) -> None:
        # y (1 - y) is positive exactly inside (0, 1): one mask instead of two.
        np.subtract(1, y, out=factor)
        np.multiply(factor, y, out=factor)
        np.greater(factor, 0, out=factor)
        np.multiply(factor, alpha, out=factor)

    return run


# --------------------------------------------------------------------------------------------- gated


def _hard_swish(x: Array, y: Array, gate: Array) -> None:
    np.divide(x, 6, out=gate)
    np.add(gate, 0.5, out=gate)
    np.clip(gate, 0, 1, out=gate)
    np.multiply(x, gate, out=y)


def _hard_swish_slope(x: Array, factor: Array, mask: Array) -> None:
    """X / 3 + 1 / 2 between -3 and 3, 0 and 1 outside and at the ends."""
    np.divide(x, 3, out=factor)
    np.add(factor, 0.5, out=factor)
    np.less_equal(x, -3, out=mask)
    np.copyto(factor, 0, where=mask)
    np.greater_equal(x, 3, out=mask)
    np.copyto(factor, 1, where=mask)


def _swish(attributes: _Attributes) -> Function:
    alpha = float(attributes["alpha"])

    def run(x: Array, y: Array, gate: Array) -> None:
        np.multiply(x, alpha, out=gate)
        apply_activation("Sigmoid", gate)
        np.multiply(x, gate, out=y)

    return run


def _swish_slope(attributes: _Attributes) -> Function:
    """s (1 + alpha X (1 - s)), where s is the gate."""
    alpha = float(attributes["alpha"])

    def run(x: Array, factor: Array, gate: Array) -> None:
        np.multiply(x, alpha, out=gate)
        apply_activation("Sigmoid", gate)
        np.subtract(1, gate, out=factor)
        np.multiply(factor, x, out=factor)
        np.multiply(factor, alpha, out=factor)
        np.add(factor, 1, out=factor)
        np.multiply(factor, gate, out=factor)

    return run


#: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
_CUBIC = 0.044715
_ROOT = math.sqrt(2 / math.pi)


def _gelu(attributes: _Attributes) -> Function:
    return _gelu_tanh if attributes["approximate"] == "tanh" else _gelu_exact


def _gelu_slope(attributes: _Attributes) -> Function:
    return _gelu_tanh_slope if attributes["approximate"] == "tanh" else _gelu_exact_slope


def _distribution(x: Array, out: Array, argument: Array, *work: Array) -> None:
    """The normal distribution function, (1 + erf(x / sqrt 2)) / 2."""
    np.multiply(x, math.sqrt(0.5), out=argument)
    erf(argument, out, *work)
    np.add(out, 1, out=out)
    np.multiply(out, 0.5, out=out)


def _gelu_exact(x: Array, y: Array, gate: Array, *work: Array) -> None:
    _distribution(x, gate, *work)
    np.multiply(x, gate, out=y)


def _gelu_exact_slope(x: Array, factor: Array, argument: Array, *work: Array) -> None:
    """The distribution function, and X times the density."""
    _distribution(x, factor, argument, *work)
    np.multiply(x, x, out=argument)
    np.multiply(argument, -0.5, out=argument)
    np.exp(argument, out=argument)
    np.multiply(argument, 1 / math.sqrt(2 * math.pi), out=argument)
    np.multiply(argument, x, out=argument)
    np.add(factor, argument, out=factor)


def _cubic_tanh(x: Array, square: Array, out: Array) -> None:
    """tanh(sqrt(2 / pi) (x + 0.044715 x^3)), given x^2."""
    np.multiply(square, _CUBIC * _ROOT, out=out)
    np.add(out, _ROOT, out=out)
    np.multiply(out, x, out=out)
    np.tanh(out, out=out)


def _gelu_tanh(x: Array, y: Array, gate: Array) -> None:
    np.multiply(x, x, out=gate)
    _cubic_tanh(x, gate, gate)
    np.add(gate, 1, out=gate)
    np.multiply(gate, 0.5, out=gate)
    np.multiply(x, gate, out=y)


def _gelu_tanh_slope(x: Array, factor: Array, slope: Array, square: Array) -> None:
    """(1 + t) / 2 + X (1 - t^2) u' / 2, where t = tanh(u)."""
    np.multiply(x, x, out=square)
    _cubic_tanh(x, square, factor)
    np.multiply(square, 3 * _CUBIC * _ROOT, out=slope)
    np.add(slope, _ROOT, out=slope)
    np.multiply(slope, x, out=slope)
    np.multiply(factor, factor, out=square)
    np.subtract(1, square, out=square)
    np.multiply(slope, square, out=slope)
    np.add(factor, slope, out=factor)
    np.add(factor, 1, out=factor)
    np.multiply(factor, 0.5, out=factor)


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
    "LeakyRelu": elementwise(_leaky_relu, _leaky_relu_slope),
    "Elu": elementwise(_elu, _elu_slope),
    "HardSigmoid": elementwise(_hard_sigmoid, _hard_sigmoid_slope),
    "HardSwish": elementwise(fixed(_hard_swish), fixed(_hard_swish_slope)),
    "Swish": elementwise(_swish, _swish_slope),
    "Gelu": elementwise(_gelu, _gelu_slope),
    "PRelu": Kernels(_prelu_forward, _prelu_backward),
}
