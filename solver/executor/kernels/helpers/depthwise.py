"""Depthwise convolution: multiply and accumulate, tap by tap, on chunks that stay in the cache.

Arrays are seen as [examples, *outer, blocks, spread, channels, multiplier]: the last spatial axis is cut
into blocks of `spread` positions, over which a row of weights is repeated, so that NumPy's inner loop
runs over spread * channels elements where channels are innermost.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solver.executor.kernels.base import Call
from solver.executor.kernels.helpers.blocks import Step, bound, present, staging
from solver.executor.kernels.helpers.inner import bias_steps, finish, inner, inner_source, optional
from solver.executor.kernels.helpers.stored import whole
from solver.executor.kernels.helpers.windows import carve, channels_last, chunk, chunk_source, windows
from solver.graph.ops.convolution import Convolution
from solver.graph.ops.helpers.spatial import Part, Spatial
from solver.graph.types import Array

__all__ = ["correlate_back", "forward", "scatter", "weigh"]

X, W = 0, 1


def _split(images: Array, conv: Convolution, spread: int) -> Array:
    """[examples, *outer, blocks, spread, channels, multiplier or 1] of images seen channels last."""
    *outer, width, channels = images.shape
    groups = conv.groups
    return images.reshape(*outer, width // spread, spread, groups, channels // groups, copy=False)


def _taps(window: Spatial, source: Array, part: Part, conv: Convolution, spread: int) -> Iterator[Array]:
    """The elements under each tap of the windows, split."""
    seen = windows(source, window.axes, part.rows)
    for tap in np.ndindex(*(axis.kernel for axis in window.axes)):
        rank = len(window.axes)
        yield _split(seen[(slice(None),) * (rank + 1) + tap], conv, spread)


def _tap_weights(
    call: Call, conv: Convolution, spread: int, *, flip: bool = False
) -> tuple[Array, list[Step]]:
    """W as [taps, spread, channels, multiplier], and the steps that write it."""
    filters, unpack = whole(call, W)
    w = filters.reshape(conv.groups, conv.group_filters, -1)
    rows = np.moveaxis(w[..., ::-1] if flip else w, -1, 0)[:, None]
    shape = (conv.window.taps, spread, conv.groups, conv.group_filters)
    target = staging(call.scratch["weights"], shape)
    return target, [*unpack, bound(np.copyto, target, rows)]


def _product(call: Call, name: str, window: Spatial, part: Part, channels: int) -> Array:
    """Scratch for the products of one tap, images seen channels last."""
    sizes = (part.rows, *window.outputs[1:])
    return carve(call.scratch[name], window.layout, part.examples, sizes, channels)


def _accumulate(pairs: Iterator[tuple[Array, Array]], product: Array, target: Array) -> Step:
    """One step for target = sum of the products of all pairs."""
    (left, right), *rest = pairs

    def run() -> None:
        np.multiply(left, right, out=target)
        for a, b in rest:
            np.multiply(a, b, out=product)
            np.add(target, product, out=target)

    return run


def forward(call: Call, conv: Convolution) -> list[Step]:
    window, spread = conv.window, conv.spread(conv.window)
    x, y = (channels_last(array, window.layout) for array in present(call.x[X], call.y[0]))
    weights, steps = _tap_weights(call, conv, spread)
    for part in conv.correlate(backward=False).parts():
        source, fill = chunk_source(window, part, x, call.scratch)
        out = chunk(y, part)
        product = _split(_product(call, "product", window, part, conv.filters), conv, spread)
        pairs = zip(_taps(window, source, part, conv, spread), weights, strict=True)
        steps += [*fill, _accumulate(pairs, product, _split(out, conv, spread)), *finish(call, conv, out)]
    return steps


def correlate_back(call: Call, conv: Convolution) -> list[Step]:
    """dX as the correlation of dZ with the flipped W; for stride 1."""
    window, spread = conv.transposed, conv.spread(conv.transposed)
    dx = channels_last(present(call.dx[X])[0], window.layout)
    weights, steps = _tap_weights(call, conv, spread, flip=True)
    for part in conv.correlate(backward=True).parts():
        source, fill = inner_source(call, conv, part)
        product = _split(_product(call, "product", window, part, conv.groups), conv, spread)
        target = _split(chunk(dx, part), conv, spread)
        seen = _taps(window, source, part, conv, spread)
        pairs = (
            (tap[..., j : j + 1], weight[..., j : j + 1])
            for tap, weight in zip(seen, weights, strict=True)
            for j in range(conv.group_filters)
        )
        steps += [*fill, _accumulate(pairs, product, target)]
    return steps


def scatter(call: Call, conv: Convolution) -> list[Step]:
    """dX as shares of dZ, added back tap by tap; for strides above 1."""
    window = conv.window
    dx = channels_last(present(call.dx[X])[0], window.layout)
    weights, steps = _tap_weights(call, conv, 1)
    steps.append(bound(dx.fill, 0))
    for part in conv.scatter().parts():
        dz, derive = inner(call, conv, part)
        split = dz.reshape(*dz.shape[:-1], conv.groups, conv.group_filters, copy=False)
        product = _product(call, "columns", window, part, conv.groups)
        steps += derive
        for number, outputs, inputs in window.taps_of(part):
            for j in range(conv.group_filters):
                factors = (split[outputs][..., j], weights[number, 0, :, j])
                steps.append(_add_share(*factors, product[outputs], dx[inputs]))
    return steps


def _add_share(dz: Array, weight: Array, product: Array, dx: Array) -> Step:
    def run() -> None:
        np.multiply(dz, weight, out=product)
        np.add(dx, product, out=dx)

    return run


def weigh(call: Call, conv: Convolution) -> list[Step]:
    """dW as sums of products of dZ and what each tap sees; dB as the sum of dZ.

    Positions within `spread` keep sums of their own, which are added up last: long inner loops again.
    """
    dw, steps = optional(call.dx, W), list[Step]()
    for part in conv.weigh(bias_only=dw is None).parts():
        dz, derive = inner(call, conv, part)
        first = not steps
        steps += [*derive, *bias_steps(call, dz, first=first)]
        if dw is not None:
            steps += _weigh_chunk(call, conv, part, dz, first=first)
    if dw is not None:
        target = np.moveaxis(dw.reshape(conv.groups, conv.group_filters, -1), -1, 0)
        steps.append(bound(np.add.reduce, _sums(call, "sums", conv), axis=1, out=target))
    return steps


def _sums(call: Call, name: str, conv: Convolution) -> Array:
    spread = conv.sums_spread(conv.window)
    return staging(call.scratch[name], (conv.window.taps, spread, conv.groups, conv.group_filters))


def _weigh_chunk(call: Call, conv: Convolution, part: Part, dz: Array, *, first: bool) -> list[Step]:
    window, spread = conv.window, conv.sums_spread(conv.window)
    x = channels_last(present(call.x[X])[0], window.layout)
    source, steps = chunk_source(window, part, x, call.scratch)
    product = _split(_product(call, "product", window, part, conv.filters), conv, spread)
    sums = _sums(call, "sums" if first else "partial", conv)
    factor, axes = _split(dz, conv, spread), tuple(range(product.ndim - 3))
    for seen, into in zip(_taps(window, source, part, conv, spread), sums, strict=True):
        steps.append(bound(np.multiply, seen, factor, out=product))
        steps.append(bound(np.add.reduce, product, axis=axes, out=into))
    if not first:
        total = _sums(call, "sums", conv)
        steps.append(bound(np.add, total, sums, out=total))
    return steps
