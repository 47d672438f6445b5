"""Depthwise convolution, tap by tap over blocks of output rows.

For each tap, a block of the output takes the product of the data under the tap and the tap's weights.
Where channels come last the weights are spread along the last spatial axis first, so that NumPy's
inner loop runs over whole rows and not over the channels of one position.
"""

from __future__ import annotations

import numpy as np

from solver.executor.kernels._activation import activation_derivative, apply_activation
from solver.executor.kernels._blocks import Step, bound, present, run_all
from solver.executor.kernels._windows import Block, block_view, blocks, channels_last
from solver.executor.kernels.base import Call
from solver.graph.ops._spatial import Tap
from solver.graph.ops.convolution import Geometry
from solver.graph.types import Array

__all__ = ["backward", "forward"]

X, W, B = 0, 1, 2


def forward(call: Call, g: Geometry) -> Step:
    x, y = (channels_last(array, is_nchw=g.is_nchw) for array in present(call.x[X], call.y[0]))
    bias = call.x[B] if call.node.has_input(B) else None
    steps = [_spread(call, g)]
    for block in blocks(g.window, g.batch, g.rows):
        out = y[block.example, block.start : block.stop]
        steps.append(bound(np.copyto, out, 0 if bias is None else bias))
        for tap in block.taps:
            product = _product(call, g, out[tap.out].shape)
            steps.append(
                _accumulate(x[block.example][tap.data], _weight(call, g, tap), product, out[tap.out])
            )
        if g.activation != "None":
            steps.append(bound(apply_activation, g.activation, out))
    return run_all(steps)


def backward(call: Call, g: Geometry) -> Step:
    """Both derivatives from one pass over the blocks, as far as they are wanted."""
    steps: list[Step] = []
    dx = call.dx[X]
    if dx is not None:
        steps += [_spread(call, g), bound(dx.fill, 0)]
    if call.dx[W] is not None:
        steps.append(bound(call.scratch["sums"].fill, 0))
    db = call.dx[B] if len(call.dx) > B else None
    if db is not None:
        steps.append(bound(db.fill, 0))
    for block in blocks(g.window, g.batch, g.rows):
        dz, prepare = _inner(call, g, block)
        steps += prepare
        if db is not None:
            steps += _summed(dz, call.scratch["bias_part"], db)
        for tap in block.taps:
            steps += _tap_steps(call, g, block, tap, dz[tap.out])
    dw = call.dx[W]
    if dw is not None:
        sums = call.scratch["sums"].reshape(g.window.taps, -1, g.channels)
        steps.append(bound(np.add.reduce, sums, axis=1, out=dw.reshape(g.channels, -1).T))
    return run_all(steps)


def _tap_steps(call: Call, g: Geometry, block: Block, tap: Tap, dz: Array) -> list[Step]:
    product, steps = _product(call, g, dz.shape), []
    if call.dx[W] is not None:
        data = channels_last(present(call.x[X])[0], is_nchw=g.is_nchw)[block.example][tap.data]
        sums, part = _slots(call, g, tap)
        axes = tuple(range(dz.ndim - 1 if g.is_nchw else dz.ndim - 2))
        steps.append(bound(np.multiply, data, dz, out=product))
        steps.append(bound(np.add.reduce, product, axis=axes, out=part))
        steps.append(bound(np.add, sums, part, out=sums))
    dx = call.dx[X]
    if dx is not None:
        target = channels_last(dx, is_nchw=g.is_nchw)[block.example][tap.data]
        steps.append(_accumulate(dz, _weight(call, g, tap), product, target))
    return steps


def _spread(call: Call, g: Geometry) -> Step:
    """Weights as ``[taps, width, C]``: each tap's channels repeated along the last spatial axis."""
    w = present(call.x[W])[0].reshape(g.channels, -1)
    spread = call.scratch["spread"].reshape(g.window.taps, -1, g.channels)
    return bound(np.copyto, spread, w.T[:, None, :])


def _weight(call: Call, g: Geometry, tap: Tap) -> Array:
    """A tap's weights, to be broadcast over ``[rows, ..., C]``."""
    spread: Array = call.scratch["spread"].reshape(g.window.taps, -1, g.channels)[tap.index]
    return spread[0] if g.is_nchw else spread[: tap.out[-1].stop - tap.out[-1].start]


def _slots(call: Call, g: Geometry, tap: Tap) -> tuple[Array, Array]:
    """Where a tap's weight derivative is summed up, and where one block's share goes first."""
    sums = call.scratch["sums"].reshape(g.window.taps, -1, g.channels)[tap.index]
    part = call.scratch["sums_part"].reshape(-1, g.channels)
    if g.is_nchw:
        return sums[0], part[0]
    width = tap.out[-1].stop - tap.out[-1].start
    return sums[:width], part[:width]


def _product(call: Call, g: Geometry, shape: tuple[int, ...]) -> Array:
    return block_view(call.scratch["product"], shape, is_nchw=g.is_nchw)


def _accumulate(data: Array, weight: Array, product: Array, out: Array) -> Step:
    def run() -> None:
        np.multiply(data, weight, out=product)
        np.add(out, product, out=out)

    return run


def _inner(call: Call, g: Geometry, block: Block) -> tuple[Array, list[Step]]:
    """Derivative of a block before the activation, and the steps that write it."""
    rows = slice(block.start, block.stop)
    dy = channels_last(present(call.dy[0])[0], is_nchw=g.is_nchw)[block.example, rows]
    if g.activation == "None":
        return dy, []
    y = channels_last(present(call.y[0])[0], is_nchw=g.is_nchw)[block.example, rows]
    dz = block_view(call.scratch["inner"], dy.shape, is_nchw=g.is_nchw)
    return dz, [bound(activation_derivative, g.activation, y, dy, dz)]


def _summed(dz: Array, part: Array, db: Array) -> list[Step]:
    axes = tuple(range(dz.ndim - 1))
    return [bound(np.add.reduce, dz, axis=axes, out=part), bound(np.add, db, part, out=db)]
