"""Kernels of binary arithmetic with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from solver.executor.kernels._activation import activation_derivative, apply_activation
from solver.executor.kernels._blocks import (
    Step,
    block_views,
    bound,
    is_new,
    present,
    run_all,
    staging,
    sum_into,
    with_small_buffers,
)
from solver.executor.kernels.base import Call, Kernels
from solver.graph.types import Array

__all__ = ["KERNELS"]

#: (dZ, A, B, out) -> None: a derivative before it is summed. A and B are real only where it reads them.
_Term = Callable[[Array, Array, Array, Array], None]


def _same(dz: Array, a: Array, b: Array, out: Array) -> None:
    np.copyto(out, dz)


def _negated(dz: Array, a: Array, b: Array, out: Array) -> None:
    np.multiply(dz, -1, out=out)


def _times_left(dz: Array, a: Array, b: Array, out: Array) -> None:
    np.multiply(dz, a, out=out)


def _times_right(dz: Array, a: Array, b: Array, out: Array) -> None:
    np.multiply(dz, b, out=out)


def _over_right(dz: Array, a: Array, b: Array, out: Array) -> None:
    np.divide(dz, b, out=out)


def _quotient_right(dz: Array, a: Array, b: Array, out: Array) -> None:
    """-dZ A / B^2, dividing twice: B^2 may underflow where the quotient does not."""
    np.divide(dz, b, out=out)
    np.divide(out, b, out=out)
    np.multiply(out, a, out=out)
    np.multiply(out, -1, out=out)


def _forward(function: np.ufunc) -> Callable[[Call], Step]:
    def prepare(call: Call) -> Step:
        a, b, y = present(call.x[0], call.x[1], call.y[0])
        activation = call.attributes["activation"]

        def run() -> None:
            function(a, b, out=y)
            apply_activation(activation, y)

        return with_small_buffers(run)

    return prepare


def _backward(terms: tuple[_Term, _Term]) -> Callable[[Call], Step]:
    def prepare(call: Call) -> Step:
        blocks = _Blocks(call)
        return with_small_buffers(
            run_all([step for parts in blocks.views() for step in blocks.steps(parts, terms)])
        )

    return prepare


class _Blocks:
    """The operands of one backward step in blocks of Y; absent ones are stood in for by dY, never read."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.activation: str = call.attributes["activation"]
        self.seen: tuple[set[int], set[int]] = (set(), set())

    def views(self) -> list[tuple[Array, ...]]:
        call = self.call
        (dy,) = present(call.dy[0])
        optional = (call.y[0] if call.y else None, *_two(call.x), *_two(call.dx))
        arrays = (dy, *(dy if array is None else array for array in optional))
        return list(block_views(call.node.outputs[0].shape, arrays))

    def steps(self, parts: tuple[Array, ...], terms: tuple[_Term, _Term]) -> list[Step]:
        dy, y, a, b, *dx = parts
        steps: list[Step] = []
        dz = dy
        if self.activation != "None":
            dz = staging(self.call.scratch["inner"], dy.shape)
            steps.append(bound(activation_derivative, self.activation, y, dy, dz))
        for position in (0, 1):
            if _two(self.call.dx)[position] is not None:
                steps += self._derivative(terms[position], dz, a, b, dx[position], self.seen[position])
        return steps

    def _derivative(
        self, term: _Term, dz: Array, a: Array, b: Array, dx: Array, seen: set[int]
    ) -> list[Step]:
        first = is_new(seen, dx)
        if dx.shape == dz.shape and first:
            return [bound(term, dz, a, b, dx)]
        partial = self.call.scratch.get("partial")
        if term is _same:
            return [sum_into(dz, dx, partial, first=first)]
        whole = staging(self.call.scratch["term"], dz.shape)
        return [bound(term, dz, a, b, whole), sum_into(whole, dx, partial, first=first)]


def _two(arrays: tuple[Array | None, ...]) -> tuple[Array | None, Array | None]:
    left, right = (*arrays, None, None)[:2]
    return left, right


KERNELS: Mapping[str, Kernels] = {
    "Add": Kernels(_forward(np.add), _backward((_same, _same))),
    "Sub": Kernels(_forward(np.subtract), _backward((_same, _negated))),
    "Mul": Kernels(_forward(np.multiply), _backward((_times_right, _times_left))),
    "Div": Kernels(_forward(np.divide), _backward((_over_right, _quotient_right))),
}
