"""Kernels of the matrix products: one BLAS call for each product, written where its result belongs.

A stored right operand takes one call for each of its tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.executor.kernels.helpers.blocks import (
    Step,
    block_views,
    bound,
    is_new,
    optional,
    present,
    run_all,
    staging,
    sum_steps,
    with_small_buffers,
)
from solver.executor.kernels.helpers.stored import tiles
from solver.graph.ops.helpers.stored import is_stored
from solver.graph.ops.linear import Product, gemm_product, inner_rows, matmul_product
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _product(a: Array, b: Array, out: Array, scale: float = 1.0) -> Step:
    if scale == 1:
        return bound(np.matmul, a, b, out=out)

    def run() -> None:
        np.matmul(a, b, out=out)
        np.multiply(out, scale, out=out)

    return run


def _products_with_tiles(call: Call, left: Array, y: Array, scale: float = 1.0) -> list[Step]:
    """Y = A B, for the columns of Y that belong to each tile of a stored B."""
    steps: list[Step] = []
    for columns, tile, unpacks in tiles(call, 1):
        steps += [unpacks, _product(left, tile.T, y[:, columns], scale)]
    return steps


def _left_derivative_with_tiles(call: Call, dz: Array, out: Array, scale: float = 1.0) -> list[Step]:
    """dA = dZ B^T, each tile of a stored B adding its part to `out`, by as many rows as scratch has."""
    steps: list[Step] = []
    for columns, tile, unpacks in tiles(call, 1):
        steps.append(unpacks)
        if not columns.start:
            steps.append(_product(dz[:, columns], tile, out, scale))
            continue
        (scratch,) = present(call.scratch["partial_left"])
        for start in range(0, len(dz), len(scratch)):
            rows = slice(start, start + len(scratch))
            part = scratch[: len(dz[rows])]
            steps.append(_product(dz[rows, columns], tile, part, scale))
            steps.append(bound(np.add, out[rows], part, out=out[rows]))
    return steps


def _bias_steps(call: Call, y: Array) -> list[Step]:
    """Y += beta C; C times beta is staged by blocks of Y."""
    bias = optional(call.x, 2)
    beta = call.attributes["beta"]
    if bias is None or beta == 0:
        return []
    if beta == 1:
        return [bound(np.add, y, bias, out=y)]
    return [
        _add_scaled(into, part, beta, staging(call.scratch["bias"], part.shape))
        for into, part in block_views(y.shape, (y, bias))
    ]


def _add_scaled(y: Array, bias: Array, beta: float, scaled: Array) -> Step:
    def run() -> None:
        np.multiply(bias, beta, out=scaled)
        np.add(y, scaled, out=y)

    return run


def _activate(call: Call, y: Array) -> list[Step]:
    name = call.attributes["activation"]
    return [] if name == "None" else [bound(apply_activation, name, y)]


def _gemm_forward(call: Call) -> Step:
    a, b, y = present(call.x[0], call.x[1], call.y[0])
    alpha, left = call.attributes["alpha"], _transposed(a, call.attributes["transA"])
    if is_stored(call.node, 1):
        products = _products_with_tiles(call, left, y, alpha)
    else:
        products = [_product(left, _transposed(b, call.attributes["transB"]), y, alpha)]
    return with_small_buffers(run_all([*products, *_bias_steps(call, y), *_activate(call, y)]))


def _inner(call: Call, product: Product) -> Iterator[tuple[slice, Array, list[Step]]]:
    """(rows, dZ of these rows, steps that compute it) for all rows; dZ is dY without an activation."""
    (dy,) = present(call.dy[0])
    dy = dy.reshape(product.rows, product.columns)
    name = call.attributes["activation"]
    if name == "None":
        yield slice(0, product.rows), dy, []
        return
    (y,) = present(call.y[0])
    y = y.reshape(dy.shape)
    derivatives = frozenset(i for i, array in enumerate(call.dx) if array is not None)
    step = inner_rows(call.node, product, derivatives)
    for start in range(0, product.rows, step):
        rows = slice(start, min(start + step, product.rows))
        dz = call.scratch["inner"][: rows.stop - rows.start]
        yield rows, dz, [bound(activation_derivative, name, y[rows], dy[rows], dz)]


def _transposed(array: Array, is_transposed: int) -> Array:
    return array.T if is_transposed else array


def _gemm_backward(call: Call) -> Step:
    """dA = alpha dZ B^T, dB = alpha A^T dZ, dC = beta dZ summed over what C was broadcast along.

    Where an operand is used transposed, so is its derivative: the product is written through the
    transposed view, which BLAS can address.
    """
    attributes, product = call.attributes, gemm_product(call.node)
    da, db, dc = (optional(call.dx, i) for i in range(3))
    steps: list[Step] = []
    bias_seen: set[int] = set()
    for rows, dz, before in _inner(call, product):
        steps += before
        if da is not None and is_stored(call.node, 1):
            out = _transposed(da, attributes["transA"])[rows]
            steps += _left_derivative_with_tiles(call, dz, out, attributes["alpha"])
        elif da is not None:
            (b,) = present(call.x[1])
            out = _transposed(da, attributes["transA"])[rows]
            steps.append(_product(dz, _transposed(b, not attributes["transB"]), out, attributes["alpha"]))
        if db is not None:
            (a,) = present(call.x[0])
            out = _transposed(db, attributes["transB"])
            steps.append(_product(_transposed(a, not attributes["transA"]), dz, out, attributes["alpha"]))
        if dc is not None:
            steps += _bias_sum(call, dz, dc, rows, bias_seen)
    if dc is not None and attributes["beta"] != 1:
        steps.append(bound(np.multiply, dc, attributes["beta"], out=dc))
    return run_all(steps)


def _bias_sum(call: Call, dz: Array, dc: Array, rows: slice, seen: set[int]) -> list[Step]:
    matrix = dc.reshape((1,) * (2 - dc.ndim) + dc.shape)
    into = matrix if matrix.shape[0] == 1 else matrix[rows]
    return sum_steps(dz, into, call.scratch.get("partial"), seen)


def _matmul_forward(call: Call) -> Step:
    a, b, y = present(call.x[0], call.x[1], call.y[0])
    product = matmul_product(call.node)
    if is_stored(call.node, 1):
        left, out = a.reshape(product.rows, product.inner), y.reshape(product.rows, product.columns)
        return run_all([*_products_with_tiles(call, left, out), *_activate(call, y)])
    left, right, out = _matrices(product, a, b, y)
    return run_all([_product(left, right, out), *_activate(call, y)])


def _matrices(product: Product, a: Array, b: Array, y: Array) -> tuple[Array, Array, Array]:
    """Operands and result as batches of matrices."""
    return (
        a.reshape(*product.left_batch, product.rows, product.inner),
        b.reshape(*product.right_batch, product.inner, product.columns),
        y.reshape(*product.batch, product.rows, product.columns),
    )


def _matmul_backward(call: Call) -> Step:
    product = matmul_product(call.node)
    return _batch_backward(call, product) if product.batch else _single_backward(call, product)


def _single_backward(call: Call, product: Product) -> Step:
    da, db = (optional(call.dx, i) for i in range(2))
    steps: list[Step] = []
    for rows, dz, before in _inner(call, product):
        steps += before
        if da is not None and is_stored(call.node, 1):
            steps += _left_derivative_with_tiles(call, dz, da.reshape(product.rows, product.inner)[rows])
        elif da is not None:
            (b,) = present(call.x[1])
            out = da.reshape(product.rows, product.inner)[rows]
            steps.append(_product(dz, b.reshape(product.inner, product.columns).T, out))
        if db is not None:
            (a,) = present(call.x[0])
            out = db.reshape(product.inner, product.columns)
            steps.append(_product(a.reshape(product.rows, product.inner).T, dz, out))
    return run_all(steps)


def _batch_backward(call: Call, product: Product) -> Step:
    """Derivatives of one matrix of the batch after the other; those of a shared operand are added up."""
    (dy,) = present(call.dy[0])
    dy = dy.reshape(-1, product.rows, product.columns)
    sides = list(_sides(call, product))
    name, steps = call.attributes["activation"], list[Step]()
    for index, dz in enumerate(dy):
        if name != "None":
            (y,) = present(call.y[0])
            inner = call.scratch["inner"]
            steps.append(bound(activation_derivative, name, y.reshape(dy.shape)[index], dz, inner))
            dz = inner
        steps += [side(index, dz) for side in sides]
    return run_all(steps)


def _sides(call: Call, product: Product) -> Iterator[Callable[[int, Array], Step]]:
    """For each derivative that is computed, a function from (matrix of the batch, its dZ) to its step."""
    at_left = _shared(product.batch, product.left_batch)
    at_right = _shared(product.batch, product.right_batch)
    left_shape = (-1, product.rows, product.inner)
    right_shape = (-1, product.inner, product.columns)
    if call.dx[0] is not None:
        b, da = present(call.x[1], call.dx[0])
        add_left = _Accumulator(da.reshape(left_shape), call.scratch.get("partial_left"))
        right = b.reshape(right_shape)
        yield lambda index, dz: add_left.step(dz, right[at_right[index]].T, at_left[index])
    if optional(call.dx, 1) is not None:
        a, db = present(call.x[0], call.dx[1])
        add_right = _Accumulator(db.reshape(right_shape), call.scratch.get("partial_right"))
        left = a.reshape(left_shape)
        yield lambda index, dz: add_right.step(left[at_left[index]].T, dz, at_right[index])


def _shared(batch: tuple[int, ...], own: tuple[int, ...]) -> list[int]:
    """Which matrix of an operand each matrix of the batch uses."""
    numbers = np.arange(math.prod(own)).reshape(own)
    return [int(number) for number in np.broadcast_to(numbers, batch).flat]


class _Accumulator:
    """Products added up in matrices of `target`; the first one of each overwrites it."""

    def __init__(self, target: Array, partial: Array | None) -> None:
        self._target = target
        self._partial = partial
        self._seen: set[int] = set()

    def step(self, a: Array, b: Array, position: int) -> Step:
        into = self._target[position]
        if is_new(self._seen, into):
            return _product(a, b, into)
        (part,) = present(self._partial)

        def run() -> None:
            np.matmul(a, b, out=part)
            np.add(into, part, out=into)

        return run


KERNELS: Mapping[str, Kernels] = {
    "Gemm": Kernels(_gemm_forward, _gemm_backward),
    "MatMul": Kernels(_matmul_forward, _matmul_backward),
}
