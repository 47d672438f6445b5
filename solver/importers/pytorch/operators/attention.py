"""Scaled dot-product attention: one operator in PyTorch, here two products and a softmax."""

from __future__ import annotations

import math

import numpy as np

from solver.graph import DType
from solver.importers.pytorch.context import Context, Handler, Value
from solver.importers.pytorch.operators.elementwise import HANDLERS as ELEMENTWISE

__all__ = ["HANDLERS"]


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


HANDLERS: dict[str, Handler] = {"scaled_dot_product_attention.default": _attention}
