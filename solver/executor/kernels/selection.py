"""Kernels that choose elements by a condition or by an index, and that add rows where an index says.

Several rows may be added at one place. Wide rows are added one after the other. Narrow ones go in groups, by
sorted index:

    index   7 2 7 7 2 9        sorted    2 2 | 7 7 7 | 9        (equal ones in the order they had)

    round 0 adds the first row of each run, all at different places, by one addition; round 1 the second ...
    a run of `_MIN_RUN` equal indices or more is summed up by one reduction instead

`np.add.at` adds one element at a time; `np.add.reduceat` walks down columns, which misses the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

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
from solver.executor.kernels.helpers.broadcast import Parts, broadcast_backward
from solver.graph.ops.helpers.stored import is_stored
from solver.graph.ops.selection import Rows, gathered_rows, rows_range
from solver.graph.packing import unpack_rows
from solver.graph.types import Array

__all__ = ["KERNELS"]


#: Indices that are turned into Python's integers at a time, so that they take a few KiB.
_INDICES_AT_A_TIME = 512
#: Equal indices in a group that are worth a call of their own.
_MIN_RUN = 16


def _add_rows(index: Array, source: Array, target: Array) -> Step:
    """A step that adds each row of `source` to row `index` of `target`, in order."""

    def run() -> None:
        for start in range(0, index.size, _INDICES_AT_A_TIME):
            numbers = index[start : start + _INDICES_AT_A_TIME].tolist()
            for number, row in zip(numbers, source[start : start + _INDICES_AT_A_TIME], strict=True):
                into = target[number]
                np.add(into, row, out=into)

    return run


def _add_groups(index: Array, source: Array, target: Array, scratch: Mapping[str, Array]) -> Step:
    """The same for matrices, by groups; sorts `index`, scratch like `order`, `rows` and `sums`."""
    order, rows, sums = scratch["order"][: index.size], scratch["rows"], scratch["sums"]

    def run() -> None:
        _sort(index, order)
        for start in range(0, index.size, len(rows)):
            part = slice(start, start + len(rows))
            _add_group(index[part], order[part], source, target, (rows, sums))

    return run


def _sort(index: Array, order: Array) -> None:
    """Sort `index` in place, and write to `order` where each stood: one key holds both numbers."""
    count = index.size
    np.multiply(index, count, out=order)
    index.fill(1)
    np.add.accumulate(index[1:], out=index[1:])
    index[0] = 0
    np.add(order, index, out=order)
    order.sort()
    np.floor_divide(order, count, out=index)
    np.remainder(order, count, out=order)


def _add_group(
    index: Array, order: Array, source: Array, target: Array, scratch: tuple[Array, Array]
) -> None:
    starts = _starts(index)
    lengths = np.diff(starts, append=index.size)
    is_long = lengths >= _MIN_RUN
    if is_long.any():
        for start, length in zip(starts[is_long].tolist(), lengths[is_long].tolist(), strict=True):
            run = slice(start, start + length)
            _add_run(source, order[run], target[index[start]], scratch)
        starts, lengths = starts[~is_long], lengths[~is_long]
    for places in _rounds(starts, lengths):
        _add_round(source, order[places], target, index[places], scratch)


def _starts(index: Array) -> Array:
    """Positions at which runs of equal indices start."""
    starts = np.flatnonzero(index[1:] != index[:-1])
    np.add(starts, 1, out=starts)
    return np.concatenate((np.zeros(1, starts.dtype), starts))


def _rounds(starts: Array, lengths: Array) -> Iterator[Array]:
    """Positions of the first index of each run, then of the second of runs that have one, and so on."""
    number = 0
    while starts.size:
        yield starts + number
        number += 1
        longer = lengths > number
        starts, lengths = starts[longer], lengths[longer]


def _add_run(source: Array, places: Array, into: Array, scratch: tuple[Array, Array]) -> None:
    """Sum of rows that belong to one place."""
    rows, total = scratch[0][: places.size], scratch[1][0]
    np.take(source, places, axis=0, out=rows, mode="clip")
    np.add.reduce(rows, axis=0, out=total)
    np.add(into, total, out=into)


def _add_round(
    source: Array, places: Array, target: Array, index: Array, scratch: tuple[Array, Array]
) -> None:
    """Rows that belong to different places. "clip" never clips, and unlike "raise" needs no copy."""
    rows, sums = (array[: index.size] for array in scratch)
    np.take(source, places, axis=0, out=rows, mode="clip")
    np.take(target, index, axis=0, out=sums, mode="clip")
    np.add(sums, rows, out=sums)
    target[index] = sums


# --------------------------------------------------------------------------------------------- where


def _where_forward(call: Call) -> Step:
    condition, left, right, y = present(call.x[0], call.x[1], call.x[2], call.y[0])

    def run() -> None:
        np.copyto(y, right)
        np.copyto(y, left, where=condition)

    return with_small_buffers(run)


def _where_left(parts: Parts, out: Array) -> None:
    out.fill(0)
    np.copyto(out, parts.dz, where=parts.x[0])


def _where_right(parts: Parts, out: Array) -> None:
    np.copyto(out, parts.dz)
    np.copyto(out, 0, where=parts.x[0])


# ---------------------------------------------------------------------------- gather, and its counterpart


def _indices(call: Call, rows: Rows) -> Iterator[tuple[slice, Array, Step]]:
    """(which of the indices, scratch that holds them, step that writes and checks them) by blocks."""
    (indices,) = present(call.x[1])
    start = 0
    for (part,) in flat_blocks(indices):
        index = call.scratch["index"][: part.size]
        yield slice(start, start + part.size), index, _index_step(call, rows, part, index)
        start += part.size


def _index_step(call: Call, rows: Rows, indices: Array, index: Array) -> Step:
    def run() -> None:
        np.copyto(index, indices)
        low, high = int(np.minimum.reduce(index)), int(np.maximum.reduce(index))
        if low < -rows.size or high >= rows.size:
            raise rows_range(call.node).error(low if low < -rows.size else high)
        if low < 0:
            np.remainder(index, rows.size, out=index)

    return run


def _taken(call: Call, data: Array, target: Array) -> list[Step]:
    """Steps that write the rows of the data at the indices."""
    rows = gathered_rows(call.node)
    source = data.reshape(rows.outer, rows.size, rows.inner)
    taken = target.reshape(rows.outer, rows.picked, rows.inner)
    steps: list[Step] = []
    for places, index, prepare in _indices(call, rows):
        steps.append(prepare)
        if places == slice(0, rows.picked):
            # Checked above: "clip" never clips, and unlike "raise" writes straight to its output.
            steps.append(bound(np.take, source, index, axis=1, out=taken, mode="clip"))
            continue
        for matrix, out in zip(source, taken, strict=True):
            steps.append(bound(np.take, matrix, index, axis=0, out=out[places], mode="clip"))
    return steps


def _added(call: Call, gradient: Array, data: Array) -> list[Step]:
    """Steps that add rows to those of the data at the indices."""
    rows = gathered_rows(call.node)
    # One row of what is added is [outer, inner], or [inner] where there is no outer axis.
    source = np.moveaxis(gradient.reshape(rows.outer, rows.picked, rows.inner), 1, 0)
    target = np.moveaxis(data.reshape(rows.outer, rows.size, rows.inner), 1, 0)
    if rows.outer == 1:
        source, target = source[:, 0], target[:, 0]
    steps: list[Step] = []
    for places, index, prepare in _indices(call, rows):
        add = partial(_add_groups, scratch=call.scratch) if rows.group else _add_rows
        steps += [prepare, add(index, source[places], target)]
    return steps


def _unpacked_rows(call: Call, packed: Array, target: Array) -> list[Step]:
    """Steps that take the packed rows at the indices, and write their elements."""
    rows, storage = gathered_rows(call.node), call.node.input(0).storage
    assert storage is not None, "only stored tables are packed"
    taken = target.reshape(rows.picked, rows.inner)
    steps: list[Step] = []
    for places, index, prepare in _indices(call, rows):
        part = call.scratch["packed"][: index.size]
        steps += [
            prepare,
            bound(np.take, packed, index, axis=0, out=part, mode="clip"),
            with_small_buffers(bound(unpack_rows, part, storage, taken[places])),
        ]
    return steps


def _gather_forward(call: Call) -> Step:
    if is_stored(call.node, 0):
        return run_all(_unpacked_rows(call, *present(call.x[0], call.y[0])))
    return run_all(_taken(call, *present(call.x[0], call.y[0])))


def _gather_backward(call: Call) -> Step:
    dy, dx = present(call.dy[0], call.dx[0])
    return with_small_buffers(run_all([bound(dx.fill, 0), *_added(call, dy, dx)]))


def _scatter_forward(call: Call) -> Step:
    x, updates, y = present(call.x[0], call.x[2], call.y[0])
    return with_small_buffers(run_all([bound(np.copyto, y, x), *_added(call, updates, y)]))


def _scatter_backward(call: Call) -> Step:
    """dX may be the memory of dY, which it is a copy of."""
    (dy,) = present(call.dy[0])
    steps: list[Step] = [] if call.dx[0] is None else [bound(np.copyto, call.dx[0], dy)]
    if call.dx[2] is not None:
        steps += _taken(call, dy, call.dx[2])
    return run_all(steps)


#: How an update is joined with the row that it is for.
_JOINS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _update_forward(call: Call) -> Step:
    x, updates, y = present(call.x[0], call.x[2], call.y[0])
    rows = gathered_rows(call.node)
    source, target = updates.reshape(rows.picked, rows.inner), y.reshape(rows.size, rows.inner)
    join = _JOINS.get(call.attributes["reduction"])
    steps: list[Step] = [bound(np.copyto, y, x)]
    for places, index, prepare in _indices(call, rows):
        steps.append(prepare)
        if join is None:
            steps.append(bound(target.__setitem__, index, source[places]))
        else:
            steps.append(bound(join.at, target, index, source[places]))
    return with_small_buffers(run_all(steps))


KERNELS: Mapping[str, Kernels] = {
    "Where": Kernels(_where_forward, broadcast_backward(None, _where_left, _where_right)),
    "Gather": Kernels(_gather_forward, _gather_backward),
    "ScatterUpdate": Kernels(_update_forward, no_derivative),
    "ScatterAdd": Kernels(_scatter_forward, _scatter_backward),
}
