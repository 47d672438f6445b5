"""Kernels of the transposed convolution: a product of matrices for each example and tap.

Forward, a tap's weights times X are added to Y where the tap lands. Backward, what the tap sees of dY is
gathered; times the weights it is part of dX, times X part of dW. Groups are a batch of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from solver.executor.kernels._blocks import Step, bound, present, run_all, with_small_buffers
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops._spatial import Part
from solver.graph.ops.upsampling import Transposed, transposed
from solver.graph.types import Array

__all__ = ["KERNELS"]

_Tap = tuple[int, tuple[slice, ...], tuple[slice, ...]]


def _optional(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    return arrays[position] if position < len(arrays) else None


class _Sides:
    """The operands of one step, images seen channels first, weights tap by tap."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.sizes: Transposed = transposed(call.node)
        self.last = self.sizes.window.layout == "NHWC"

    def image(self, array: Array | None) -> Array:
        """[batch, channels, *spatial]."""
        (found,) = present(array)
        return np.moveaxis(found, -1, 1) if self.last else found

    def matrices(self, array: Array | None) -> Array:
        """X or dX as [batch, groups, channels of a group, positions]: a view in either memory order."""
        (found,) = present(array)
        sizes = self.sizes
        batch, groups, positions = found.shape[0], sizes.groups, sizes.positions
        if self.last:
            return found.reshape(batch, positions, groups, -1).transpose(0, 2, 3, 1)
        return found.reshape(batch, groups, -1, positions)

    def weights(self, array: Array | None) -> Array:
        """W or dW as [taps, groups, channels of a group, filters of a group]."""
        (found,) = present(array)
        taps, groups, channels, filters = self.sizes.matrices
        if self.last:
            return found.reshape(groups, channels, taps, filters).transpose(2, 0, 1, 3)
        return found.reshape(groups, channels, filters, taps).transpose(3, 0, 1, 2)

    def taps(self) -> Iterator[_Tap]:
        """(number, positions of X, where they land on Y) of each tap that meets Y at all."""
        whole = Part(0, 1, 0, self.sizes.sizes[0])
        for number, small, large in self.sizes.window.taps_of(whole):
            yield number, small[1:], large[1:]

    def product(self, name: str) -> tuple[Array, Array]:
        """Scratch as [groups, channels of a group, positions], and the same as [channels, *spatial]."""
        array = self.call.scratch[name]
        groups, sizes = self.sizes.groups, self.sizes.sizes
        return array.reshape(groups, -1, self.sizes.positions), array.reshape(-1, *sizes)


def _forward(call: Call) -> Step:
    sides = _Sides(call)
    x, y, bias = sides.matrices(call.x[0]), sides.image(call.y[0]), _optional(call.x, 2)
    weights = call.scratch["weights"]
    start = 0 if bias is None else bias.reshape(-1, *[1] * len(sides.sizes.sizes))
    product, images = sides.product("product")
    steps: list[Step] = [bound(np.copyto, weights, sides.weights(call.x[1]))]
    for matrix, image in zip(x, y, strict=True):
        steps.append(bound(np.copyto, image, start))
        for number, small, large in sides.taps():
            steps.append(bound(np.matmul, weights[number].transpose(0, 2, 1), matrix, out=product))
            into = image[(slice(None), *large)]
            steps.append(bound(np.add, into, images[(slice(None), *small)], out=into))
    return with_small_buffers(run_all(steps))


def _backward(call: Call) -> Step:
    sides = _Sides(call)
    dy = sides.image(call.dy[0])
    dx, dw, db = (_optional(call.dx, i) for i in range(3))
    steps: list[Step] = []
    if dx is not None:
        steps.append(bound(np.copyto, call.scratch["weights"], sides.weights(call.x[1])))
        steps.append(bound(dx.fill, 0))
    if dw is not None:
        steps.append(bound(call.scratch["gradient"].fill, 0))
    if dx is not None or dw is not None:
        for example, image in enumerate(dy):
            for tap in sides.taps():
                steps += _tap_steps(sides, example, image, tap)
    if dw is not None:
        steps.append(bound(np.copyto, sides.weights(dw), call.scratch["gradient"]))
    if db is not None:
        steps.append(bound(np.add.reduce, dy, axis=(0, *range(2, dy.ndim)), out=db))
    return with_small_buffers(run_all(steps))


def _tap_steps(sides: _Sides, example: int, dy: Array, tap: _Tap) -> list[Step]:
    """What one tap of one example adds to dX and dW."""
    call, (number, small, large) = sides.call, tap
    dx, dw = call.dx[0], _optional(call.dx, 1)
    gathered, images = sides.product("gathered")
    steps: list[Step] = [
        bound(gathered.fill, 0),
        bound(np.copyto, images[(slice(None), *small)], dy[(slice(None), *large)]),
    ]
    if dx is not None:
        product, into = sides.product("product")[0], sides.matrices(dx)[example]
        steps.append(bound(np.matmul, call.scratch["weights"][number], gathered, out=product))
        steps.append(bound(np.add, into, product, out=into))
    if dw is not None:
        partial, total = call.scratch["partial"], call.scratch["gradient"][number]
        x = sides.matrices(call.x[0])[example]
        steps.append(bound(np.matmul, x, gathered.transpose(0, 2, 1), out=partial))
        steps.append(bound(np.add, total, partial, out=total))
    return steps


KERNELS: Mapping[str, Kernels] = {"ConvTranspose": Kernels(_forward, _backward)}
