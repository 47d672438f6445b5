"""Kernels of the convolution: loops over chunks, in either memory order, in any number of axes.

Most are matrix products. Columns write the windows of a chunk out, so that one product treats them all. Every
product is seen as [block, group, positions, features] times [group, features, filters]; the memory order only
decides which of the last two axes is the dense one, and BLAS takes both:

    NHWC   one block:         columns [positions, taps * channels], of a single channel transposed
    NCHW   a block an example: columns [channels * taps, positions], seen transposed

Pointwise convolutions need no columns: the images are the columns. The loops go over the tiles of a stored W,
and over the chunks of images for each.

Depthwise ones multiply and accumulate, tap by tap, on chunks that stay in the cache. Arrays are seen as
[examples, *outer, blocks, spread, channels, multiplier]: the last spatial axis is cut into blocks of `spread`
positions, over which a row of weights is repeated, so that NumPy's inner loop runs over spread * channels
elements where channels are innermost.

dZ, the derivative before the fused activation, is computed chunk by chunk into scratch; without an activation
it is dY itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.executor.kernels.helpers.blocks import (
    Step,
    bound,
    optional,
    present,
    run_all,
    staging,
    with_small_buffers,
)
from solver.executor.kernels.helpers.stored import tiles, whole
from solver.executor.kernels.helpers.windows import (
    carve,
    channels_last,
    chunk,
    chunk_source,
    fill_source,
    source_shape,
    windows,
)
from solver.graph.ops.convolution import Convolution, convolution
from solver.graph.ops.helpers.spatial import Part, Spatial
from solver.graph.types import Array

__all__ = ["KERNELS", "convolve", "spread", "weigh"]


X, W, B = 0, 1, 2


def _finish(call: Call, conv: Convolution, y: Array) -> list[Step]:
    """Steps that add the bias to a chunk of Y seen channels last and apply the activation."""
    bias, name = optional(call.x, B), conv.activation
    steps = [] if bias is None else [bound(np.add, y, bias, out=y)]
    return steps if name == "None" else [*steps, bound(apply_activation, name, y)]


def _inner(call: Call, conv: Convolution, part: Part) -> tuple[Array, list[Step]]:
    """dZ of a part seen channels last, and the steps that write it."""
    layout = conv.window.layout
    dy = chunk(channels_last(present(call.dy[0])[0], layout), part)
    if not conv.is_fused:
        return dy, []
    y = chunk(channels_last(present(call.y[0])[0], layout), part)
    dz = carve(call.scratch["inner"], layout, dy.shape[0], dy.shape[1:-1], conv.filters)
    return dz, [bound(activation_derivative, conv.activation, y, dy, dz)]


def _inner_source(call: Call, conv: Convolution, part: Part) -> tuple[Array, list[Step]]:
    """dZ as far as the flipped windows of a part of dX look at it, zeros where they leave it."""
    window, layout = conv.transposed, conv.window.layout
    dy = channels_last(present(call.dy[0])[0], layout)
    if not conv.is_fused:
        return chunk_source(window, part, dy, call.scratch)
    y = channels_last(present(call.y[0])[0], layout)
    shape = source_shape(window.axes, part.rows)
    target = carve(call.scratch["source"], layout, part.examples, shape, window.channels)

    def derive(region: tuple[slice, ...], inside: Array) -> Step:
        return bound(activation_derivative, conv.activation, y[region], dy[region], inside)

    return target, fill_source(window, part, target, derive)


def _bias_steps(call: Call, dz: Array, *, first: bool) -> list[Step]:
    """Steps that add the sum of a chunk of dZ, seen channels last, to dB, if the step computes it."""
    db = optional(call.dx, B)
    if db is None:
        return []
    axes = tuple(range(dz.ndim - 1))
    if first:
        return [bound(np.add.reduce, dz, axis=axes, out=db)]
    partial = call.scratch["partial_bias"]
    return [bound(np.add.reduce, dz, axis=axes, out=partial), bound(np.add, db, partial, out=db)]


# ------------------------------------------------------------------------------------------------ depthwise


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


def _depthwise_forward(call: Call, conv: Convolution) -> list[Step]:
    window, spread = conv.window, conv.spread(conv.window)
    x, y = (channels_last(array, window.layout) for array in present(call.x[X], call.y[0]))
    weights, steps = _tap_weights(call, conv, spread)
    for part in conv.correlate(backward=False).parts():
        source, fill = chunk_source(window, part, x, call.scratch)
        out = chunk(y, part)
        product = _split(_product(call, "product", window, part, conv.filters), conv, spread)
        pairs = zip(_taps(window, source, part, conv, spread), weights, strict=True)
        steps += [*fill, _accumulate(pairs, product, _split(out, conv, spread)), *_finish(call, conv, out)]
    return steps


def _depthwise_correlate_back(call: Call, conv: Convolution) -> list[Step]:
    """dX as the correlation of dZ with the flipped W; for stride 1."""
    window, spread = conv.transposed, conv.spread(conv.transposed)
    dx = channels_last(present(call.dx[X])[0], window.layout)
    weights, steps = _tap_weights(call, conv, spread, flip=True)
    for part in conv.correlate(backward=True).parts():
        source, fill = _inner_source(call, conv, part)
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


def _depthwise_scatter(call: Call, conv: Convolution) -> list[Step]:
    """dX as shares of dZ, added back tap by tap; for strides above 1."""
    window = conv.window
    dx = channels_last(present(call.dx[X])[0], window.layout)
    weights, steps = _tap_weights(call, conv, 1)
    steps.append(bound(dx.fill, 0))
    for part in conv.scatter().parts():
        dz, derive = _inner(call, conv, part)
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


def _depthwise_weigh(call: Call, conv: Convolution) -> list[Step]:
    """dW as sums of products of dZ and what each tap sees; dB as the sum of dZ.

    Positions within `spread` keep sums of their own, which are added up last: long inner loops again.
    """
    dw, steps = optional(call.dx, W), list[Step]()
    for part in conv.weigh(bias_only=dw is None).parts():
        dz, derive = _inner(call, conv, part)
        first = not steps
        steps += [*derive, *_bias_steps(call, dz, first=first)]
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


# ------------------------------------------------------------------------------------------ matrix products


def _matrices(images: Array, layout: str, groups: int) -> Array:
    """[block, group, positions, channels/group] of a chunk seen channels last; never a copy."""
    batch, channels = images.shape[0], images.shape[-1]
    if layout == "NCHW":
        planes = np.moveaxis(images, -1, 1).reshape(batch, channels, -1, copy=False)
        return planes.reshape(batch, groups, channels // groups, -1, copy=False).swapaxes(-1, -2)
    rows = images.reshape(-1, channels, copy=False)
    return rows.reshape(-1, groups, channels // groups, copy=False).swapaxes(0, 1)[None]


def _column_matrices(columns: Array, window: Spatial, part: Part, groups: int) -> tuple[Array, Array]:
    """Scratch for the columns of a part, as [block, group, positions, features], and as the windows are
    seen: [examples, *outputs, *taps, channels/group, group]."""
    rank, depth = len(window.axes), window.channels // groups
    outputs, taps = (part.rows, *window.outputs[1:]), [axis.kernel for axis in window.axes]
    if window.layout == "NCHW":
        memory = staging(columns, (part.examples, groups, depth, *taps, *outputs))
        matrices = memory.reshape(part.examples, groups, depth * window.taps, -1).swapaxes(-1, -2)
        order = (0, *range(3 + rank, 3 + 2 * rank), *range(3, 3 + rank), 1, 2)
        return matrices, memory.transpose(order)
    if window.channels == 1:  # taps innermost would be copied a few elements at a time
        memory = staging(columns, (*taps, part.examples, *outputs))
        matrices = memory.reshape(1, 1, window.taps, -1).swapaxes(-1, -2)
        return matrices, memory.transpose(*range(rank, 2 * rank + 1), *range(rank))[..., None, None]
    memory = staging(columns, (groups, part.examples, *outputs, *taps, depth))
    matrices = memory.reshape(1, groups, part.examples * part.rows * window.row, -1)
    return matrices, np.moveaxis(memory, 0, -2)


def _grouped(images: Array, groups: int) -> Array:
    """The channels of images seen channels last as [..., group, channels/group]."""
    return images.reshape(*images.shape[:-1], groups, images.shape[-1] // groups, copy=False)


def _weight_matrices(w: Array, groups: int) -> Array:
    """[group, filters/group, features]; features lie in memory as in the columns."""
    return w.reshape(groups, w.shape[0] // groups, -1)


def _filter_tiles(call: Call, conv: Convolution) -> Iterator[tuple[Array, tuple[slice, slice], list[Step]]]:
    """([group, filters, features], place in (groups, filters of a group), steps that unpack them) of each
    tile of W, which is all of it where it is not stored.
    """
    groups, each = conv.groups, conv.group_filters
    if not conv.tile:
        yield _weight_matrices(present(call.x[W])[0], groups), (slice(0, groups), slice(0, each)), []
        return
    for rows, tile, unpacks in tiles(call, W):
        group, first = divmod(rows.start, each)
        count, filters = max(1, len(tile) // each), min(each, len(tile))
        place = slice(group, group + count), slice(first, first + filters)
        yield tile.reshape(count, filters, -1), place, [unpacks]


def _flipped(conv: Convolution, w: Array, scratch: Mapping[str, Array]) -> tuple[Array, list[Step]]:
    """W of the correlation that takes dZ to dX, and the steps that write it.

    Inputs and outputs of each group trade places and the taps are reversed; a single tap needs no copy.
    """
    rank, groups = len(conv.window.axes), conv.groups
    if conv.window.taps == 1:
        return _weight_matrices(w, groups).swapaxes(-1, -2), []
    split = w.reshape(groups, conv.group_filters, *w.shape[1:])
    channel_axis = 2 if conv.window.layout == "NCHW" else rank + 2
    swapped = split.swapaxes(1, channel_axis)
    taps = tuple(range(3, rank + 3) if conv.window.layout == "NCHW" else range(2, rank + 2))
    target = staging(scratch["weights"], swapped.shape)
    matrices = target.reshape(groups, conv.group_channels, -1)
    return matrices, [bound(np.copyto, target, np.flip(swapped, taps))]


def _samples(
    conv: Convolution, window: Spatial, part: Part, source: Array, scratch: Mapping[str, Array]
) -> tuple[Array, list[Step]]:
    """The elements under the windows of a part, [block, group, positions, features], and their copying."""
    if window.is_pointwise:
        return _matrices(source, window.layout, conv.groups), []
    matrices, target = _column_matrices(scratch["columns"], window, part, conv.groups)
    seen = _grouped(windows(source, window.axes, part.rows), conv.groups)
    return matrices, [bound(np.copyto, target, seen)]


def convolve(call: Call, conv: Convolution) -> list[Step]:
    """Y from X and W."""
    if conv.is_depthwise:
        return _depthwise_forward(call, conv)
    layout = conv.window.layout
    images, out = (channels_last(array, layout) for array in present(call.x[X], call.y[0]))
    steps: list[Step] = []
    for weights, (groups, filters), unpack in _filter_tiles(call, conv):
        is_last = (groups.stop, filters.stop) == (conv.groups, conv.group_filters)
        steps += unpack
        for part in conv.correlate(backward=False).parts():
            source, fill = chunk_source(conv.window, part, images, call.scratch)
            samples, gather = _samples(conv, conv.window, part, source, call.scratch)
            target = chunk(out, part)
            sums = _matrices(target, layout, conv.groups)[:, groups, :, filters]
            product = bound(np.matmul, samples[:, groups], weights.swapaxes(-1, -2), out=sums)
            steps += [*fill, *gather, product, *(_finish(call, conv, target) if is_last else ())]
    return steps


def spread(call: Call, conv: Convolution) -> list[Step]:
    """dX from dY and W."""
    if conv.is_depthwise:
        scatter, correlate = _depthwise_scatter, _depthwise_correlate_back
    else:
        scatter, correlate = _scatter, _correlate_back
    return (scatter if conv.scatters else correlate)(call, conv)


def weigh(call: Call, conv: Convolution) -> list[Step]:
    """dW from X and dY, and dB from dY, each only if the step computes it."""
    return (_depthwise_weigh if conv.is_depthwise else _weigh)(call, conv)


def _correlate_back(call: Call, conv: Convolution) -> list[Step]:
    """dX as the correlation of dZ with the flipped W; for stride 1."""
    window, layout = conv.transposed, conv.window.layout
    images = channels_last(present(call.dx[X])[0], layout)
    w, unpack = whole(call, W)
    weights, flip = _flipped(conv, w, call.scratch)
    steps = unpack + flip
    for part in conv.correlate(backward=True).parts():
        source, fill = _inner_source(call, conv, part)
        samples, gather = _samples(conv, window, part, source, call.scratch)
        target = _matrices(chunk(images, part), layout, conv.groups)
        steps += [*fill, *gather, bound(np.matmul, samples, weights.swapaxes(-1, -2), out=target)]
    return steps


def _scatter(call: Call, conv: Convolution) -> list[Step]:
    """dX from columns of it, added back tap by tap."""
    window = conv.window
    (dx,) = present(call.dx[X])
    images = _grouped(channels_last(dx, window.layout), conv.groups)
    taps = list(np.ndindex(*(axis.kernel for axis in window.axes)))
    steps = [bound(dx.fill, 0)]
    for weights, (groups, filters), unpack in _filter_tiles(call, conv):
        steps += unpack
        for part in conv.scatter().parts():
            dz, derive = _inner(call, conv, part)
            columns, seen = _column_matrices(call.scratch["columns"], window, part, conv.groups)
            factor = _matrices(dz, window.layout, conv.groups)[:, groups, :, filters]
            steps += [*derive, bound(np.matmul, factor, weights, out=columns[:, groups])]
            for number, outputs, inputs in window.taps_of(part):
                share = seen[(*outputs, *taps[number])][..., groups, :]
                target = images[inputs][..., groups, :]
                steps.append(bound(np.add, target, share, out=target))
    return steps


def _weigh(call: Call, conv: Convolution) -> list[Step]:
    """dW as a sum of products of dZ and columns; dB as the sum of dZ."""
    dw, steps, fresh = optional(call.dx, W), list[Step](), True
    for part in conv.weigh(bias_only=dw is None).parts():
        dz, derive = _inner(call, conv, part)
        steps += [*derive, *_bias_steps(call, dz, first=not steps)]
        if dw is not None:
            images = channels_last(present(call.x[X])[0], conv.window.layout)
            source, fill = chunk_source(conv.window, part, images, call.scratch)
            samples, gather = _samples(conv, conv.window, part, source, call.scratch)
            blocks = zip(_matrices(dz, conv.window.layout, conv.groups), samples, strict=True)
            steps += [*fill, *gather]
            for dz_matrix, sample in blocks:
                steps += _add_product(call, conv, dw, (dz_matrix.swapaxes(-1, -2), sample), first=fresh)
                fresh = False
    return steps


def _add_product(
    call: Call, conv: Convolution, dw: Array, factors: tuple[Array, Array], *, first: bool
) -> Iterator[Step]:
    target = dw.reshape(*factors[0].shape[:2], -1)
    if first:
        yield bound(np.matmul, *factors, out=target)
        return
    for start in range(0, conv.group_filters, conv.filters_a_sum):
        some = (slice(None), slice(start, start + conv.filters_a_sum))
        partial = staging(call.scratch["partial"], target[some].shape)
        yield bound(np.matmul, factors[0][some], factors[1], out=partial)
        yield bound(np.add, target[some], partial, out=target[some])


def _forward(call: Call) -> Step:
    return with_small_buffers(run_all(convolve(call, convolution(call.node))))


def _backward(call: Call) -> Step:
    conv = convolution(call.node)
    steps: list[Step] = []
    if optional(call.dx, W) is not None or optional(call.dx, B) is not None:
        steps += weigh(call, conv)
    if optional(call.dx, X) is not None:
        steps += spread(call, conv)
    return with_small_buffers(run_all(steps))


KERNELS: Mapping[str, Kernels] = {"Conv": Kernels(_forward, _backward)}
