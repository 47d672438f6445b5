"""Code that the recurrent cells share: operands as matrices, products, derivatives behind a gate."""

from __future__ import annotations

import numpy as np

from solver.executor.kernels.base import Call
from solver.executor.kernels.helpers.blocks import Step, bound, present, staging
from solver.graph.ops.recurrent import Cell
from solver.graph.types import Array

__all__ = [
    "add_state_product",
    "bias_derivative",
    "gate_columns",
    "input_derivatives",
    "input_product",
    "matrix",
    "times_gate",
    "times_tanh",
    "vector",
]


def matrix(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    """An operand as a matrix, without the axis in front; nothing where it is left out."""
    array = arrays[position] if position < len(arrays) else None
    return None if array is None else array.reshape(array.shape[-2:])


def vector(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    array = arrays[position] if position < len(arrays) else None
    return None if array is None else array.reshape(-1)


def gate_columns(array: Array, count: int) -> list[Array]:
    """The columns of each gate."""
    return np.split(array, count, axis=1)


def input_product(call: Call, sizes: Cell, out: Array, together: int) -> list[Step]:
    """out = X W' + its biases; those of the product with R are added in the first `together` columns."""
    x, w = present(matrix(call.x, 0), matrix(call.x, sizes.w))
    bias = vector(call.x, sizes.b)
    steps = [bound(np.matmul, x, w.T, out=out)]
    if bias is not None:
        steps.append(bound(np.add, out, bias[: sizes.rows], out=out))
        if bias.size > sizes.rows:
            part = out[:, :together]
            steps.append(bound(np.add, part, bias[sizes.rows :][:together], out=part))
    return steps


def add_state_product(call: Call, sizes: Cell, out: Array, state: Array | None, rows: slice) -> list[Step]:
    """out += state R', with these rows of R; nothing where the state is zeros."""
    if state is None:
        return []
    (r,) = present(matrix(call.x, sizes.r))
    product = staging(call.scratch["recurrent"], out.shape)
    return [bound(np.matmul, state, r[rows].T, out=product), bound(np.add, out, product, out=out)]


def times_gate(out: Array, gate: Array, *factors: Array) -> list[Step]:
    """out = gate (1 - gate) * factors: behind a sigmoid."""
    steps = [bound(np.subtract, 1, gate, out=out)]
    return steps + [bound(np.multiply, out, factor, out=out) for factor in (gate, *factors)]


def times_tanh(out: Array, squashed: Array, *factors: Array) -> list[Step]:
    """out = (1 - squashed ** 2) * factors: behind a tanh."""
    steps = [bound(np.multiply, squashed, squashed, out=out), bound(np.subtract, 1, out, out=out)]
    return steps + [bound(np.multiply, out, factor, out=out) for factor in factors]


def input_derivatives(call: Call, sizes: Cell, inner: Array) -> list[Step]:
    """dX and dW from the derivative of the gates' sums."""
    dx, dw, steps = matrix(call.dx, 0), matrix(call.dx, sizes.w), list[Step]()
    if dx is not None:
        steps.append(bound(np.matmul, inner, *present(matrix(call.x, sizes.w)), out=dx))
    if dw is not None:
        steps.append(bound(np.matmul, inner.T, *present(matrix(call.x, 0)), out=dw))
    return steps


def bias_derivative(call: Call, sizes: Cell, inner: Array) -> list[Step]:
    """dB: the sum over the examples, for both biases the same."""
    db = vector(call.dx, sizes.b)
    if db is None:
        return []
    steps = [bound(np.add.reduce, inner, axis=0, out=db[: sizes.rows])]
    if db.size > sizes.rows:
        steps.append(bound(np.copyto, db[sizes.rows :], db[: sizes.rows]))
    return steps
