"""Rows chosen by index: embeddings, and indexing by one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from solver.graph import DType
from solver.importers.pytorch.context import Context, Handler, UnsupportedError
from solver.importers.pytorch.recorder import Value

__all__ = ["HANDLERS"]


def _embedding(
    c: Context,
    table: Value,
    index: Value,
    padding_index: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """The row of `padding_index` is not trained: a constant stands there, which no derivative reaches."""
    if scale_grad_by_freq:
        raise UnsupportedError("an embedding whose gradients are divided by counts")
    rows = c.apply("Gather", table, index, axis=0)
    if padding_index < 0:
        return rows
    padded = c.apply("Equal", index, c.number(padding_index, index.dtype))
    return c.apply("Where", c.reshape(padded, (*index.shape, 1)), c.row(table, padding_index), rows)


def _index(c: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype is DType.BOOL:
        raise UnsupportedError("indexing by several tensors, or by a mask")
    ((axis, index),) = given
    return c.apply("Gather", x, index, axis=axis)


HANDLERS: dict[str, Handler] = {
    "embedding.default": _embedding,
    "index.Tensor": _index,
    "index_select.default": lambda c, x, axis, index: c.apply("Gather", x, index, axis=axis % x.rank),
}
