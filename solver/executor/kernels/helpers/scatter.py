"""Rows added where indices say, several rows at the same place included.

Wide rows are added one after the other. Narrow ones go in groups, by sorted index:

    index   7 2 7 7 2 9        sorted    2 2 | 7 7 7 | 9        (equal ones in the order they had)

    round 0 adds the first row of each run, all at different places, by one addition; round 1 the second ...
    a run of `_MIN_RUN` equal indices or more is summed up by one reduction instead

`np.add.at` adds one element at a time; `np.add.reduceat` walks down columns, which misses the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels.helpers.blocks import Step
from solver.graph.types import Array

__all__ = ["add_groups", "add_rows"]

#: Indices that are turned into Python's integers at a time, so that they take a few KiB.
_INDICES_AT_A_TIME = 512
#: Equal indices in a group that are worth a call of their own.
_MIN_RUN = 16


def add_rows(index: Array, source: Array, target: Array) -> Step:
    """A step that adds each row of `source` to row `index` of `target`, in order."""

    def run() -> None:
        for start in range(0, index.size, _INDICES_AT_A_TIME):
            numbers = index[start : start + _INDICES_AT_A_TIME].tolist()
            for number, row in zip(numbers, source[start : start + _INDICES_AT_A_TIME], strict=True):
                into = target[number]
                np.add(into, row, out=into)

    return run


def add_groups(index: Array, source: Array, target: Array, scratch: Mapping[str, Array]) -> Step:
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
