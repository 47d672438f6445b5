"""Views that window kernels share: channels last whatever the layout, and blocks of output rows.

Kernels that work tap by tap go through the output in blocks of rows, so that a block, its input
and one block of scratch stay in the cache while all taps pass over them:

    output rows r0..r1  <- tap 0: input rows r0*s .. r1*s
                        <- tap 1: input rows r0*s+d ..        (sliced once, when prepared)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solver.graph.ops._spatial import Tap, Window
from solver.graph.types import Array

__all__ = ["Block", "block_view", "blocks", "channels_last"]


@dataclass(frozen=True, slots=True)
class Block:
    """Output rows ``[start, stop)`` of one example, and the taps that meet data there.

    The slices of `taps` are absolute in the input and relative to the block in the output.
    """

    example: int
    start: int
    stop: int
    taps: tuple[Tap, ...]


def channels_last(array: Array, *, is_nchw: bool) -> Array:
    """View ``[N, *spatial, C]`` of data in either layout."""
    return np.moveaxis(array, 1, -1) if is_nchw else array


def block_view(scratch: Array, shape: tuple[int, ...], *, is_nchw: bool) -> Array:
    """The front of flat scratch as ``[rows, ..., C]``, in the memory order of the data's layout."""
    size = int(np.prod(shape))
    if is_nchw:
        return np.moveaxis(scratch[:size].reshape(shape[-1], *shape[:-1]), 0, -1)
    return scratch[:size].reshape(shape)


def blocks(window: Window, batch: int, rows: int) -> Iterator[Block]:
    """Blocks of at most `rows` output rows, example by example, in order."""
    whole = [tap for tap in window.tap_slices() if not tap.is_empty]
    cuts = []
    for start in range(0, window.output[0], rows):
        stop = min(start + rows, window.output[0])
        cut = (_restricted(tap, start, stop) for tap in whole)
        cuts.append((start, stop, tuple(tap for tap in cut if tap is not None)))
    for example in range(batch):
        for start, stop, taps in cuts:
            yield Block(example, start, stop, taps)


def _restricted(tap: Tap, start: int, stop: int) -> Tap | None:
    out, data = tap.out[0], tap.data[0]
    first, last = max(out.start, start), min(out.stop, stop)
    if first >= last:
        return None
    begin = data.start + (first - out.start) * data.step
    end = begin + (last - first - 1) * data.step + 1
    return Tap(
        tap.index,
        (slice(first - start, last - start), *tap.out[1:]),
        (slice(begin, end, data.step), *tap.data[1:]),
    )
