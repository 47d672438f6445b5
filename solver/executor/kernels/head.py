"""Kernels of ProductLogSumExp: chunks of logits in one block of scratch, a maximum and a sum for each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present, run_all, staging, with_small_buffers
from solver.executor.kernels.helpers.stored import tiles
from solver.graph.ops import lookup
from solver.graph.ops.head import head
from solver.graph.ops.helpers.stored import is_stored
from solver.graph.types import Array

__all__ = ["KERNELS"]


class _Chunks:
    """One step's chunks: what it reads and its scratch, by rows and columns."""

    def __init__(self, call: Call) -> None:
        self.sizes, self.call = head(call.node), call
        self.x, self.w, self.labels = present(*call.x[:3])
        self.bias: Array | None = (*call.x, None)[3]
        self.trans_b: int = call.attributes["transB"]
        self.first_class: int = call.attributes["first_class"]
        self.ignore_index: int | None = call.attributes.get("ignore_index")

    def columns(self) -> Iterator[tuple[slice, Array, list[Step]]]:
        """(columns, the float matrix [inner, columns] of W', steps that write it), for all columns in order.

        A view of W needs no steps; where W is stored, the next matrix takes the place of this one.
        """
        if is_stored(self.call.node, 1):
            yield from ((rows, tile.T, [unpack]) for rows, tile, unpack in tiles(self.call, 1))
            return
        for part in _cut(self.sizes.columns, self.sizes.chunk_columns):
            yield part, self.w[part].T if self.trans_b else self.w[:, part], []

    def rows(self) -> list[slice]:
        return _cut(self.sizes.rows, self.sizes.chunk_rows)

    def scratch(self, name: str, rows: slice) -> Array:
        return self.call.scratch[name][: rows.stop - rows.start]

    def start(self) -> list[Step]:
        """Steps that find the ignored rows, and where each row of a chunk of logits begins."""
        offsets, width = self.call.scratch["offsets"], self.sizes.chunk_columns

        def run() -> None:
            offsets.fill(width)
            offsets[:1] = 0
            np.add.accumulate(offsets, out=offsets)

        if self.ignore_index is None:
            return [run]
        return [run, bound(np.equal, self.labels, self.ignore_index, out=self.call.scratch["ignored"])]

    def logits(self, rows: slice, columns: slice, matrix: Array) -> tuple[Array, list[Step]]:
        """(logits of these rows and columns, the steps that compute them) by a `matrix` of columns of W'."""
        out = self.scratch("logits", rows)[:, : columns.stop - columns.start]
        steps = [bound(np.matmul, self.x[rows], matrix, out=out)]
        if self.bias is not None:
            steps.append(bound(np.add, out, self.bias[columns], out=out))
        return out, steps

    def pick(self, rows: slice, columns: slice) -> Step:
        """The step that writes the logit of each row's class to `picked`, and to `inside` whether the class
        is one of these columns.

        `index` then has the position of this logit in the flat scratch for logits, or that of the row's first
        logit where the class is no column.
        """
        names = ("index", "offsets", "inside", "picked")
        index, offsets, inside, picked = (self.scratch(name, rows) for name in names)
        labels, logits = self.labels[rows], self.call.scratch["logits"].reshape(-1)
        first, width = self.first_class + columns.start, columns.stop - columns.start

        def run() -> None:
            np.subtract(labels, first, out=index)
            np.less(index.view(np.uint64), width, out=inside)  # a negative index is a large unsigned one
            np.multiply(index, inside, out=index)
            np.add(index, offsets, out=index)
            # Positions are in range: "clip" never clips, and unlike "raise" writes straight to its output.
            np.take(logits, index, out=picked, mode="clip")

        return run

    def check_labels(self) -> Step:
        """The step that raises GraphError for a label that is no class and is not ignored."""
        labels, allowed = self.labels, lookup("ProductLogSumExp").index_ranges(self.call.node)[2]
        kept: Array | None = None if self.ignore_index is None else self.call.scratch["ignored"]

        def run() -> None:
            where: Array | bool = True
            if kept is not None:
                where = np.logical_not(kept, out=kept)
            low, high = (
                extreme.reduce(labels, where=where, initial=0) for extreme in (np.minimum, np.maximum)
            )
            if kept is not None:
                np.logical_not(kept, out=kept)
            if low < 0 or high > allowed.most:
                raise allowed.error(int(low if low < 0 else high))

        return run


def _cut(size: int, step: int) -> list[slice]:
    """Slices of `step` elements that cover `size` elements; one empty slice for none."""
    return [slice(start, min(start + step, size)) for start in range(0, max(1, size), max(1, step))]


def _forward(call: Call) -> Step:
    chunks = _Chunks(call)
    log_sums, chosen = present(call.y[0], call.y[1])
    # Until the end, the log-sum-exp holds the maximum of each row so far.
    maximum, total = log_sums, call.scratch["total"]
    steps = [*chunks.start(), chunks.check_labels()]
    steps += [bound(maximum.fill, np.finfo(maximum.dtype).min), bound(total.fill, 0), bound(chosen.fill, 0)]
    for columns, matrix, unpack in chunks.columns():
        steps += unpack
        for rows in chunks.rows():
            logits, product = chunks.logits(rows, columns, matrix)
            inside, picked, highest = (chunks.scratch(name, rows) for name in ("inside", "picked", "highest"))
            steps += [*product, chunks.pick(rows, columns)]
            steps.append(bound(np.copyto, chosen[rows], picked, where=inside))
            steps.append(_add_exponentials(logits, maximum[rows], total[rows], highest))
    steps += [bound(np.log, total, out=total), bound(np.add, maximum, total, out=log_sums)]
    if chunks.ignore_index is not None:
        ignored = call.scratch["ignored"]
        steps += [bound(np.copyto, array, 0, where=ignored) for array in (log_sums, chosen)]
    return with_small_buffers(run_all(steps))


def _add_exponentials(logits: Array, maximum: Array, total: Array, highest: Array) -> Step:
    """The step that adds a chunk of logits z to the maximum and to the sum of exp(z - maximum) of each row.

    It overwrites the logits.
    """

    def run() -> None:
        np.maximum.reduce(logits, axis=1, out=highest)
        np.maximum(highest, maximum, out=highest)
        np.subtract(maximum, highest, out=maximum)
        np.exp(maximum, out=maximum)
        np.multiply(total, maximum, out=total)
        np.copyto(maximum, highest)
        np.subtract(logits, highest[:, None], out=logits)
        np.exp(logits, out=logits)
        np.add.reduce(logits, axis=1, out=highest)
        np.add(total, highest, out=total)

    return run


def _backward(call: Call) -> Step:
    chunks = _Chunks(call)
    dx, dw, _, dbias = (*call.dx, None)[:4]
    steps = chunks.start()
    for columns, matrix, unpack in chunks.columns():
        steps += unpack
        for rows in chunks.rows():
            g, compute = _derivative_of_logits(chunks, rows, columns, matrix)
            steps += compute
            if dx is not None:
                part = call.scratch.get("part_of_dx")
                steps.append(_product(g, matrix.T, dx[rows], part, first=not columns.start))
            if dw is not None:
                x, part = chunks.x[rows], call.scratch.get("part_of_dw")
                a, b, into = (g.T, x, dw[columns]) if chunks.trans_b else (x.T, g, dw[:, columns])
                steps.append(_product(a, b, into, part, first=not rows.start))
            if dbias is not None:
                part = call.scratch.get("part_of_dbias")
                steps.append(_sum_of_rows(g, dbias[columns], part, first=not rows.start))
    return with_small_buffers(run_all(steps))


def _derivative_of_logits(
    chunks: _Chunks, rows: slice, columns: slice, matrix: Array
) -> tuple[Array, list[Step]]:
    """(dL softmax, plus dP at the class, of a chunk of logits; the steps that compute it in their place)."""
    (log_sums,) = present(chunks.call.y[0])
    dl, dp = chunks.call.dy
    g, steps = chunks.logits(rows, columns, matrix)
    if dl is None:
        steps = [bound(g.fill, 0)]
    else:
        steps.append(bound(np.subtract, g, log_sums[rows, None], out=g))
        steps.append(bound(np.exp, g, out=g))
        steps.append(bound(np.multiply, g, dl[rows, None], out=g))
    if dp is not None:
        names = ("picked", "inside", "index")
        picked, inside, index = (chunks.scratch(name, rows) for name in names)
        steps.append(chunks.pick(rows, columns))
        steps.append(bound(np.add, picked, dp[rows], out=picked, where=inside))
        flat = chunks.call.scratch["logits"].reshape(-1)
        steps.append(bound(np.put, flat, index, picked, mode="clip"))
    if chunks.ignore_index is not None:
        ignored = chunks.call.scratch["ignored"][rows, None]
        steps.append(bound(np.copyto, g, 0, where=ignored))
    return g, steps


def _product(a: Array, b: Array, into: Array, part: Array | None, *, first: bool) -> Step:
    """The step that writes A B, or adds it, to `into`."""
    if first:
        return bound(np.matmul, a, b, out=into)
    (part,) = present(part)
    product = staging(part, into.shape)

    def run() -> None:
        np.matmul(a, b, out=product)
        np.add(into, product, out=into)

    return run


def _sum_of_rows(g: Array, into: Array, part: Array | None, *, first: bool) -> Step:
    if first:
        return bound(np.add.reduce, g, axis=0, out=into)
    (part,) = present(part)
    total = part[: into.size]

    def run() -> None:
        np.add.reduce(g, axis=0, out=total)
        np.add(into, total, out=into)

    return run


KERNELS: Mapping[str, Kernels] = {"ProductLogSumExp": Kernels(_forward, _backward)}
