"""Kernels of BatchNormalization: sums over channels, in blocks of X seen as [outer, columns, positions].

Where the channels come last, several rows lie side by side in one row of a block, so that NumPy's inner loop
is long. A value of each channel is then written once for each of these lanes, and a sum has one for each:

    columns    c0 c1 c2  c0 c1 c2  c0 c1 c2  c0 c1 c2       3 channels, 4 lanes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import (
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
from solver.graph.ops.batch_normalization import INVERSE_DEVIATION, MEAN, channels_of
from solver.graph.types import Array

__all__ = ["KERNELS"]


class _View:
    """The operands of one step, tensors as [outer, columns, positions] and all else as [1, channels, 1]."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.channels = channels_of(call.node)
        self.trains = bool(call.attributes["training_mode"])

    def tensor(self, array: Array | None) -> Array:
        (tensor,) = present(array)
        return tensor.reshape(self.channels.shape)

    def of_channels(self, array: Array | None) -> Array:
        (channels,) = present(array)
        return channels.reshape(1, -1, 1)

    def scratch(self, name: str) -> Array:
        return self.of_channels(self.call.scratch[name])

    def statistics(self) -> tuple[Array, Array]:
        return self.of_channels(self.call.saved[MEAN]), self.of_channels(self.call.saved[INVERSE_DEVIATION])

    def blocks(self, *arrays: Array) -> Iterator[tuple[Array, ...]]:
        return block_views(self.channels.shape, arrays)

    def staged(self, name: str, like: Array) -> Array:
        return staging(self.call.scratch[name], like.shape)

    def by_column(self, name: str, values: Array, steps: list[Step]) -> Array:
        """A value of each channel as [1, columns, 1]; `steps` get what writes it there."""
        if self.channels.lanes == 1:
            return values
        wide = self.scratch(f"{name}_by_column")
        shape = (self.channels.lanes, self.channels.channels)
        steps.append(bound(np.copyto, wide.reshape(shape), values.reshape(1, -1)))
        return wide

    def sum_of(self, source: Array, target: Array) -> list[Step]:
        total, last = self.collecting(target)
        return [*sum_steps(source, total, self.call.scratch["partial"]), *last]

    def collecting(self, target: Array) -> tuple[Array, list[Step]]:
        """The array for sums of columns, and the steps that make sums of channels of them."""
        if self.channels.lanes == 1:
            return target, []
        total = self.scratch("sums")
        lanes = total.reshape(self.channels.lanes, self.channels.channels)
        return total, [bound(np.add.reduce, lanes, axis=0, out=target.reshape(-1))]


# ------------------------------------------------------------------------------------------- forward


def _forward(call: Call) -> Step:
    view, steps = _View(call), list[Step]()
    x, y = view.tensor(call.x[0]), view.tensor(call.y[0])
    scale, shift, *running = (view.of_channels(array) for array in call.x[1:])
    factor, epsilon = view.scratch("factor"), float(call.attributes["epsilon"])
    if view.trains:
        mean, inverse = view.statistics()
        steps += _statistic_steps(view, x, running)
    else:
        mean, inverse = running[0], factor
        steps.append(bound(np.copyto, factor, running[1]))
    steps.append(bound(_inverse_deviation, inverse, epsilon))
    steps.append(bound(np.multiply, inverse, scale, out=factor))
    terms = {"mean": mean, "factor": factor, "shift": shift}
    columns = [view.by_column(name, values, steps) for name, values in terms.items()]
    steps += [bound(_affine, *parts) for parts in view.blocks(x, y, *columns)]
    return with_small_buffers(run_all(steps))


def _statistic_steps(view: _View, x: Array, running: Sequence[Array]) -> list[Step]:
    """Mean and biased variance of the batch, and what becomes of the running ones, if there are any.

    The mean first and the deviations from it squared then: no difference of large sums.
    """
    count, momentum, seen = view.channels.count, float(view.call.attributes["momentum"]), set[int]()
    mean, variance = view.statistics()
    steps = [*view.sum_of(x, mean), bound(np.divide, mean, count, out=mean)]
    columns = view.by_column("mean", mean, steps)
    total, last = view.collecting(variance)
    for part, m, into in view.blocks(x, columns, total):
        square = view.staged("square", part)
        steps += [bound(np.subtract, part, m, out=square), bound(np.multiply, square, square, out=square)]
        steps.append(sum_into(square, into, view.call.scratch["partial"], first=is_new(seen, into)))
    steps += [*last, bound(np.divide, variance, count, out=variance)]
    is_corrected = view.call.attributes.get("unbiased") and count > 1
    shares = (1 - momentum, (1 - momentum) * (count / (count - 1) if is_corrected else 1))
    for kept, batch, share in zip(running, (mean, variance), shares, strict=bool(running)):
        steps.append(bound(_average, kept, batch, momentum, share, view.scratch("factor")))
    return steps


def _average(running: Array, batch: Array, momentum: float, share: float, work: Array) -> None:
    """running' = momentum running + share batch."""
    np.multiply(batch, share, out=work)
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
    shift_sum, scale_sum = _target(view, 2, "first"), _target(view, 1, "second")
    if shift_sum is not None:
        steps += view.sum_of(dy, shift_sum)
    if scale_sum is None:
        return steps
    x, (mean, inverse) = view.tensor(call.x[0]), view.statistics()
    mean_by_column = view.by_column("mean", mean, steps)
    steps += _scale_sum_steps(view, (x, dy), mean_by_column, inverse, scale_sum)
    if call.dx[0] is None or shift_sum is None:
        return steps
    terms = {name: view.scratch(name) for name in ("first", "second", "factor")}
    steps += [
        bound(np.divide, shift_sum, count, out=terms["first"]),
        bound(np.divide, scale_sum, count, out=terms["second"]),
        bound(np.multiply, terms["second"], inverse, out=terms["second"]),
        bound(np.multiply, view.of_channels(call.x[1]), inverse, out=terms["factor"]),
    ]
    columns = [view.by_column(name, values, steps) for name, values in terms.items()]
    for part, d, into, *rest in view.blocks(x, dy, view.tensor(call.dx[0]), mean_by_column, *columns):
        steps.append(bound(_through_statistics, part, d, into, view.staged("product", part), *rest))
    return steps


def _target(view: _View, position: int, name: str) -> Array | None:
    """The array for sums of channels: a derivative if the step computes it, scratch if only dX needs it."""
    if view.call.dx[position] is not None:
        return view.of_channels(view.call.dx[position])
    return view.scratch(name) if view.call.dx[0] is not None else None


def _through_statistics(
    x: Array, dy: Array, dx: Array, product: Array, mean: Array, first: Array, second: Array, factor: Array
) -> None:
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
        steps += view.sum_of(dy, view.of_channels(call.dx[2]))
    if call.dx[0] is None and call.dx[1] is None:
        return steps
    inverse = view.scratch(INVERSE_DEVIATION)
    steps.append(bound(np.copyto, inverse, view.of_channels(call.x[4])))
    steps.append(bound(_inverse_deviation, inverse, float(call.attributes["epsilon"])))
    if call.dx[1] is not None:
        mean = view.by_column("mean", view.of_channels(call.x[3]), steps)
        pair = (view.tensor(call.x[0]), dy)
        steps += _scale_sum_steps(view, pair, mean, inverse, view.of_channels(call.dx[1]))
    if call.dx[0] is not None:
        factor = view.scratch("factor")
        steps.append(bound(np.multiply, inverse, view.of_channels(call.x[1]), out=factor))
        columns = view.by_column("factor", factor, steps)
        for part, into, f in view.blocks(dy, view.tensor(call.dx[0]), columns):
            steps.append(bound(np.multiply, part, f, out=into))
    return steps


def _scale_sum_steps(
    view: _View, pair: tuple[Array, Array], mean: Array, inverse: Array, target: Array
) -> list[Step]:
    """target = sum(dY (X - mean)) inverse: the inverse deviation once a channel, not once an element."""
    seen, steps = set[int](), list[Step]()
    total, last = view.collecting(target)
    for part, d, m, into in view.blocks(*pair, mean, total):
        product = view.staged("product", part)
        steps += [bound(np.subtract, part, m, out=product), bound(np.multiply, product, d, out=product)]
        steps.append(sum_into(product, into, view.call.scratch["partial"], first=is_new(seen, into)))
    return [*steps, *last, bound(np.multiply, target, inverse, out=target)]


KERNELS: Mapping[str, Kernels] = {"BatchNormalization": Kernels(_forward, _backward)}
