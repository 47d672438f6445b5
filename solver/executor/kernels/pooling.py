"""Kernels of the pooling family, tap by tap over blocks of output rows."""

from __future__ import annotations

import numpy as np

from solver.executor.kernels._blocks import Step, bound, present, run_all
from solver.executor.kernels._windows import Block, block_view, blocks, channels_last
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops._spatial import Window
from solver.graph.ops.pooling import block_rows, pool_window
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _is_nchw(call: Call) -> bool:
    return bool(call.attributes["data_layout"] == "NCHW")


def _views(call: Call, *arrays: Array | None) -> list[Array]:
    return [channels_last(array, is_nchw=_is_nchw(call)) for array in present(*arrays)]


def _blocks(call: Call) -> list[Block]:
    return list(blocks(pool_window(call.node), call.node.input(0).shape[0], block_rows(call.node)))


# -------------------------------------------------------------------------------------- maximum


def _max_forward(call: Call) -> Step:
    x, y, argmax = _views(call, call.x[0], call.y[0], call.saved.get("argmax"))
    lowest = -np.inf if y.dtype.kind == "f" else np.iinfo(y.dtype).min
    steps: list[Step] = [bound(y.fill, lowest), bound(argmax.fill, 0)]
    for block in _blocks(call):
        data, out, arg = (
            x[block.example],
            y[block.example, block.start : block.stop],
            argmax[block.example, block.start : block.stop],
        )
        for tap in block.taps:
            mask = block_view(call.scratch["mask"], out[tap.out].shape, is_nchw=_is_nchw(call))
            steps.append(_take_larger(data[tap.data], out[tap.out], arg[tap.out], mask, tap.index))
    return run_all(steps)


def _take_larger(data: Array, out: Array, arg: Array, mask: Array, index: int) -> Step:
    number = arg.dtype.type(index)

    def run() -> None:
        np.greater(data, out, out=mask)
        np.copyto(out, data, where=mask)
        np.copyto(arg, number, where=mask)

    return run


def _max_backward(call: Call) -> Step:
    dx, dy, argmax = _views(call, call.dx[0], call.dy[0], call.saved.get("argmax"))
    steps: list[Step] = [bound(dx.fill, 0)]
    disjoint = pool_window(call.node).is_disjoint
    for block in _blocks(call):
        rows = slice(block.start, block.stop)
        for tap in block.taps:
            arg, source = argmax[block.example, rows][tap.out], dy[block.example, rows][tap.out]
            mask, product = (
                block_view(call.scratch[name], arg.shape, is_nchw=_is_nchw(call))
                for name in ("mask", "product")
            )
            target = dx[block.example][tap.data]
            steps.append(_give_back(target, source, arg, mask, product, tap.index, disjoint=disjoint))
    return run_all(steps)


def _give_back(
    dx: Array, dy: Array, arg: Array, mask: Array, product: Array, index: int, *, disjoint: bool
) -> Step:
    """Derivatives to the winners; where windows are disjoint each element is written once."""

    def alone() -> None:
        np.equal(arg, index, out=mask)
        np.multiply(dy, mask, out=dx)

    def shared() -> None:
        np.equal(arg, index, out=mask)
        np.multiply(dy, mask, out=product)
        np.add(dx, product, out=dx)

    return alone if disjoint else shared


# -------------------------------------------------------------------------------------- average


def _reciprocals(call: Call, window: Window, dtype: np.dtype[np.generic]) -> list[Array]:
    """One over the elements counted along each spatial axis, shaped to broadcast over ``[rows, ..., C]``."""
    found = []
    for axis in range(len(window.output)):
        starts = np.arange(window.output[axis]) * window.strides[axis] - window.begin[axis]
        taps = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        low, high = 0, window.data[axis]
        if call.attributes["count_include_pad"]:
            low, high = -window.begin[axis], window.data[axis] + window.end[axis]
        counts = ((taps >= low) & (taps < high)).sum(axis=1)
        shape = [1] * (len(window.output) + 1)
        shape[axis] = -1
        found.append((1.0 / counts).astype(dtype).reshape(shape))
    return found


def _average_forward(call: Call) -> Step:
    x, y = _views(call, call.x[0], call.y[0])
    scales = _reciprocals(call, pool_window(call.node), y.dtype)
    steps: list[Step] = [bound(y.fill, 0)]
    for block in _blocks(call):
        out = y[block.example, block.start : block.stop]
        steps += [
            bound(np.add, out[tap.out], x[block.example][tap.data], out=out[tap.out]) for tap in block.taps
        ]
        steps += _scaled(out, out, scales, block)
    return run_all(steps)


def _scaled(source: Array, out: Array, scales: list[Array], block: Block) -> list[Step]:
    """Multiply by the reciprocals of all axes; the first spatial axis is cut to the block."""
    rows = scales[0][block.start : block.stop]
    steps = [bound(np.multiply, source, rows, out=out)]
    return steps + [bound(np.multiply, out, scale, out=out) for scale in scales[1:]]


def _average_backward(call: Call) -> Step:
    dx, dy = _views(call, call.dx[0], call.dy[0])
    scales = _reciprocals(call, pool_window(call.node), dx.dtype)
    steps: list[Step] = [bound(dx.fill, 0)]
    for block in _blocks(call):
        source = dy[block.example, block.start : block.stop]
        product = block_view(call.scratch["product"], source.shape, is_nchw=_is_nchw(call))
        steps += _scaled(source, product, scales, block)
        for tap in block.taps:
            target = dx[block.example][tap.data]
            steps.append(bound(np.add, target, product[tap.out], out=target))
    return run_all(steps)


def _global_forward(call: Call) -> Step:
    x, y = _views(call, call.x[0], call.y[0])
    axes, share = tuple(range(1, x.ndim - 1)), y.dtype.type(y.size / x.size)

    def run() -> None:
        np.add.reduce(x, axis=axes, out=y, keepdims=True)
        np.multiply(y, share, out=y)

    return run


def _global_backward(call: Call) -> Step:
    dx, dy = _views(call, call.dx[0], call.dy[0])
    return bound(np.multiply, dy, dx.dtype.type(dy.size / dx.size), out=dx)


KERNELS = {
    "MaxPool": Kernels(_max_forward, _max_backward),
    "AveragePool": Kernels(_average_forward, _average_backward),
    "GlobalAveragePool": Kernels(_global_forward, _global_backward),
}
