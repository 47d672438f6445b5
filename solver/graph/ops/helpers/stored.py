"""Stored weights in kernels: how many rows are unpacked at a time, and the scratch that holds them."""

from __future__ import annotations

from solver.graph.ops.base import Node, ScratchRequest, scratch
from solver.graph.types import DType

__all__ = ["is_stored", "tile_request", "tile_rows"]


def is_stored(node: Node, position: int) -> bool:
    """Whether the input has a storage of its own, so that kernels unpack it."""
    return node.has_input(position) and node.input(position).storage is not None


def tile_rows(node: Node, position: int) -> int:
    """Rows of a stored input that are unpacked at a time: as many as the scratch budget holds, at least 1."""
    type_ = node.input(position)
    assert type_.storage is not None, "only stored inputs are unpacked"
    rows, inner = type_.storage.matrix(type_.shape)
    return min(rows, max(1, node.scratch_budget // max(1, inner * DType.FLOAT32.itemsize)))


def tile_request(node: Node, position: int, rows: int | None = None) -> ScratchRequest:
    """The scratch ``tile``, ``float32[rows, elements of a row]``, of `tile_rows` where not of `rows`."""
    type_ = node.input(position)
    assert type_.storage is not None, "only stored inputs are unpacked"
    size = tile_rows(node, position) if rows is None else rows
    return scratch("tile", (size, type_.storage.matrix(type_.shape)[1]), DType.FLOAT32)
