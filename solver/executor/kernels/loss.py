"""Kernels of the losses. The scalar is summed by blocks, and the sums of the blocks by a last sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present, run_all, with_small_buffers
from solver.executor.kernels.helpers.elementwise_loss import ELEMENTWISE_LOSSES, loss_scale
from solver.graph.ops import lookup
from solver.graph.ops.loss import PROBABILITY_EPSILON, block_rows
from solver.graph.types import Array

__all__ = ["KERNELS"]


class _Rows:
    """A cross-entropy step seen as [rows, classes], in blocks of rows."""

    def __init__(self, call: Call) -> None:
        attributes = call.attributes
        self.rows, self.classes, self.step = block_rows(call.node.input(0))
        self.from_logits: bool = bool(attributes["from_logits"])
        self.sparse = bool(attributes.get("sparse", 0))
        smoothing = attributes.get("label_smoothing", 0.0)
        self.spread = smoothing / self.classes
        self.kept = 1 - smoothing
        self.epsilon: float = attributes.get("epsilon", PROBABILITY_EPSILON)
        self.ignore_index: int | None = attributes.get("ignore_index")
        #: Factor of the sum of all losses; `count_examples` sets it anew where examples may be ignored.
        self.scale = loss_scale(call, self.rows)
        self.call = call

    def blocks(self) -> list[slice]:
        starts = range(0, self.rows, self.step)
        return [slice(start, min(start + self.step, self.rows)) for start in starts]

    def matrix(self, array: Array, rows: slice) -> Array:
        return array.reshape(self.rows, self.classes)[rows]

    def scratch(self, name: str, rows: slice) -> Array:
        return self.call.scratch[name][: rows.stop - rows.start]

    def labels(self, rows: slice) -> Array:
        (target,) = present(self.call.x[1])
        return target.reshape(-1)[rows]

    def ignored(self, rows: slice) -> Array | None:
        """bool[rows]: which of these examples are ignored, once a step of `positions` has run."""
        return None if self.ignore_index is None else self.scratch("ignored", rows)

    def count_examples(self) -> list[Step]:
        """The step that sets the factor of a mean from the number of examples that are not ignored."""
        ignore_index = self.ignore_index
        if ignore_index is None or self.call.attributes["reduction"] != "mean":
            return []
        blocks = [(self.labels(rows), self.scratch("ignored", rows)) for rows in self.blocks()]

        def run() -> None:
            count = 0
            for labels, differs in blocks:
                np.not_equal(labels, ignore_index, out=differs)
                count += int(np.count_nonzero(differs))
            self.scale = 1 / count if count else math.nan  # as 0 / 0

        return [run]

    def positions(self, rows: slice) -> tuple[Array, Step]:
        """(int64[rows], step that writes there which element of [rows, classes] each label names).

        The label of an ignored example counts as 0. The step raises GraphError for other labels that are no
        class.
        """
        labels, index = self.labels(rows), self.scratch("index", rows)
        ignore_index, mask = self.ignore_index or 0, self.ignored(rows)
        allowed = lookup("CategoricalCrossEntropy").index_ranges(self.call.node)[1]

        def run() -> None:
            kept: Array | bool = True
            if mask is not None:
                kept = np.not_equal(labels, ignore_index, out=mask)
            low, high = (
                extreme.reduce(labels, where=kept, initial=0) for extreme in (np.minimum, np.maximum)
            )
            if low < 0 or high >= self.classes:
                raise allowed.error(int(low if low < 0 else high))
            index.fill(self.classes)
            index[0] = 0
            np.add.accumulate(index, out=index)
            np.add(index, labels, out=index, where=kept)
            if mask is not None:
                np.logical_not(mask, out=mask)

        return index, run

    def smoothed_target(self, rows: slice, out: Array) -> Step:
        """Write the smoothed target of these rows to the C-contiguous `out`."""
        if self.sparse:
            return _one_hot(self, rows, out)
        (target,) = present(self.call.x[1])
        dense, kept, spread = self.matrix(target, rows), self.kept, self.spread

        def run() -> None:
            np.multiply(dense, kept, out=out)
            np.add(out, spread, out=out)

        return run

    def logarithm(self, rows: slice) -> tuple[Array, Step]:
        """(log p of these rows, step that computes it)."""
        (prediction,) = present(self.call.x[0])
        source, out = self.matrix(prediction, rows), self.scratch("logarithm", rows)
        if self.from_logits:
            return out, _log_softmax(
                source, out, *(self.scratch(name, rows) for name in ("statistic", "total"))
            )

        def run() -> None:
            np.maximum(source, self.epsilon, out=out)
            np.log(out, out=out)

        return out, run

    def incoming(self, rows: slice) -> Array:
        """dY, for each row of these or once for all."""
        (dy,) = present(self.call.dy[0])
        return dy if dy.ndim == 0 else dy.reshape(-1, 1)[rows]


def _one_hot(shape: _Rows, rows: slice, out: Array) -> Step:
    flat, on, off = out.reshape(-1), shape.kept + shape.spread, shape.spread
    index, find = shape.positions(rows)

    def run() -> None:
        find()
        out.fill(off)
        np.put(flat, index, on, mode="clip")

    return run


def _zeroed(array: Array, where: Array | None) -> list[Step]:
    """The step that sets `array` to 0 where a mask says so; none without a mask."""
    return [] if where is None else [bound(np.copyto, array, 0, where=where)]


def _log_softmax(source: Array, out: Array, statistic: Array, total: Array) -> Step:
    """x - max - log sum exp(x - max). The differences are taken twice, as `out` holds their exp between."""

    def run() -> None:
        np.maximum.reduce(source, axis=1, out=statistic, keepdims=True)
        np.subtract(source, statistic, out=out)
        np.exp(out, out=out)
        np.add.reduce(out, axis=1, out=total, keepdims=True)
        np.log(total, out=total)
        np.subtract(source, statistic, out=out)
        np.subtract(out, total, out=out)

    return run


def _forward(call: Call, losses_of: Callable[[_Rows, slice, Array, Array], list[Step]]) -> Step:
    """The losses of the rows, block by block, and their sum; `losses_of` gets the logarithm of p."""
    (y,) = present(call.y[0])
    shape = _Rows(call)
    reduced = call.attributes["reduction"] != "none"
    steps = shape.count_examples()
    for i, rows in enumerate(shape.blocks()):
        logarithm, take_logarithm = shape.logarithm(rows)
        losses = shape.scratch("statistic", rows)[:, 0] if reduced else y.reshape(-1)[rows]
        steps += [take_logarithm, *losses_of(shape, rows, logarithm, losses)]
        if reduced:
            steps.append(bound(np.add.reduce, losses, out=call.scratch["partials"][i : i + 1].reshape(())))
    if reduced:
        steps.append(_total(shape, call.scratch["partials"], y))
    return with_small_buffers(run_all(steps))


def _total(shape: _Rows, partials: Array, y: Array) -> Step:
    def run() -> None:
        np.add.reduce(partials, out=y)
        np.multiply(y, shape.scale, out=y)

    return run


def _cross_entropy_losses(shape: _Rows, rows: slice, logarithm: Array, losses: Array) -> list[Step]:
    if shape.sparse and not shape.spread:
        steps = _picked(shape, rows, logarithm, losses)
    else:
        smoothed = shape.scratch("smoothed", rows)
        steps = [shape.smoothed_target(rows, smoothed), _cross(smoothed, logarithm, losses)]
    return steps + _zeroed(losses, shape.ignored(rows))


def _picked(shape: _Rows, rows: slice, logarithm: Array, losses: Array) -> list[Step]:
    """-log p of the labelled class alone: other classes may have probability 0, and 0 log 0 would be NaN."""
    flat, (index, find) = logarithm.reshape(-1), shape.positions(rows)

    def run() -> None:
        find()
        # The positions are checked: "clip" never clips, and unlike "raise" writes straight to its output.
        np.take(flat, index, out=losses, mode="clip")
        np.multiply(losses, -1, out=losses)

    return [run]


def _divergence_losses(shape: _Rows, rows: slice, logarithm: Array, losses: Array) -> list[Step]:
    (target,) = present(shape.call.x[1])
    dense, work = shape.matrix(target, rows), shape.scratch("smoothed", rows)

    def run() -> None:
        _log_ratio(dense, logarithm, work)
        np.multiply(work, dense, out=work)
        np.add.reduce(work, axis=1, out=losses)

    return [run]


def _log_ratio(target: Array, logarithm: Array, out: Array) -> None:
    """log t - log p, with t raised as p is."""
    np.maximum(target, PROBABILITY_EPSILON, out=out)
    np.log(out, out=out)
    np.subtract(out, logarithm, out=out)


def _cross(target: Array, logarithm: Array, losses: Array) -> Step:
    def run() -> None:
        np.multiply(target, logarithm, out=target)
        np.add.reduce(target, axis=1, out=losses)
        np.multiply(losses, -1, out=losses)

    return run


def _backward(target_steps: Callable[[_Rows, slice, Array], list[Step]]) -> Callable[[Call], Step]:
    def prepare(call: Call) -> Step:
        shape = _Rows(call)
        steps = shape.count_examples()
        for rows in shape.blocks():
            for position, steps_of in enumerate((_prediction_steps, target_steps)):
                dx = call.dx[position] if position < len(call.dx) else None
                if dx is not None:
                    steps += steps_of(shape, rows, shape.matrix(dx, rows))
        return with_small_buffers(run_all(steps))

    return prepare


def _prediction_steps(shape: _Rows, rows: slice, dx: Array) -> list[Step]:
    """dP = -t' / p, or (softmax(P) sum(t') - t') for logits, times dY and the scale."""
    finish = run_all(
        [_multiply(shape, dx, shape.incoming(rows)), *_zeroed(dx, _as_column(shape.ignored(rows)))]
    )
    target = shape.smoothed_target(rows, dx)
    (prediction,) = present(shape.call.x[0])
    source, staged = shape.matrix(prediction, rows), shape.scratch("logarithm", rows)
    if not shape.from_logits:
        return [target, _quotient(source, staged, dx, shape.epsilon), finish]
    logarithm, take_logarithm = shape.logarithm(rows)
    return [take_logarithm, target, _softmax_minus(logarithm, shape.scratch("statistic", rows), dx), finish]


def _quotient(prediction: Array, raised: Array, dx: Array, epsilon: float) -> Step:
    def run() -> None:
        np.maximum(prediction, epsilon, out=raised)
        np.divide(dx, raised, out=dx)
        np.multiply(dx, -1, out=dx)

    return run


def _softmax_minus(logarithm: Array, total: Array, dx: Array) -> Step:
    def run() -> None:
        np.exp(logarithm, out=logarithm)
        np.add.reduce(dx, axis=1, out=total, keepdims=True)
        np.multiply(logarithm, total, out=logarithm)
        np.subtract(logarithm, dx, out=dx)

    return run


def _target_steps(shape: _Rows, rows: slice, dx: Array) -> list[Step]:
    """dT = -(1 - smoothing) log p, times dY and the scale."""
    logarithm, take_logarithm = shape.logarithm(rows)
    copy = bound(np.copyto, dx, logarithm)
    return [take_logarithm, copy, _multiply(shape, dx, shape.incoming(rows), -shape.kept)]


def _divergence_target_steps(shape: _Rows, rows: slice, dx: Array) -> list[Step]:
    """dT = log t - log p + 1, times dY and the scale."""
    logarithm, take_logarithm = shape.logarithm(rows)
    (target,) = present(shape.call.x[1])
    ratio = bound(_log_ratio, shape.matrix(target, rows), logarithm, dx)
    finish = _multiply(shape, dx, shape.incoming(rows))
    return [take_logarithm, ratio, bound(np.add, dx, 1, out=dx), finish]


def _as_column(mask: Array | None) -> Array | None:
    return None if mask is None else mask[:, None]


def _multiply(shape: _Rows, array: Array, incoming: Array, factor: float = 1.0) -> Step:
    """`array` times dY, the factor and the scale of the loss."""

    def run() -> None:
        np.multiply(array, incoming, out=array)
        np.multiply(array, factor * shape.scale, out=array)

    return run


KERNELS: Mapping[str, Kernels] = {
    **ELEMENTWISE_LOSSES,
    "CategoricalCrossEntropy": Kernels(
        lambda call: _forward(call, _cross_entropy_losses), _backward(_target_steps)
    ),
    "KLDivergence": Kernels(
        lambda call: _forward(call, _divergence_losses), _backward(_divergence_target_steps)
    ),
}
