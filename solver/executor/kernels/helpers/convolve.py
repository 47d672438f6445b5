"""Loops of a convolution over chunks, in either memory order, in any number of axes: matrix products.

Columns write the windows of a chunk out, so that one matrix product treats them all. Every product is
seen as [block, group, positions, features] times [group, features, filters]; the memory order only
decides which of the last two axes is the dense one, and BLAS takes both:

    NHWC   one block:         columns [positions, taps * channels], of a single channel transposed
    NCHW   a block an example: columns [channels * taps, positions], seen transposed

Pointwise convolutions need no columns: the images are the columns.

The loops go over the tiles of a stored W, and over the chunks of images for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels.base import Call
from solver.executor.kernels.helpers import depthwise
from solver.executor.kernels.helpers.blocks import Step, bound, present, staging
from solver.executor.kernels.helpers.inner import bias_steps, finish, inner, inner_source, optional
from solver.executor.kernels.helpers.stored import tiles, whole
from solver.executor.kernels.helpers.windows import channels_last, chunk, chunk_source, windows
from solver.graph.ops.convolution import Convolution
from solver.graph.ops.helpers.spatial import Part, Spatial
from solver.graph.types import Array

__all__ = ["convolve", "spread", "weigh"]

X, W, B = 0, 1, 2


# -------------------------------------------------------------------------------- views as matrices


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


# ------------------------------------------------------------------------------------------- loops


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
        return depthwise.forward(call, conv)
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
            steps += [*fill, *gather, product, *(finish(call, conv, target) if is_last else ())]
    return steps


def spread(call: Call, conv: Convolution) -> list[Step]:
    """dX from dY and W."""
    if conv.is_depthwise:
        scatter, correlate = depthwise.scatter, depthwise.correlate_back
    else:
        scatter, correlate = _scatter, _correlate_back
    return (scatter if conv.scatters else correlate)(call, conv)


def weigh(call: Call, conv: Convolution) -> list[Step]:
    """dW from X and dY, and dB from dY, each only if the step computes it."""
    return (depthwise.weigh if conv.is_depthwise else _weigh)(call, conv)


def _correlate_back(call: Call, conv: Convolution) -> list[Step]:
    """dX as the correlation of dZ with the flipped W; for stride 1."""
    window, layout = conv.transposed, conv.window.layout
    images = channels_last(present(call.dx[X])[0], layout)
    w, unpack = whole(call, W)
    weights, flip = _flipped(conv, w, call.scratch)
    steps = unpack + flip
    for part in conv.correlate(backward=True).parts():
        source, fill = inner_source(call, conv, part)
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
            dz, derive = inner(call, conv, part)
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
        dz, derive = inner(call, conv, part)
        steps += [*derive, *bias_steps(call, dz, first=not steps)]
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
