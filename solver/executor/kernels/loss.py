"""Kernels of the losses. The scalar is summed by blocks, and the sums of the blocks by a last sum.

Losses of one element at a time come first, then those of rows of classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from solver.errors import InternalError
from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.activation import apply_activation
from solver.executor.kernels.helpers.blocks import (
    Step,
    block_views,
    bound,
    flat_blocks,
    optional,
    present,
    run_all,
    staging,
    with_small_buffers,
)
from solver.graph.ops import lookup
from solver.graph.ops.loss import PROBABILITY_EPSILON, ElementwiseLoss, block_rows
from solver.graph.types import Array

__all__ = ["KERNELS"]


#: (prediction, target, out, *scratch) -> None.
_Function = Callable[..., None]

#: From the attributes of an operation to its function.
_Maker = Callable[[Mapping[str, Any]], _Function]


def _loss_scale(call: Call, examples: int) -> float:
    """The factor of a sum over `examples`. The mean of no examples is 0 times infinity, which is NaN."""
    if call.attributes["reduction"] != "mean":
        return 1.0
    return 1 / examples if examples else math.inf


def _scale(call: Call) -> float:
    type_ = call.node.input(0)
    if call.attributes["reduction"] == "sum_of_means":
        return 1 / (type_.elements // type_.shape[0] or math.inf) if type_.shape[0] else 1.0
    return _loss_scale(call, type_.elements)


def _total(partials: Array, y: Array, scale: Callable[[], float]) -> Step:
    """The last sum, of the sums of blocks, times a scale that may change from step to step."""

    def run() -> None:
        np.add.reduce(partials, out=y)
        np.multiply(y, scale(), out=y)

    return run


def _elementwise_loss(losses: _Maker, by_prediction: _Maker, by_target: _Maker) -> Kernels:
    def prepare_forward(call: Call) -> Step:
        return _elementwise_forward(call, losses(call.attributes))

    def prepare_backward(call: Call) -> Step:
        return _elementwise_backward(call, (by_prediction(call.attributes), by_target(call.attributes)))

    return Kernels(prepare_forward, prepare_backward)


def _operator(call: Call) -> ElementwiseLoss:
    operator = lookup(call.node.operation.type)
    if not isinstance(operator, ElementwiseLoss):
        raise InternalError(f"Operator {operator.name!r} is not a loss of one element at a time.")
    return operator


def _elementwise_forward(call: Call, losses: _Function) -> Step:
    prediction, target, y = present(call.x[0], call.x[1], call.y[0])
    scratch = [call.scratch[name] for name in _operator(call).forward_blocks]
    if call.attributes["reduction"] == "none":
        whole = flat_blocks(prediction, target, y)
        return run_all([bound(losses, *parts, *_cut(scratch, parts[0])) for parts in whole])
    steps: list[Step] = []
    for i, (p, t) in enumerate(flat_blocks(prediction, target)):
        out = call.scratch["difference"][: p.size]
        steps.append(bound(losses, p, t, out, *_cut(scratch, p)))
        steps.append(bound(np.add.reduce, out, out=call.scratch["partials"][i : i + 1].reshape(())))
    scale = _scale(call)
    return run_all([*steps, _total(call.scratch["partials"], y, lambda: scale)])


def _cut(scratch: Sequence[Array], like: Array) -> list[Array]:
    return [staging(array, like.shape) for array in scratch]


def _elementwise_backward(call: Call, functions: tuple[_Function, _Function]) -> Step:
    (dy,) = present(call.dy[0])
    scale = _scale(call)
    scratch = [call.scratch[name] for name in _operator(call).backward_blocks]
    # What the step did not ask to read is stood in for by dY, and not read.
    prediction, target = (dy if array is None else array for array in call.x)
    steps: list[Step] = []
    for function, dx in zip(functions, call.dx, strict=True):
        if dx is not None:
            for p, t, incoming, out in block_views(dx.shape, (prediction, target, dy, dx)):
                steps.append(bound(function, p, t, out, *_cut(scratch, out)))
                steps.append(bound(_scaled, out, incoming, scale))
    return with_small_buffers(run_all(steps))


def _scaled(out: Array, incoming: Array, scale: float) -> None:
    np.multiply(out, scale, out=out)
    np.multiply(out, incoming, out=out)


# ----------------------------------------------------------------------------------------- distances


def _squares(attributes: Mapping[str, Any]) -> _Function:
    def run(prediction: Array, target: Array, out: Array) -> None:
        np.subtract(prediction, target, out=out)
        np.multiply(out, out, out=out)

    return run


def _differences(factor: float) -> _Maker:
    def make(attributes: Mapping[str, Any]) -> _Function:
        def run(prediction: Array, target: Array, out: Array) -> None:
            np.subtract(prediction, target, out=out)
            np.multiply(out, factor, out=out)

        return run

    return make


def _distances(attributes: Mapping[str, Any]) -> _Function:
    def run(prediction: Array, target: Array, out: Array) -> None:
        np.subtract(prediction, target, out=out)
        np.abs(out, out=out)

    return run


def _signs(factor: float) -> _Maker:
    def make(attributes: Mapping[str, Any]) -> _Function:
        def run(prediction: Array, target: Array, out: Array) -> None:
            np.subtract(prediction, target, out=out)
            np.sign(out, out=out)
            np.multiply(out, factor, out=out)

        return run

    return make


def _huber(attributes: Mapping[str, Any]) -> _Function:
    """m (2 d - m) / 2 with the distance d and m = min(d, delta)."""
    delta = float(attributes["delta"])

    def run(prediction: Array, target: Array, out: Array, clipped: Array) -> None:
        np.subtract(prediction, target, out=out)
        np.abs(out, out=out)
        np.minimum(out, delta, out=clipped)
        np.multiply(out, 2, out=out)
        np.subtract(out, clipped, out=out)
        np.multiply(out, clipped, out=out)
        np.multiply(out, 0.5, out=out)

    return run


def _clipped_differences(factor: float) -> _Maker:
    def make(attributes: Mapping[str, Any]) -> _Function:
        delta = float(attributes["delta"])

        def run(prediction: Array, target: Array, out: Array) -> None:
            np.subtract(prediction, target, out=out)
            np.clip(out, -delta, delta, out=out)
            np.multiply(out, factor, out=out)

        return run

    return make


# ------------------------------------------------------------------------------ binary cross-entropy


#: PyTorch's bounds: of a logarithm, and of the denominator p (1 - p) of the derivative.
_LEAST_LOGARITHM, _LEAST_DENOMINATOR = -100.0, 1e-12


def _clip(prediction: Array, out: Array) -> None:
    np.clip(prediction, PROBABILITY_EPSILON, 1 - PROBABILITY_EPSILON, out=out)


def _binary(attributes: Mapping[str, Any]) -> _Function:
    return _variant(attributes, _binary_of_logits, _binary_with_clamped_logarithms, _binary_of_probabilities)


def _binary_with_clamped_logarithms(
    prediction: Array, target: Array, out: Array, clipped: Array, work: Array
) -> None:
    """-t max(log p, -100) - (1 - t) max(log(1 - p), -100)."""
    _clamped_logarithm(prediction, out)
    np.multiply(out, target, out=out)
    np.subtract(1, prediction, out=work)
    _clamped_logarithm(work, work)
    np.subtract(1, target, out=clipped)
    np.multiply(work, clipped, out=work)
    np.add(out, work, out=out)
    np.multiply(out, -1, out=out)


def _clamped_logarithm(values: Array, out: Array) -> None:
    with np.errstate(divide="ignore"):  # the logarithm of 0 is what the bound is for
        np.log(values, out=out)
    np.maximum(out, _LEAST_LOGARITHM, out=out)


def _binary_of_probabilities(
    prediction: Array, target: Array, out: Array, clipped: Array, work: Array
) -> None:
    """-t log p - (1 - t) log(1 - p)."""
    _clip(prediction, clipped)
    np.log(clipped, out=out)
    np.multiply(out, target, out=out)
    np.subtract(1, clipped, out=work)
    np.log(work, out=work)
    np.subtract(1, target, out=clipped)
    np.multiply(work, clipped, out=work)
    np.add(out, work, out=out)
    np.multiply(out, -1, out=out)


def _binary_of_logits(prediction: Array, target: Array, out: Array, clipped: Array, work: Array) -> None:
    """max(x, 0) - x t + log(1 + exp(-|x|)), which overflows nowhere."""
    np.abs(prediction, out=out)
    np.multiply(out, -1, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    np.maximum(prediction, 0, out=clipped)
    np.multiply(prediction, target, out=work)
    np.subtract(clipped, work, out=clipped)
    np.add(out, clipped, out=out)


def _binary_by_prediction(attributes: Mapping[str, Any]) -> _Function:
    def of_probabilities(prediction: Array, target: Array, out: Array, clipped: Array) -> None:
        """(p - t) / (p (1 - p))."""
        _clip(prediction, clipped)
        np.subtract(clipped, target, out=out)
        np.divide(out, clipped, out=out)
        np.subtract(1, clipped, out=clipped)
        np.divide(out, clipped, out=out)

    def with_clamped_logarithms(prediction: Array, target: Array, out: Array, clipped: Array) -> None:
        """(p - t) / max(p (1 - p), 1e-12)."""
        np.subtract(1, prediction, out=clipped)
        np.multiply(clipped, prediction, out=clipped)
        np.maximum(clipped, _LEAST_DENOMINATOR, out=clipped)
        np.subtract(prediction, target, out=out)
        np.divide(out, clipped, out=out)

    def of_logits(prediction: Array, target: Array, out: Array, clipped: Array) -> None:
        """sigmoid(x) - t."""
        np.copyto(out, prediction)
        apply_activation("Sigmoid", out)
        np.subtract(out, target, out=out)

    return _variant(attributes, of_logits, with_clamped_logarithms, of_probabilities)


def _binary_by_target(attributes: Mapping[str, Any]) -> _Function:
    def of_probabilities(prediction: Array, target: Array, out: Array, clipped: Array) -> None:
        """log(1 - p) - log p."""
        _clip(prediction, clipped)
        np.subtract(1, clipped, out=out)
        np.log(out, out=out)
        np.log(clipped, out=clipped)
        np.subtract(out, clipped, out=out)

    def of_logits(prediction: Array, target: Array, out: Array, clipped: Array) -> None:
        np.multiply(prediction, -1, out=out)

    def with_clamped_logarithms(prediction: Array, target: Array, out: Array, clipped: Array) -> None:
        """max(log(1 - p), -100) - max(log p, -100)."""
        np.subtract(1, prediction, out=out)
        _clamped_logarithm(out, out)
        _clamped_logarithm(prediction, clipped)
        np.subtract(out, clipped, out=out)

    return _variant(attributes, of_logits, with_clamped_logarithms, of_probabilities)


def _variant(
    attributes: Mapping[str, Any], of_logits: _Function, clamped_logarithms: _Function, clamped: _Function
) -> _Function:
    if attributes["from_logits"]:
        return of_logits
    return clamped_logarithms if attributes.get("clamp") == "logarithm" else clamped


ELEMENTWISE_LOSSES: Mapping[str, Kernels] = {
    "MeanSquaredError": _elementwise_loss(_squares, _differences(2), _differences(-2)),
    "MeanAbsoluteError": _elementwise_loss(_distances, _signs(1), _signs(-1)),
    "Huber": _elementwise_loss(_huber, _clipped_differences(1), _clipped_differences(-1)),
    "BinaryCrossEntropy": _elementwise_loss(_binary, _binary_by_prediction, _binary_by_target),
}


# ------------------------------------------------------------------------------------------ rows of classes


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
        self.scale = _loss_scale(call, self.rows)
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
        steps.append(_total(call.scratch["partials"], y, lambda: shape.scale))
    return with_small_buffers(run_all(steps))


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
                dx = optional(call.dx, position)
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
