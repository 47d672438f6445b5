"""Stored weights, tile by tile: rows are unpacked into scratch, used, and unpacked over by the next ones."""

from __future__ import annotations

from collections.abc import Iterator

from solver.executor.kernels.base import Call
from solver.executor.kernels.helpers.blocks import Step, bound, present, with_small_buffers
from solver.graph.ops.helpers.stored import tile_rows
from solver.graph.packing import unpack_rows
from solver.graph.types import Array

__all__ = ["tiles"]


def tiles(call: Call, position: int) -> Iterator[tuple[slice, Array, Step]]:
    """(rows of a stored input, their elements in scratch, step that unpacks them), for all rows in order."""
    (packed,) = present(call.x[position])
    storage = call.node.input(position).storage
    assert storage is not None, "only stored inputs are unpacked"
    size = tile_rows(call.node, position)
    for start in range(0, len(packed), size):
        rows = slice(start, min(start + size, len(packed)))
        tile = call.scratch["tile"][: rows.stop - rows.start]
        yield rows, tile, with_small_buffers(bound(unpack_rows, packed[rows], storage, tile))
