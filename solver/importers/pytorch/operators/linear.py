"""Matrix products and attention. A linear layer's weight stays as PyTorch has it, [outputs, inputs]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from solver.graph import DType
from solver.importers.pytorch.context import Context, Handler, Value
from solver.importers.pytorch.operators.elementwise import HANDLERS as ELEMENTWISE

__all__ = ["HANDLERS", "affine"]


def affine(c: Context, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """X W' + b over the last axis; the axes before it are rows of one product."""
    flat = c.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    y = c.apply("Gemm", flat, weight, *([bias] if bias else []), transB=1)
    return c.reshape(y, (*x.shape[:-1], weight.shape[0]))


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


def _attention(
    c: Context,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(Q K' scale + mask) V; what a mask forbids is minus infinity before the softmax."""
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (_repeated(c, x, query.shape[-3] // x.shape[-3]) for x in (key, value))
    dtype = query.dtype
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scaled = c.apply("Mul", query, c.number(factor, dtype))
    axes = list(range(key.rank))
    axes[-2:] = axes[:-3:-1]
    scores = c.apply("MatMul", scaled, c.transpose(key, axes))
    if is_causal:
        forbidden = np.triu(np.full(scores.shape[-2:], -np.inf, dtype.numpy), 1)
        scores = c.apply("Add", scores, c.constant(f"{c.scope}.causal", forbidden))
    elif mask is not None and mask.dtype is DType.BOOL:
        scores = c.apply("Where", mask, scores, c.number(-np.inf, dtype))
    elif mask is not None:
        scores = c.apply("Add", scores, c.cast(mask, dtype))
    weights = c.apply("Softmax", scores, axis=-1)
    return c.apply("MatMul", ELEMENTWISE["dropout.default"](c, weights, dropout), value)


def _repeated(c: Context, x: Value, count: int) -> Value:
    """The heads, each repeated `count` times in a row."""
    *batch, heads, length, size = x.shape
    apart = c.reshape(x, (*batch, heads, 1, length, size))
    wide = c.apply("Expand", apart, c.integers("heads", (*batch, heads, count, length, size)))
    return c.reshape(wide, (*batch, heads * count, length, size))


HANDLERS: dict[str, Handler] = {
    "linear.default": affine,
    "addmm.default": lambda c, bias, a, b, *, beta=1, alpha=1: c.apply(
        "Gemm", a, b, bias, alpha=float(alpha), beta=float(beta)
    ),
    "mm.default": _matmul,
    "bmm.default": _matmul,
    "mv.default": _matmul,
    "dot.default": _matmul,
    "matmul.default": _matmul,
    "baddbmm.default": _baddbmm,
    "_trilinear.default": _trilinear,
    "scaled_dot_product_attention.default": _attention,
}
