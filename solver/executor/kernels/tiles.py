"""Kernels that combine the results of operations on the tiles of one weight: `solver.graph.ops.tiles`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import (
    Step,
    bound,
    flat_blocks,
    present,
    run_all,
    with_small_buffers,
)
from solver.graph.ops import lookup
from solver.graph.ops.tiles import taken_rows
from solver.graph.packing import unpack_rows
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _tile_gather_forward(call: Call) -> Step:
    tile, indices, y = present(call.x[0], call.x[1], call.y[0])
    before = call.x[2] if len(call.x) > 2 else None
    first = bound(y.fill, 0) if before is None else bound(np.copyto, y, before)
    target = y.reshape(indices.size, -1)
    steps, count = [first], max(1, taken_rows(call.node))
    for start in range(0, indices.size, count):
        rows = slice(start, min(start + count, indices.size))
        steps.append(_rows_of_tile(call, tile, indices.reshape(-1)[rows], target[rows]))
    return with_small_buffers(run_all(steps))


def _rows_of_tile(call: Call, tile: Array, indices: Array, target: Array) -> Step:
    """The step that writes the rows of a tile to `target`, where the index of a row lies in the tile."""
    storage, count = call.node.input(0).storage, indices.size
    first, total = call.attributes["first_row"], call.attributes["rows"]
    allowed = lookup("TileGather").index_ranges(call.node)[1]
    index, inside, taken = (call.scratch[name][:count] for name in ("index", "inside", "taken"))
    rows = tile if storage is not None else tile.reshape(len(tile), -1)
    packed = taken if storage is None else call.scratch["packed"][:count]

    def run() -> None:
        np.copyto(index, indices)
        low, high = int(np.minimum.reduce(index)), int(np.maximum.reduce(index))
        if low < -total or high >= total:
            raise allowed.error(low if low < -total else high)
        if low < 0:
            np.remainder(index, total, out=index)
        np.subtract(index, first, out=index)
        np.less(index.view(np.uint64), len(rows), out=inside)  # a negative index is a large unsigned one
        if not inside.any():
            return
        np.take(rows, index, axis=0, out=packed, mode="clip")
        if storage is not None:
            unpack_rows(packed, storage, taken)
        np.copyto(target, taken, where=inside[:, np.newaxis])

    return run


def _log_add_exp_forward(call: Call) -> Step:
    parts = present(*call.x)
    (y,) = present(call.y[0])
    steps = [
        _joined(blocks[:-1], blocks[-1], *(call.scratch[name][: blocks[-1].size] for name in ("term", "sum")))
        for blocks in flat_blocks(*parts, y)
    ]
    return run_all(steps)


def _joined(parts: tuple[Array, ...], y: Array, term: Array, total: Array) -> Step:
    def run() -> None:
        np.copyto(y, parts[0])
        for part in parts[1:]:
            np.maximum(y, part, out=y)
        total.fill(0)
        for part in parts:
            np.subtract(part, y, out=term)
            np.exp(term, out=term)
            np.add(total, term, out=total)
        np.log(total, out=total)
        np.add(y, total, out=y)

    return run


def _log_add_exp_backward(call: Call) -> Step:
    y, dy = present(call.y[0], call.dy[0])
    steps: list[Step] = []
    for x, dx in zip(call.x, call.dx, strict=True):
        if dx is not None:
            (part,) = present(x)
            steps += [
                bound(np.subtract, part, y, out=dx),
                bound(np.exp, dx, out=dx),
                bound(np.multiply, dx, dy, out=dx),
            ]
    return run_all(steps)


KERNELS: Mapping[str, Kernels] = {
    "TileGather": Kernels(_tile_gather_forward, no_derivative),
    "LogAddExp": Kernels(_log_add_exp_forward, _log_add_exp_backward),
}
