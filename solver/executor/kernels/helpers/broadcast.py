"""Derivatives of operators whose operands broadcast: a term for each operand, summed where it was broadcast.

Everything is done block by block of Y:

    dY, Y, X ... --> dZ (behind a fused activation) --> term --> sum over the broadcast axes --> dX

A term is written where its derivative belongs at once if nothing has to be summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.executor.kernels.base import Call
from solver.executor.kernels.helpers.activation import activation_derivative
from solver.executor.kernels.helpers.blocks import (
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
from solver.graph.types import Array

__all__ = ["Parts", "Term", "broadcast_backward", "same"]


@dataclass(frozen=True, slots=True)
class Parts:
    """One block of all operands. For what the operator did not ask to read stands dY, which is not read."""

    dz: Array
    y: Array
    x: tuple[Array, ...]


#: (block, out) -> None: the derivative of one operand before it is summed.
Term = Callable[[Parts, Array], None]


def same(parts: Parts, out: Array) -> None:
    """The term of an operand whose derivative is dZ itself."""
    np.copyto(out, parts.dz)


def broadcast_backward(*terms: Term | None) -> Callable[[Call], Step]:
    """The backward kernel of an operator with a term for each input, none where it has no derivative.

    Scratch: ``term`` of a block, ``partial`` of the largest operand that is summed, and ``inner`` of a
    block behind a fused activation.
    """

    def prepare(call: Call) -> Step:
        blocks = _Blocks(call, terms)
        return with_small_buffers(run_all([step for parts in blocks.views() for step in blocks.steps(parts)]))

    return prepare


class _Blocks:
    """The blocks of one backward step."""

    def __init__(self, call: Call, terms: Sequence[Term | None]) -> None:
        self.call = call
        self.terms = terms
        self.activation: str = call.attributes.get("activation", "None")
        self.seen: list[set[int]] = [set() for _ in terms]

    def views(self) -> list[tuple[Array, ...]]:
        call = self.call
        (dy,) = present(call.dy[0])
        optional = (call.y[0] if call.y else None, *self._each(call.x), *self._each(call.dx))
        arrays = (dy, *(dy if array is None else array for array in optional))
        return list(block_views(call.node.outputs[0].shape, arrays))

    def steps(self, parts: tuple[Array, ...]) -> list[Step]:
        dy, y, *rest = parts
        count = len(self.terms)
        steps: list[Step] = []
        dz = dy
        if self.activation != "None":
            dz = staging(self.call.scratch["inner"], dy.shape)
            steps.append(bound(activation_derivative, self.activation, y, dy, dz))
        block = Parts(dz, y, tuple(rest[:count]))
        for position, term in enumerate(self.terms):
            if term is not None and self._each(self.call.dx)[position] is not None:
                steps += self._derivative(term, block, rest[count + position], self.seen[position])
        return steps

    def _derivative(self, term: Term, block: Parts, dx: Array, seen: set[int]) -> list[Step]:
        first = is_new(seen, dx)
        if dx.shape == block.dz.shape and first:
            return [bound(term, block, dx)]
        partial = self.call.scratch.get("partial")
        if term is same:
            return [sum_into(block.dz, dx, partial, first=first)]
        whole = staging(self.call.scratch["term"], block.dz.shape)
        return [bound(term, block, whole), sum_into(whole, dx, partial, first=first)]

    def _each(self, arrays: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        """One for each input, those left out included."""
        return (*arrays, *[None] * len(self.terms))[: len(self.terms)]
