"""Stored weights, tile by tile: rows are unpacked into scratch, used, and unpacked over by the next ones."""

from __future__ import annotations

from collections.abc import Iterator

from solver.executor.kernels.base import Call
from solver.executor.kernels.helpers.blocks import Step, bound, present, with_small_buffers
from solver.graph.ops.helpers.stored import is_stored
from solver.graph.packing import unpack_rows
from solver.graph.types import Array

__all__ = ["tiles", "whole"]


def tiles(call: Call, position: int) -> Iterator[tuple[slice, Array, Step]]:
    """(rows of a stored input, their elements in scratch, step that unpacks them), for all rows in order.

    As many rows at a time as the scratch holds.
    """
    (packed,) = present(call.x[position])
    storage = call.node.input(position).storage
    assert storage is not None, "only stored inputs are unpacked"
    size = len(call.scratch["tile"])
    for start in range(0, len(packed), size):
        rows = slice(start, min(start + size, len(packed)))
        tile = call.scratch["tile"][: rows.stop - rows.start]
        yield rows, tile, with_small_buffers(bound(unpack_rows, packed[rows], storage, tile))


def whole(call: Call, position: int) -> tuple[Array, list[Step]]:
    """An input in its shape, and, where it is stored, the step that unpacks it: one tile holds all of it."""
    if not is_stored(call.node, position):
        return present(call.x[position])[0], []
    ((_, tile, unpacks),) = tiles(call, position)
    return tile.reshape(call.node.input(position).shape), [unpacks]
