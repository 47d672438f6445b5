"""Kernels of BatchNormalization: sums over channels, in blocks of X seen as [outer, channels, positions]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels._blocks import (
    Step,
    block_views,
    bound,
    is_new,
    present,
    run_all,
    staging,
    sum_into,
    sum_steps,
    with_small_buffers,
)
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops.batch_normalization import INVERSE_DEVIATION, MEAN, channels_of
from solver.graph.types import Array

__all__ = ["KERNELS"]


class _View:
    """The operands of one step: tensors as [outer, channels, positions], all else as [1, channels, 1]."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.channels = channels_of(call.node)
        self.trains = bool(call.attributes["training_mode"])

    def tensor(self, array: Array | None) -> Array:
        (found,) = present(array)
        return found.reshape(self.channels.shape)

    def of_channels(self, array: Array | None) -> Array:
        (found,) = present(array)
        return found.reshape(1, -1, 1)

    def scratch(self, name: str) -> Array:
        return self.of_channels(self.call.scratch[name])

    def blocks(self, *arrays: Array) -> Iterator[tuple[Array, ...]]:
        return block_views(self.channels.shape, arrays)

    def sums(self, source: Array, target: Array) -> list[Step]:
        return sum_steps(source, target, self.call.scratch["partial"])


# ------------------------------------------------------------------------------------------- forward


def _forward(call: Call) -> Step:
    view = _View(call)
    x, y = view.tensor(call.x[0]), view.tensor(call.y[0])
    scale, shift, running_mean, running_variance = (view.of_channels(array) for array in call.x[1:])
    factor, epsilon = view.scratch("factor"), float(call.attributes["epsilon"])
    if view.trains:
        mean, inverse = (view.of_channels(call.saved[name]) for name in (MEAN, INVERSE_DEVIATION))
        steps = _statistic_steps(view, x, mean, inverse, (running_mean, running_variance), factor)
    else:
        mean, inverse, steps = running_mean, factor, [bound(np.copyto, factor, running_variance)]
    steps.append(bound(_inverse_deviation, inverse, epsilon))
    steps.append(bound(np.multiply, inverse, scale, out=factor))
    for part, into, m, f, b in view.blocks(x, y, mean, factor, shift):
        steps.append(bound(_affine, part, into, m, f, b))
    return with_small_buffers(run_all(steps))


def _statistic_steps(
    view: _View, x: Array, mean: Array, variance: Array, running: tuple[Array, Array], work: Array
) -> list[Step]:
    """Mean and biased variance of the batch, and what becomes of the running ones.

    The mean first and the deviations from it squared then: no difference of large sums.
    """
    count, momentum, seen = view.channels.count, float(view.call.attributes["momentum"]), set[int]()
    steps = [*view.sums(x, mean), bound(np.divide, mean, count, out=mean)]
    for part, m, total in view.blocks(x, mean, variance):
        square = staging(view.call.scratch["square"], part.shape)
        steps += [bound(np.subtract, part, m, out=square), bound(np.multiply, square, square, out=square)]
        partial = view.call.scratch["partial"]
        steps.append(sum_into(square, total, partial, first=is_new(seen, total)))
    steps.append(bound(np.divide, variance, count, out=variance))
    for kept, batch in zip(running, (mean, variance), strict=True):
        steps.append(bound(_average, kept, batch, momentum, work))
    return steps


def _average(running: Array, batch: Array, momentum: float, work: Array) -> None:
    """running' = momentum running + (1 - momentum) batch."""
    np.multiply(batch, 1 - momentum, out=work)
    np.multiply(running, momentum, out=running)
    np.add(running, work, out=running)


def _inverse_deviation(variance: Array, epsilon: float) -> None:
    np.add(variance, epsilon, out=variance)
    np.sqrt(variance, out=variance)
    np.reciprocal(variance, out=variance)


def _affine(x: Array, y: Array, mean: Array, factor: Array, shift: Array) -> None:
    np.subtract(x, mean, out=y)
    np.multiply(y, factor, out=y)
    np.add(y, shift, out=y)


# ------------------------------------------------------------------------------------------ backward


def _backward(call: Call) -> Step:
    """With n the normalised X: the derivative of the scale is the sum of dY n, that of the shift of dY."""
    view = _View(call)
    steps = _of_batch(view) if view.trains else _frozen(view)
    return with_small_buffers(run_all(steps))


def _of_batch(view: _View) -> list[Step]:
    """dX = scale / deviation (dY - sum(dY) / count - n sum(dY n) / count)."""
    call, steps = view.call, list[Step]()
    dy, count = view.tensor(call.dy[0]), view.channels.count
    wants_x = call.dx[0] is not None
    shift_sum, scale_sum = _target(view, 2, "first"), _target(view, 1, "second")
    if shift_sum is not None:
        steps += view.sums(dy, shift_sum)
    if scale_sum is None:
        return steps
    x = view.tensor(call.x[0])
    mean, inverse = (view.of_channels(call.saved[name]) for name in (MEAN, INVERSE_DEVIATION))
    steps += _scale_sum_steps(view, (x, dy), mean, inverse, scale_sum)
    if not wants_x or shift_sum is None:
        return steps
    first, second = view.scratch("first"), view.scratch("second")
    factor = view.scratch("partial")  # no sum needs it any more
    steps += [
        bound(np.divide, shift_sum, count, out=first),
        bound(np.divide, scale_sum, count, out=second),
        bound(np.multiply, second, inverse, out=second),
        bound(np.multiply, view.of_channels(call.x[1]), inverse, out=factor),
    ]
    arrays = (x, dy, view.tensor(call.dx[0]), mean, first, second, factor)
    for part, d, into, m, a, b, f in view.blocks(*arrays):
        product = staging(call.scratch["product"], part.shape)
        steps.append(bound(_through_statistics, part, d, into, product, (m, a, b, f)))
    return steps


def _target(view: _View, position: int, name: str) -> Array | None:
    """Where the sum of a channel goes: a derivative if it is wanted, scratch if dX alone takes it."""
    if view.call.dx[position] is not None:
        return view.of_channels(view.call.dx[position])
    return view.scratch(name) if view.call.dx[0] is not None else None


def _through_statistics(
    x: Array, dy: Array, dx: Array, product: Array, terms: tuple[Array, Array, Array, Array]
) -> None:
    mean, first, second, factor = terms
    np.subtract(x, mean, out=product)
    np.multiply(product, second, out=product)
    np.subtract(dy, product, out=dx)
    np.subtract(dx, first, out=dx)
    np.multiply(dx, factor, out=dx)


def _frozen(view: _View) -> list[Step]:
    """dX = scale / deviation dY."""
    call, steps = view.call, list[Step]()
    dy = view.tensor(call.dy[0])
    if call.dx[2] is not None:
        steps += view.sums(dy, view.of_channels(call.dx[2]))
    if call.dx[0] is None and call.dx[1] is None:
        return steps
    inverse = view.scratch(INVERSE_DEVIATION)
    steps.append(bound(np.copyto, inverse, view.of_channels(call.x[4])))
    steps.append(bound(_inverse_deviation, inverse, float(call.attributes["epsilon"])))
    if call.dx[1] is not None:
        pair, mean = (view.tensor(call.x[0]), dy), view.of_channels(call.x[3])
        steps += _scale_sum_steps(view, pair, mean, inverse, view.of_channels(call.dx[1]))
    if call.dx[0] is not None:
        factor = view.scratch("factor")
        steps.append(bound(np.multiply, inverse, view.of_channels(call.x[1]), out=factor))
        for part, into, f in view.blocks(dy, view.tensor(call.dx[0]), factor):
            steps.append(bound(np.multiply, part, f, out=into))
    return steps


def _scale_sum_steps(
    view: _View, pair: tuple[Array, Array], mean: Array, inverse: Array, target: Array
) -> list[Step]:
    """target = sum(dY (X - mean)) inverse: the inverse deviation once a channel, not once an element."""
    seen, steps = set[int](), list[Step]()
    for part, d, m, total in view.blocks(*pair, mean, target):
        product = staging(view.call.scratch["product"], part.shape)
        steps += [bound(np.subtract, part, m, out=product), bound(np.multiply, product, d, out=product)]
        partial = view.call.scratch["partial"]
        steps.append(sum_into(product, total, partial, first=is_new(seen, total)))
    return [*steps, bound(np.multiply, target, inverse, out=target)]


KERNELS: Mapping[str, Kernels] = {"BatchNormalization": Kernels(_forward, _backward)}
