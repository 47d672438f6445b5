"""Kernels of Resize: a pass along each axis, tap by tap, over a block of examples at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present, run_all, staging, with_small_buffers
from solver.executor.kernels.helpers.interpolation import Table, interpolation
from solver.graph.ops.resizing import Passes, passes
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _prepare(call: Call, source: Array, target: Array, *, backward: bool) -> Step:
    plan = passes(call.node, backward=backward)
    if not plan.axes:
        return bound(np.copyto, target, source)
    tables = [interpolation(axis, call.attributes, source.dtype) for axis in plan.axes]
    if backward:
        tables = [table.transposed() for table in tables]
    inputs = source.reshape(plan.examples, *plan.shapes[0])
    outputs = target.reshape(plan.examples, *plan.shapes[-1])
    steps: list[Step] = []
    for start in range(0, plan.examples, plan.step):
        block = slice(start, start + plan.step)
        for rows in _row_blocks(plan):
            parts = [tables[0].part(rows), *tables[1:]]
            chain = _chain(call, plan, inputs[block], outputs[block, rows])
            for axis, table, (before, after) in zip(plan.axes, parts, chain, strict=True):
                depth = axis.axis + 1
                steps += _pass(table, _matrices(before, depth), _matrices(after, depth), call)
    return with_small_buffers(run_all(steps))


def _row_blocks(plan: Passes) -> Iterator[slice]:
    """Rows of the first pass's result that go through the others together."""
    if not plan.rows:
        yield slice(None)
        return
    for start in range(0, plan.shapes[1][0], plan.rows):
        yield slice(start, start + plan.rows)


def _chain(call: Call, plan: Passes, first: Array, last: Array) -> Iterator[tuple[Array, Array]]:
    """(what each pass reads, what it writes) of a block."""
    before = first
    for number in range(1, len(plan.shapes)):
        after = last
        if number < len(plan.axes):
            memory = call.scratch["between" if number % 2 else "beside"]
            after = staging(memory, plan.behind(number, *last.shape[:2]))
        yield before, after
        before = after


def _matrices(array: Array, axis: int) -> Array:
    """[outer, the axis, inner]."""
    return array.reshape(math.prod(array.shape[:axis]), array.shape[axis], -1)


def _pass(table: Table, source: Array, target: Array, call: Call) -> Iterator[Step]:
    """The first tap writes, the others are added by way of scratch."""
    memory = call.scratch["tap"]
    for outer, rows in _parts(target, memory.size):
        into, rows_in = target[outer, rows], source[outer]
        for k, (index, weights) in enumerate(table.taps):
            part = staging(memory, into.shape) if k else into
            # No index lies outside: "clip" never clips, and unlike "raise" writes straight to its output.
            yield bound(np.take, rows_in, index[rows], axis=1, out=part, mode="clip")
            if weights is not None:
                yield bound(np.multiply, part, weights[rows], out=part)
            if k:
                yield bound(np.add, into, part, out=into)


def _parts(target: Array, room: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of a target [outer, rows, inner] without gaps: several outer ones, or some rows of one."""
    outer, rows, inner = target.shape
    if rows * inner <= room:
        step = room // (rows * inner)
        yield from ((slice(start, start + step), slice(None)) for start in range(0, outer, step))
        return
    step = max(1, room // inner)
    for start in range(outer):
        yield from ((slice(start, start + 1), slice(row, row + step)) for row in range(0, rows, step))


KERNELS: Mapping[str, Kernels] = {
    "Resize": Kernels(
        lambda call: _prepare(call, *present(call.x[0], call.y[0]), backward=False),
        lambda call: _prepare(call, *present(call.dy[0], call.dx[0]), backward=True),
    )
}
