"""Kernels of the losses. The scalar is summed by blocks, and the sums of the blocks by a last sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from solver.errors import GraphError
from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, present, run_all, with_small_buffers
from solver.executor.kernels.helpers.elementwise_loss import ELEMENTWISE_LOSSES, loss_scale, total
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
        self.scale = loss_scale(call, self.rows)
        self.call = call

    def blocks(self) -> list[slice]:
        starts = range(0, self.rows, self.step)
        return [slice(start, min(start + self.step, self.rows)) for start in starts]

    def matrix(self, array: Array, rows: slice) -> Array:
        return array.reshape(self.rows, self.classes)[rows]

    def scratch(self, name: str, rows: slice) -> Array:
        return self.call.scratch[name][: rows.stop - rows.start]

    def smoothed_target(self, rows: slice, out: Array) -> Step:
        """Write the smoothed target of these rows to the C-contiguous `out`."""
        (target,) = present(self.call.x[1])
        if self.sparse:
            return _one_hot(self, target.reshape(-1)[rows], self.scratch("index", rows), out)
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


def _one_hot(shape: _Rows, labels: Array, index: Array, out: Array) -> Step:
    flat, classes = out.reshape(-1), shape.classes
    on, off = shape.kept + shape.spread, shape.spread

    def run() -> None:
        low, high = np.minimum.reduce(labels), np.maximum.reduce(labels)
        if low < 0 or high >= classes:
            raise GraphError(
                f"A class label of operation {shape.call.node.operation.id!r} is {low if low < 0 else high}.",
                remedy=f"Labels must lie in [0, {classes - 1}].",
            )
        out.fill(off)
        index.fill(classes)
        index[0] = 0
        np.add.accumulate(index, out=index)
        np.add(index, labels, out=index)
        np.put(flat, index, on, mode="clip")

    return run


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
    steps: list[Step] = []
    for i, rows in enumerate(shape.blocks()):
        logarithm, take_logarithm = shape.logarithm(rows)
        losses = shape.scratch("statistic", rows)[:, 0] if reduced else y.reshape(-1)[rows]
        steps += [take_logarithm, *losses_of(shape, rows, logarithm, losses)]
        if reduced:
            steps.append(bound(np.add.reduce, losses, out=call.scratch["partials"][i : i + 1].reshape(())))
    if reduced:
        steps.append(total(call.scratch["partials"], y, shape.scale))
    return with_small_buffers(run_all(steps))


def _cross_entropy_losses(shape: _Rows, rows: slice, logarithm: Array, losses: Array) -> list[Step]:
    smoothed = shape.scratch("smoothed", rows)
    return [shape.smoothed_target(rows, smoothed), _cross(smoothed, logarithm, losses)]


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
        steps: list[Step] = []
        for rows in shape.blocks():
            for position, steps_of in enumerate((_prediction_steps, target_steps)):
                dx = call.dx[position] if position < len(call.dx) else None
                if dx is not None:
                    steps += steps_of(shape, rows, shape.matrix(dx, rows))
        return with_small_buffers(run_all(steps))

    return prepare


def _prediction_steps(shape: _Rows, rows: slice, dx: Array) -> list[Step]:
    """dP = -t' / p, or (softmax(P) sum(t') - t') for logits, times dY and the scale."""
    finish = _multiply(dx, shape.incoming(rows), shape.scale)
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
    return [take_logarithm, copy, _multiply(dx, shape.incoming(rows), -shape.kept * shape.scale)]


def _divergence_target_steps(shape: _Rows, rows: slice, dx: Array) -> list[Step]:
    """dT = log t - log p + 1, times dY and the scale."""
    logarithm, take_logarithm = shape.logarithm(rows)
    (target,) = present(shape.call.x[1])
    ratio = bound(_log_ratio, shape.matrix(target, rows), logarithm, dx)
    finish = _multiply(dx, shape.incoming(rows), shape.scale)
    return [take_logarithm, ratio, bound(np.add, dx, 1, out=dx), finish]


def _multiply(array: Array, incoming: Array, factor: float) -> Step:
    def run() -> None:
        np.multiply(array, incoming, out=array)
        np.multiply(array, factor, out=array)

    return run


def _cross_entropy_forward(call: Call) -> Step:
    return _forward(call, _cross_entropy_losses)


def _divergence_forward(call: Call) -> Step:
    return _forward(call, _divergence_losses)


KERNELS: Mapping[str, Kernels] = {
    **ELEMENTWISE_LOSSES,
    "CategoricalCrossEntropy": Kernels(_cross_entropy_forward, _backward(_target_steps)),
    "KLDivergence": Kernels(_divergence_forward, _backward(_divergence_target_steps)),
}
