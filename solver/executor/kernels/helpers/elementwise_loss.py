"""Losses of one element at a time: blocks of them summed, and their derivatives times dY and the scale."""

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
    present,
    run_all,
    staging,
    with_small_buffers,
)
from solver.graph.ops import lookup
from solver.graph.ops.loss import PROBABILITY_EPSILON, ElementwiseLoss
from solver.graph.types import Array

__all__ = ["ELEMENTWISE_LOSSES", "loss_scale"]

#: (prediction, target, out, *scratch) -> None.
_Function = Callable[..., None]

#: From the attributes of an operation to its function.
_Maker = Callable[[Mapping[str, Any]], _Function]


def loss_scale(call: Call, examples: int) -> float:
    """The factor of a sum over `examples`. The mean of no examples is 0 times infinity, which is NaN."""
    if call.attributes["reduction"] != "mean":
        return 1.0
    return 1 / examples if examples else math.inf


def _scale(call: Call) -> float:
    type_ = call.node.input(0)
    if call.attributes["reduction"] == "sum_of_means":
        return 1 / (type_.elements // type_.shape[0] or math.inf) if type_.shape[0] else 1.0
    return loss_scale(call, type_.elements)


def _total(partials: Array, y: Array, scale: float) -> Step:
    """The last sum, of the sums of blocks."""

    def run() -> None:
        np.add.reduce(partials, out=y)
        np.multiply(y, scale, out=y)

    return run


def _elementwise_loss(losses: _Maker, by_prediction: _Maker, by_target: _Maker) -> Kernels:
    def prepare_forward(call: Call) -> Step:
        return _forward(call, losses(call.attributes))

    def prepare_backward(call: Call) -> Step:
        return _backward(call, (by_prediction(call.attributes), by_target(call.attributes)))

    return Kernels(prepare_forward, prepare_backward)


def _operator(call: Call) -> ElementwiseLoss:
    operator = lookup(call.node.operation.type)
    if not isinstance(operator, ElementwiseLoss):
        raise InternalError(f"Operator {operator.name!r} is not a loss of one element at a time.")
    return operator


def _forward(call: Call, losses: _Function) -> Step:
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
    return run_all([*steps, _total(call.scratch["partials"], y, _scale(call))])


def _cut(scratch: Sequence[Array], like: Array) -> list[Array]:
    return [staging(array, like.shape) for array in scratch]


def _backward(call: Call, functions: tuple[_Function, _Function]) -> Step:
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
