"""Views of images: channels last whatever the memory order, chunks, and the windows over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from solver.executor.kernels.helpers.blocks import Step, bound, staging
from solver.graph.ops.helpers.spatial import Axis, Part, Spatial, in_order
from solver.graph.types import Array

__all__ = ["carve", "channels_last", "chunk", "chunk_source", "fill_source", "source_shape", "windows"]


def channels_last(images: Array, layout: str) -> Array:
    """[batch, *spatial, channels], a view."""
    return np.moveaxis(images, 1, -1) if layout == "NCHW" else images


def carve(scratch: Array, layout: str, batch: int, sizes: Sequence[int], channels: int) -> Array:
    """The front of a scratch array as images in memory order `layout`, seen channels last."""
    return channels_last(staging(scratch, in_order(layout, batch, channels, sizes)), layout)


def chunk(images: Array, part: Part) -> Array:
    """Examples and rows of `part` of images seen channels last."""
    return images[part.first : part.last, part.start : part.stop]


def windows(source: Array, axes: Sequence[Axis], rows: int) -> Array:
    """[batch, *outputs, *taps, channels]: what each of the first `rows` rows of windows looks at.

    `source` is seen channels last and starts where the first window does.
    """
    rank = len(axes)
    spatial = tuple(range(1, rank + 1))
    every = sliding_window_view(source, tuple(axis.extent for axis in axes), axis=spatial)
    outputs = [slice(0, (out - 1) * axis.stride + 1, axis.stride) for axis, out in _outputs(axes, rows)]
    taps = [slice(None, None, axis.dilation) for axis in axes]
    return np.moveaxis(every[(slice(None), *outputs, slice(None), *taps)], rank + 1, -1)


def _outputs(axes: Sequence[Axis], rows: int) -> Iterator[tuple[Axis, int]]:
    for position, axis in enumerate(axes):
        yield axis, rows if position == 0 else axis.out


def source_shape(axes: Sequence[Axis], rows: int) -> tuple[int, ...]:
    """Positions that `rows` rows of windows look at, padding included."""
    return tuple(axis.reach(out) for axis, out in _outputs(axes, rows))


def fill_source(
    window: Spatial, part: Part, target: Array, write: Callable[[tuple[slice, ...], Array], Step]
) -> list[Step]:
    """Steps that fill `target` with what the windows of `part` look at, zeros for the padding.

    `write` gets a region of the images (examples and spatial axes) and where to put it.
    """
    inside, regions = [slice(None)], [slice(part.first, part.last)]
    for position, axis in enumerate(window.axes):
        start = (part.start if position == 0 else 0) * axis.stride - axis.before
        first = min(max(start, 0), axis.size)
        last = max(min(start + target.shape[position + 1], axis.size), first)
        inside.append(slice(first - start, last - start))
        regions.append(slice(first, last))
    return [*_zero_around(target, inside), write(tuple(regions), target[tuple(inside)])]


def chunk_source(
    window: Spatial, part: Part, images: Array, scratch: Mapping[str, Array]
) -> tuple[Array, list[Step]]:
    """The rows under the windows of `part`, and the steps that copy them; a view if they need no copy."""
    shape = source_shape(window.axes, part.rows)
    if not window.is_copied:
        begin = part.start * window.axes[0].stride
        rest = tuple(slice(0, size) for size in shape[1:])
        return images[(slice(part.first, part.last), slice(begin, begin + shape[0]), *rest)], []
    target = carve(scratch["source"], window.layout, part.examples, shape, window.channels)
    return target, fill_source(
        window, part, target, lambda region, inside: bound(np.copyto, inside, images[region])
    )


def _zero_around(target: Array, inside: list[slice]) -> Iterator[Step]:
    """Steps that zero what lies outside `inside`: two slabs an axis, as narrow as `inside` before it."""
    for position in range(1, len(inside)):
        for slab in (slice(0, inside[position].start), slice(inside[position].stop, None)):
            border = target[(*inside[:position], slab)]
            if border.size:
                yield bound(border.fill, 0)
