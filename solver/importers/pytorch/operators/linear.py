"""Matrix products. The weight of a linear layer stays as PyTorch has it, [outputs, inputs]."""

from __future__ import annotations

import math
from collections.abc import Sequence

from solver.importers.pytorch.context import Context, Handler, Value

__all__ = ["HANDLERS", "affine"]


def affine(c: Context, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """X W' + b over the last axis; the axes before it are rows of one product."""
    flat = c.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    y = c.apply("Gemm", flat, weight, *([bias] if bias else []), transB=1)
    return c.reshape(y, (*x.shape[:-1], weight.shape[0]))


def _addmm(c: Context, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    return c.apply("Gemm", a, b, bias, alpha=float(alpha), beta=float(beta))


def _matmul(c: Context, a: Value, b: Value) -> Value:
    return c.apply("MatMul", a, b)


def _baddbmm(c: Context, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    product = c.apply("MatMul", a, b)
    if alpha != 1:
        product = c.apply("Mul", product, c.number(alpha, a.dtype))
    if beta == 0:
        return product
    return c.apply("Add", product, bias if beta == 1 else c.apply("Mul", bias, c.number(beta, a.dtype)))


def _trilinear(
    c: Context,
    a: Value,
    b: Value,
    d: Value,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_d: Sequence[int],
    summed: Sequence[int],
    *_: object,
) -> Value:
    """The product of three tensors, each with axes of size 1 at its places, summed along axes."""
    raised = []
    for x, places in ((a, expand_a), (b, expand_b), (d, expand_d)):
        shape = list(x.shape)
        for place in sorted(places):
            shape.insert(place, 1)
        raised.append(c.reshape(x, shape))
    product = c.apply("Mul", c.apply("Mul", raised[0], raised[1]), raised[2])
    return c.apply("ReduceSum", product, c.integers("axes", list(summed)), keepdims=0)


HANDLERS: dict[str, Handler] = {
    "linear.default": affine,
    "addmm.default": _addmm,
    "mm.default": _matmul,
    "bmm.default": _matmul,
    "mv.default": _matmul,
    "dot.default": _matmul,
    "matmul.default": _matmul,
    "baddbmm.default": _baddbmm,
    "_trilinear.default": _trilinear,
}
