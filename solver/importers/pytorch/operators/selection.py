"""Elements chosen by index: embeddings and bags of them, indexing, windows that overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from solver.graph import Array, DType
from solver.importers.pytorch.context import Context, Handler, UnsupportedError
from solver.importers.pytorch.recorder import Value

__all__ = ["HANDLERS", "element_at"]


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


def _bag(
    c: Context,
    table: Value,
    index: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Value | None = None,
    include_last_offset: bool = False,
    padding_index: int = -1,
) -> tuple[Value, None, None, None]:
    """Sums, means or maxima of the rows of bags that all have one size, as a table of indices gives them."""
    if offsets.constant is None or index.rank != 1:
        raise UnsupportedError("bags whose sizes are computed from data")
    if scale_grad_by_freq or padding_index >= 0:
        raise UnsupportedError("bags with a padding index, or gradients divided by counts")
    starts = np.asarray(offsets.constant, np.int64)
    ends = starts[1:] if include_last_offset else np.append(starts[1:], index.shape[0])
    sizes = set((ends - starts[: len(ends)]).tolist())
    if len(sizes) != 1 or sizes == {0} or starts[0]:
        raise UnsupportedError(f"bags of several sizes: {sorted(sizes)}")
    size, count = sizes.pop(), len(ends)
    rows = c.reshape(c.apply("Gather", table, index, axis=0), (count, size, table.shape[1]))
    if weights is not None:
        rows = c.apply("Mul", rows, c.reshape(weights, (count, size, 1)))
    kind = ("ReduceSum", "ReduceMean", "ReduceMax")[mode]
    return c.apply(kind, rows, c.integers("axes", [1]), keepdims=0), None, None, None


def _flat(c: Context, x: Value, axes: int) -> Value:
    """The first axes as one."""
    return c.reshape(x, (math.prod(x.shape[:axes]), *x.shape[axes:]))


def _places(c: Context, sizes: Sequence[int], indices: Sequence[Value | Array]) -> Value:
    """Positions in axes of these sizes, as positions in the one axis that they are together.

    Indices are known ones, or computed ones, which are arithmetic; negative ones count from the end.
    """
    known: Array = np.zeros((), np.int64)
    found: Value | None = None
    for k, (size, index) in enumerate(zip(sizes, indices, strict=True)):
        stride = math.prod(sizes[k + 1 :])
        if isinstance(index, Value) and index.constant is None:
            index = c.cast(index, DType.INT64)
            behind = c.apply("Less", index, c.number(0, DType.INT64))
            wrapped = c.apply("Add", index, c.number(size, DType.INT64))
            index = c.apply("Where", behind, wrapped, index)
            scaled = c.apply("Mul", index, c.number(stride, DType.INT64)) if stride > 1 else index
            found = scaled if found is None else c.apply("Add", found, scaled)
        else:
            given = np.asarray(index.constant if isinstance(index, Value) else index, np.int64)
            known = known + given % size * stride
    if found is not None and not known.any() and len(known.shape) <= found.rank:
        shape = np.broadcast_shapes(known.shape, found.shape)
        if shape == found.shape:
            return found
    constant = c.recorder.constant(f"{c.recorder.scope}.places", np.asarray(known, np.int64))
    return constant if found is None else c.apply("Add", found, constant)


def _index(c: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    """Indices broadcast; they stand where the first of them stood, or first where others stand between."""
    given = [(axis, index) for axis, index in enumerate(_unmasked(c, indices)) if index is not None]
    if not given:
        return x
    axes = [axis for axis, _ in given]
    if len(given) == 1 and isinstance(given[0][1], Value):
        return c.apply("Gather", x, given[0][1], axis=axes[0])
    others = [axis for axis in range(x.rank) if axis not in axes]
    rows = _flat(c, c.transpose(x, [*axes, *others]), len(axes))
    places = _places(c, [x.shape[axis] for axis in axes], [index for _, index in given])
    picked = c.apply("Gather", rows, places, axis=0)
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    before = [places.rank + k for k in range(first)]
    rest = [axis for axis in range(picked.rank) if axis not in before]
    return c.transpose(picked, [*before, *rest])


def _unmasked(c: Context, indices: Sequence[Value | None]) -> list[Value | Array | None]:
    """Masks, which must be known, as the places that they mark; a mask has several axes."""
    found: list[Value | Array | None] = []
    for index in indices:
        if index is None or index.dtype is not DType.BOOL:
            found.append(index)
        elif index.constant is None:
            raise UnsupportedError("indexing by a mask that is computed from data, whose count nobody knows")
        else:
            found += np.nonzero(np.asarray(index.constant))
    return found


def _assigned(
    c: Context, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """X with a number where a mask holds."""
    mask = indices[0]
    if accumulate or len(indices) != 1 or mask is None or mask.dtype is not DType.BOOL:
        raise UnsupportedError("an assignment by index, other than of a number by a mask")
    if math.prod(values.shape) != 1:
        raise UnsupportedError("an assignment of a tensor by a mask, whose count nobody knows")
    whole = c.reshape(mask, (*mask.shape, *(1,) * (x.rank - mask.rank)))
    return c.apply("Where", whole, c.cast(c.reshape(values, ()), x.dtype), x)


def element_at(c: Context, x: Value, axis: int, index: Value, **_: object) -> Value:
    """An element for each index: the other axes say where along them."""
    if not x.rank:
        return x
    axis %= x.rank
    shape = index.shape or (1,)
    grid: list[Value | Array] = list(np.indices(shape, sparse=True))
    grid[axis] = index
    places = _places(c, x.shape, grid)
    return c.reshape(c.apply("Gather", _flat(c, x, x.rank), places, axis=0), c.result.shape)


def _windows(c: Context, x: Value, axis: int, size: int, step: int) -> Value:
    """Windows of an axis that overlap; what they hold is the last axis."""
    axis %= x.rank
    starts = np.arange(0, x.shape[axis] - size + 1, step)
    places = (starts[:, None] + np.arange(size)).astype(np.int64)
    taken = c.apply("Gather", x, c.recorder.constant(f"{c.recorder.scope}.windows", places), axis=axis)
    return c.last(taken, axis + 1)


HANDLERS: dict[str, Handler] = {
    "embedding.default": _embedding,
    "_embedding_bag.default": _bag,
    "_embedding_bag_forward_only.default": _bag,
    "gather.default": element_at,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "index_put.default": _assigned,
    "index_select.default": lambda c, x, axis, index: c.apply("Gather", x, index, axis=axis % x.rank),
    "unfold.default": _windows,
}
