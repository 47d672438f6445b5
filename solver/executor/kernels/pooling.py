"""Pooling tap by tap: each tap of the window is one strided view of the input, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present, run_all, with_small_buffers
from solver.executor.kernels.helpers.windows import carve, channels_last, chunk
from solver.graph.ops.helpers.spatial import Part, Spatial
from solver.graph.ops.pooling import ARG_MAX, BACKWARD_SCRATCH, pool_chunks, pool_window
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _chunk_scratch(call: Call, name: str, window: Spatial, part: Part) -> Array:
    sizes = (part.rows, *window.outputs[1:])
    return carve(call.scratch[name], window.layout, part.examples, sizes, window.channels)


def _lowest(array: Array) -> float | int:
    return -math.inf if array.dtype.kind == "f" else int(np.iinfo(array.dtype).min)


# ------------------------------------------------------------------------------------------- maximum


def _max_forward(call: Call) -> Step:
    window = pool_window(call.node)
    x, y = (channels_last(array, window.layout) for array in present(call.x[0], call.y[0]))
    saved = call.saved.get(ARG_MAX)
    taps = None if saved is None else channels_last(saved, window.layout)
    steps: list[Step] = []
    for part in pool_chunks(call.node, "wins").parts():
        largest = chunk(y, part)
        steps += _max_chunk(window, part, x, largest)
        if taps is not None:
            wins = _chunk_scratch(call, "wins", window, part)
            steps += _tap_chunk(window, part, x, (largest, chunk(taps, part), wins))
    return with_small_buffers(run_all(steps))


def _max_chunk(window: Spatial, part: Part, x: Array, y: Array) -> list[Step]:
    """The largest of all taps."""
    steps = [bound(y.fill, _lowest(y))]
    for _, outputs, inputs in window.taps_of(part):
        steps.append(bound(np.maximum, y[outputs], x[inputs], out=y[outputs]))
    return steps


def _tap_chunk(window: Spatial, part: Part, x: Array, chunks: tuple[Array, Array, Array]) -> list[Step]:
    """Which tap the largest came from.

    A tap is stored as its distance from the last tap, plus 1: then the first of several equal taps is
    the largest number, and 0 is left for windows that look at padding alone.
    """
    y, taps, wins = chunks
    steps = [bound(taps.fill, 0)]
    for number, outputs, inputs in window.taps_of(part):
        operands = (x[inputs], y[outputs], taps[outputs], wins[outputs])
        steps.append(_keep_tap(*operands, window.taps - number))
    return steps


def _keep_tap(x: Array, y: Array, taps: Array, wins: Array, code: int) -> Step:
    equal = wins.view(np.bool_) if wins.itemsize == 1 else wins

    def run() -> None:
        np.equal(x, y, out=equal)
        np.multiply(wins, code, out=wins)
        np.maximum(taps, wins, out=taps)

    return run


def _max_backward(call: Call) -> Step:
    window = pool_window(call.node)
    dy, dx = (channels_last(array, window.layout) for array in present(call.dy[0], call.dx[0]))
    taps = channels_last(call.saved[ARG_MAX], window.layout)
    steps = [bound(dx.fill, 0)]
    for part in pool_chunks(call.node, *BACKWARD_SCRATCH).parts():
        mask = _chunk_scratch(call, "mask", window, part)
        product = _chunk_scratch(call, "product", window, part) if window.overlaps else None
        for number, outputs, inputs in window.taps_of(part):
            operands = (chunk(taps, part)[outputs], chunk(dy, part)[outputs], dx[inputs], mask[outputs])
            piece = None if product is None else product[outputs]
            steps.append(_scatter_tap(*operands, piece, window.taps - number))
    return with_small_buffers(run_all(steps))


def _scatter_tap(taps: Array, dy: Array, dx: Array, mask: Array, product: Array | None, code: int) -> Step:
    def assign() -> None:
        np.equal(taps, code, out=mask)
        np.multiply(dy, mask, out=dx)

    if product is None:
        return assign
    share = product

    def add() -> None:
        np.equal(taps, code, out=mask)
        np.multiply(dy, mask, out=share)
        np.add(dx, share, out=dx)

    return add


# ------------------------------------------------------------------------------------------- average


def _weights(call: Call, window: Spatial) -> list[Array]:
    """One over the number of elements under a window, a factor for each spatial axis."""
    padded = call.attributes["count_include_pad"]
    rank, dtype = len(window.axes), call.node.input(0).dtype.numpy
    factors = []
    for position, axis in enumerate(window.axes):
        low, high = (-axis.before, axis.size + axis.after) if padded else (0, axis.size)
        starts = np.arange(axis.out)[:, None] * axis.stride - axis.before
        reads = starts + np.arange(axis.kernel) * axis.dilation
        counts = np.maximum(((reads >= low) & (reads < high)).sum(1), 1)
        shape = [1] * (rank + 2)
        shape[position + 1] = axis.out
        factors.append((1 / counts).astype(dtype).reshape(shape))
    return factors


def _scale(source: Array, target: Array, factors: list[Array], part: Part) -> list[Step]:
    """Steps for target = source times the factors; one multiplication where they are all alike."""
    if all((factor == factor.flat[0]).all() for factor in factors):
        return [bound(np.multiply, source, math.prod(float(f.flat[0]) for f in factors), out=target)]
    first, *others = factors
    steps = [bound(np.multiply, source, first[:, part.start : part.stop], out=target)]
    return steps + [bound(np.multiply, target, factor, out=target) for factor in others]


def _average_forward(call: Call) -> Step:
    window = pool_window(call.node)
    x, y = (channels_last(array, window.layout) for array in present(call.x[0], call.y[0]))
    factors = _weights(call, window)
    steps: list[Step] = []
    for part in pool_chunks(call.node, "scaled").parts():
        mean = chunk(y, part)
        steps.append(bound(mean.fill, 0))
        for _, outputs, inputs in window.taps_of(part):
            steps.append(bound(np.add, mean[outputs], x[inputs], out=mean[outputs]))
        steps += _scale(mean, mean, factors, part)
    return with_small_buffers(run_all(steps))


def _average_backward(call: Call) -> Step:
    window = pool_window(call.node)
    dy, dx = (channels_last(array, window.layout) for array in present(call.dy[0], call.dx[0]))
    factors = _weights(call, window)
    steps = [bound(dx.fill, 0)]
    for part in pool_chunks(call.node, "scaled").parts():
        scaled = _chunk_scratch(call, "scaled", window, part)
        steps += _scale(chunk(dy, part), scaled, factors, part)
        for _, outputs, inputs in window.taps_of(part):
            steps.append(bound(np.add, dx[inputs], scaled[outputs], out=dx[inputs]))
    return with_small_buffers(run_all(steps))


# -------------------------------------------------------------------------------------- global average


def _positions(images: Array) -> int:
    return math.prod(images.shape[1:-1])


def _global_forward(call: Call) -> Step:
    layout = call.attributes["data_layout"]
    x, y = (channels_last(array, layout) for array in present(call.x[0], call.y[0]))
    axes = tuple(range(1, x.ndim - 1))
    total = bound(np.add.reduce, x, axis=axes, out=y, keepdims=True)
    return with_small_buffers(run_all([total, bound(np.divide, y, _positions(x), out=y)]))


def _global_backward(call: Call) -> Step:
    layout = call.attributes["data_layout"]
    dy, dx = (channels_last(array, layout) for array in present(call.dy[0], call.dx[0]))
    return with_small_buffers(bound(np.divide, dy, _positions(dx), out=dx))


KERNELS: Mapping[str, Kernels] = {
    "MaxPool": Kernels(_max_forward, _max_backward),
    "AveragePool": Kernels(_average_forward, _average_backward),
    "GlobalAveragePool": Kernels(_global_forward, _global_backward),
}
