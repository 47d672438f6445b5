"""Elements in other shapes, orders and places, and elements chosen by index: embeddings, bags, windows.

PyTorch's views become Reshape, Transpose, Slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from solver.graph import Array, DType
from solver.importers.pytorch.context import Context, Handler, UnsupportedError, Value

__all__ = ["HANDLERS", "element_at"]

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _cast_to_result(c: Context, x: Value, *_: object, **__: object) -> Value:
    """The operand itself, cast to the result's element type."""
    return c.cast(x, c.result.dtype)


def _reshape_to_result(c: Context, x: Value, *_: object, **__: object) -> Value:
    """The operand in the shape that PyTorch states for the result."""
    return c.reshape(x, c.result.shape)


def _swap(c: Context, x: Value, a: int = 0, b: int = 1) -> Value:
    axes = list(range(x.rank))
    if x.rank > 1:
        axes[a], axes[b] = axes[b], axes[a]
    return c.transpose(x, axes)


def _move(c: Context, x: Value, source: Sequence[int], target: Sequence[int]) -> Value:
    places = {t % x.rank: s % x.rank for s, t in zip(source, target, strict=True)}
    others = iter([i for i in range(x.rank) if i not in places.values()])
    return c.transpose(x, [places[i] if i in places else next(others) for i in range(x.rank)])


def _expand(c: Context, x: Value, *_: object, **__: object) -> Value:
    shape = c.result.shape
    return x if x.shape == shape else c.apply("Expand", x, c.integers("shape", shape))


def _concat(c: Context, parts: Sequence[Value], axis: int = 0) -> Value:
    """The concatenation of all parts, cast to the result's element type."""
    parts = [c.cast(x, c.result.dtype) for x in parts]
    if len(parts) == 1:
        return parts[0]
    return c.apply("Concat", *parts, axis=axis % len(c.result.shape))


def _stack(c: Context, parts: Sequence[Value], axis: int = 0) -> Value:
    axis %= parts[0].rank + 1
    raised = [c.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
    return _concat(c, raised, axis)


def _split(c: Context, x: Value, sizes: int | Sequence[int], axis: int = 0) -> tuple[Value, ...]:
    axis %= x.rank
    if isinstance(sizes, int):
        total = x.shape[axis]
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    if len(sizes) == 1:
        return (x,)
    names = [f"out{k}" for k in range(len(sizes))]
    return c.many("Split", [x, c.integers("split", sizes)], names, axis=axis)


def _unbind(c: Context, x: Value, axis: int = 0) -> tuple[Value, ...]:
    axis %= x.rank
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return tuple(c.reshape(part, shape) for part in _split(c, x, 1, axis))


def _slice(
    c: Context, x: Value, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    if x.shape == c.result.shape:
        return x
    return c.slice(x, axis % x.rank, start or 0, x.shape[axis] if end is None else end, step)


def _select(c: Context, x: Value, axis: int, index: int) -> Value:
    index %= x.shape[axis]
    return c.reshape(c.slice(x, axis % x.rank, index, index + 1), c.result.shape)


def _pad(
    c: Context, x: Value, pads: Sequence[int], mode: str = "constant", number: float | None = None
) -> Value:
    """Pads. PyTorch's list has two numbers an axis, before and after it, and begins with the last axis."""
    befores, afters = [0] * x.rank, [0] * x.rank
    for k in range(len(pads) // 2):
        befores[-1 - k], afters[-1 - k] = pads[2 * k], pads[2 * k + 1]
    for axis in range(x.rank):
        if befores[axis] < 0 or afters[axis] < 0:
            end = x.shape[axis] + min(0, afters[axis])
            x = c.slice(x, axis, max(0, -befores[axis]), end)
            befores[axis], afters[axis] = max(0, befores[axis]), max(0, afters[axis])
    if not any(befores) and not any(afters):
        return x
    inputs = [x, c.integers("pads", [*befores, *afters])]
    if number:
        inputs.append(c.number(number, x.dtype))
    return c.apply("Pad", *inputs, mode=_MODES[mode])


def _repeat(c: Context, x: Value, counts: Sequence[int]) -> Value:
    """Repeats each axis: a new axis in front of it is expanded, [a, b] -> [n, a, m, b]."""
    shape = (1,) * (len(counts) - x.rank) + x.shape
    if all(count == 1 or size == 1 for count, size in zip(counts, shape, strict=True)):
        raised = c.reshape(x, shape)
        return raised if raised.shape == c.result.shape else _expand(c, raised)
    apart = [n for size in shape for n in (1, size)]
    wide = [n for count, size in zip(counts, shape, strict=True) for n in (count, size)]
    expanded = c.apply("Expand", c.reshape(x, apart), c.integers("shape", wide))
    return c.reshape(expanded, c.result.shape)


def _roll(c: Context, x: Value, shifts: Sequence[int], axes: Sequence[int] = ()) -> Value:
    if not axes:
        flat = c.reshape(x, (math.prod(x.shape),))
        return c.reshape(_roll(c, flat, shifts, [0]), x.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        axis, size = axis % x.rank, x.shape[axis]
        cut = -shift % size
        if cut:
            parts = [c.slice(x, axis, cut, size), c.slice(x, axis, 0, cut)]
            x = c.apply("Concat", *parts, axis=axis)
    return x


def _flip(c: Context, x: Value, axes: Sequence[int]) -> Value:
    for axis in axes:
        x = c.slice(x, axis % x.rank, -1, -(2**31), -1)
    return x


def _slice_scatter(
    c: Context,
    x: Value,
    source: Value,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """X with a range of an axis replaced: what stands before it, the source, and what stands behind it."""
    axis, first = axis % x.rank, start or 0
    size = x.shape[axis]
    first = max(0, first + size if first < 0 else first)
    last = first + source.shape[axis]
    if step != 1:
        raise UnsupportedError("assignment to every other position")
    parts = [
        *([c.slice(x, axis, 0, first)] if first else []),
        source,
        *([c.slice(x, axis, last, size)] if last < size else []),
    ]
    return parts[0] if len(parts) == 1 else c.apply("Concat", *parts, axis=axis)


def _select_scatter(c: Context, x: Value, source: Value, axis: int, index: int) -> Value:
    axis, index = axis % x.rank, index % x.shape[axis]
    raised = c.reshape(source, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return _slice_scatter(c, x, raised, axis, index)


HANDLERS: dict[str, Handler] = {
    **{f"{name}.default": _cast_to_result for name in (
        "clone", "contiguous", "alias", "_to_copy", "lift_fresh_copy", "lift_fresh", "type_as")},
    **{f"to.{kind}": _cast_to_result for kind in ("dtype", "dtype_layout", "device", "other")},
    **{f"{name}.default": _reshape_to_result for name in (
        "view", "reshape", "_unsafe_view", "view_copy", "unsqueeze", "squeeze")},
    **{f"squeeze.{kind}": _reshape_to_result for kind in ("dim", "dims")},
    "flatten.using_ints": _reshape_to_result,
    "unflatten.int": _reshape_to_result,
    "ravel.default": _reshape_to_result,
    "permute.default": lambda c, x, axes: c.transpose(x, [axis % x.rank for axis in axes]),
    "transpose.int": _swap,
    "swapaxes.default": _swap,
    "t.default": _swap,
    "numpy_T.default": lambda c, x: c.transpose(x, list(range(x.rank))[::-1]),
    "mT.default": lambda c, x: _swap(c, x, -2, -1),
    "movedim.intlist": _move,
    "expand.default": _expand,
    "expand_as.default": _expand,
    "broadcast_to.default": _expand,
    "cat.default": _concat,
    "concat.default": _concat,
    "stack.default": _stack,
    "split.Tensor": _split,
    "split.sizes": _split,
    "split_with_sizes.default": _split,
    "chunk.default": lambda c, x, chunks, axis=0: _split(c, x, -(-x.shape[axis] // chunks), axis),
    "unbind.int": _unbind,
    "slice.Tensor": _slice,
    "narrow.default": lambda c, x, axis, start, length: _slice(c, x, axis, start, start + length),
    "select.int": _select,
    "pad.default": _pad,
    "constant_pad_nd.default": lambda c, x, pads, number=0: _pad(c, x, pads, "constant", number),
    **{f"reflection_pad{n}d.default": lambda c, x, pads: _pad(c, x, pads, "reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": lambda c, x, pads: _pad(c, x, pads, "replicate") for n in (1, 2, 3)},
    "slice_scatter.default": _slice_scatter,
    "select_scatter.default": _select_scatter,
    # The elements of the source, in the type and shape of what they are assigned to.
    "copy.default": lambda c, x, source, *_: _expand(c, c.cast(source, c.result.dtype)),
    "repeat.default": _repeat,
    "roll.default": _roll,
    "flip.default": _flip,
    "detach.default": lambda c, x: c.apply("StopGradient", x) if x.name in c.learned else x,
}  # fmt: skip


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
    computed: Value | None = None
    for k, (size, index) in enumerate(zip(sizes, indices, strict=True)):
        stride = math.prod(sizes[k + 1 :])
        if isinstance(index, Value) and index.constant is None:
            index = c.cast(index, DType.INT64)
            behind = c.apply("Less", index, c.number(0, DType.INT64))
            wrapped = c.apply("Add", index, c.number(size, DType.INT64))
            index = c.apply("Where", behind, wrapped, index)
            scaled = c.apply("Mul", index, c.number(stride, DType.INT64)) if stride > 1 else index
            computed = scaled if computed is None else c.apply("Add", computed, scaled)
        else:
            positions = np.asarray(index.constant if isinstance(index, Value) else index, np.int64)
            known = known + positions % size * stride
    if computed is not None and not known.any() and len(known.shape) <= computed.rank:
        shape = np.broadcast_shapes(known.shape, computed.shape)
        if shape == computed.shape:
            return computed
    constant = c.constant(f"{c.scope}.places", np.asarray(known, np.int64))
    return constant if computed is None else c.apply("Add", computed, constant)


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A tensor with the axes that have an index first, as rows; the places of rows; where these axes stood.

    What is chosen stands where the first of them stood, or first where others stand between them.
    """

    rows: Value
    places: Value
    order: tuple[int, ...]
    first: int

    @property
    def outward(self) -> list[int]:
        """The axes of [places, the other axes] in the order that PyTorch gives them."""
        before = [self.places.rank + k for k in range(self.first)]
        rank = self.places.rank + self.rows.rank - 1
        return [*before, *(axis for axis in range(rank) if axis not in before)]


def _indexed(c: Context, x: Value, indices: Sequence[tuple[int, Value | Array]]) -> _Indexed:
    axes = [axis for axis, _ in indices]
    order = (*axes, *(axis for axis in range(x.rank) if axis not in axes))
    rows = _flat(c, c.transpose(x, order), len(axes))
    places = _places(c, [x.shape[axis] for axis in axes], [index for _, index in indices])
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    return _Indexed(rows, places, order, first)


def _index(c: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    by_axis = _indices_by_axis(c, indices)
    if not by_axis:
        return x
    if len(by_axis) == 1 and isinstance(by_axis[0][1], Value):
        return c.apply("Gather", x, by_axis[0][1], axis=by_axis[0][0])
    indexed = _indexed(c, x, by_axis)
    chosen = c.apply("Gather", indexed.rows, indexed.places, axis=0)
    return c.transpose(chosen, indexed.outward)


def _indices_by_axis(c: Context, indices: Sequence[Value | None]) -> list[tuple[int, Value | Array]]:
    """Axes and their indices. Masks, which must be known, are the places that they mark in several axes."""
    by_axis: list[tuple[int, Value | Array]] = []
    axis = 0
    for index in indices:
        if index is not None and index.dtype is DType.BOOL:
            if index.constant is None:
                raise UnsupportedError(
                    "indexing by a mask that is computed from data, so the size of the result is not known"
                )
            by_axis += enumerate(np.nonzero(np.asarray(index.constant)), axis)
            axis += index.rank
            continue
        if index is not None:
            by_axis.append((axis, index))
        axis += 1
    return by_axis


def _assigned(
    c: Context, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """X with a number where a mask holds, or with values at indices."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype is DType.BOOL and mask.constant is None:
        if accumulate or math.prod(values.shape) != 1:
            raise UnsupportedError(
                "an assignment of a tensor by a mask, so how many elements it sets is not known"
            )
        whole = c.reshape(mask, (*mask.shape, *(1,) * (x.rank - mask.rank)))
        return c.apply("Where", whole, c.cast(c.reshape(values, ()), x.dtype), x)
    indexed = _indexed(c, x, _indices_by_axis(c, indices))
    chosen = (*indexed.places.shape, *indexed.rows.shape[1:])
    updates = _expanded(c, values, [chosen[axis] for axis in indexed.outward])
    updates = c.transpose(updates, [indexed.outward.index(axis) for axis in range(len(chosen))])
    rows = _scattered(c, indexed.rows, indexed.places, updates, accumulate=accumulate)
    whole = c.reshape(rows, [x.shape[axis] for axis in indexed.order])
    return c.transpose(whole, [indexed.order.index(axis) for axis in range(x.rank)])


def _expanded(c: Context, x: Value, shape: Sequence[int]) -> Value:
    return x if x.shape == tuple(shape) else c.apply("Expand", x, c.integers("shape", shape))


def _scattered(c: Context, rows: Value, places: Value, updates: Value, *, accumulate: bool) -> Value:
    """Rows of a matrix with others added to them, or in their place; these are added to zeros then.

    Of several at one place PyTorch takes any; here their places must differ.
    """
    if not rows.dtype.is_floating:
        wide = (c.cast(x, DType.FLOAT64) for x in (rows, updates))
        rows64, updates64 = wide
        return c.cast(_scattered(c, rows64, places, updates64, accumulate=accumulate), rows.dtype)
    updates = c.cast(updates, rows.dtype)
    if accumulate:
        return c.apply("ScatterAdd", rows, places, updates, axis=0)
    type_ = rows.type
    added = c.apply("ScatterAdd", c.filled("zeros", 0, type_), places, updates, axis=0)
    ones = c.filled("ones", 1, updates.type)
    count = c.apply("ScatterAdd", c.filled("zeros", 0, type_), places, ones, axis=0)
    return c.apply("Where", c.apply("Greater", count, c.number(0, rows.dtype)), added, rows)


def _scatter(accumulate: bool) -> Handler:
    """An element for each index: the other axes say where along them."""

    def handler(
        c: Context, x: Value, axis: int, index: Value, source: Value | float, **named: object
    ) -> Value:
        if named.get("reduce") is not None:
            raise UnsupportedError("a scatter that multiplies or adds by name")
        axis %= x.rank
        grid: list[Value | Array] = list(np.indices(index.shape, sparse=True))
        grid[axis] = index
        places = _places(c, x.shape, grid)
        if not isinstance(source, Value):
            source = c.filled("value", source, replace(x.type, shape=index.shape))
        for k, size in enumerate(index.shape):
            if source.shape[k] != size:
                source = c.slice(source, k, 0, size)
        flat = _flat(c, x, x.rank)
        return c.reshape(_scattered(c, flat, places, source, accumulate=accumulate), x.shape)

    return handler


def _rows_added(c: Context, x: Value, axis: int, index: Value, source: Value, *, alpha: float = 1) -> Value:
    if alpha != 1:
        source = c.apply("Mul", source, c.number(alpha, source.dtype))
    return c.apply("ScatterAdd", x, index, source, axis=axis % x.rank)


def _rows_copied(c: Context, x: Value, axis: int, index: Value, source: Value) -> Value:
    axis %= x.rank
    order = [axis, *(k for k in range(x.rank) if k != axis)]
    rows, updates = c.transpose(x, order), c.transpose(source, order)
    copied = _scattered(c, rows, index, updates, accumulate=False)
    return c.transpose(copied, [order.index(k) for k in range(x.rank)])


def _largest(
    c: Context, x: Value, count: int, axis: int = -1, largest: bool = True, *_: object
) -> tuple[Value, Value]:
    """Values and places; of equal ones the first comes first."""
    if not x.rank:
        return x, c.number(0, DType.INT64)
    places = c.apply("ArgTopK", x, k=count, axis=axis % x.rank, largest=int(largest))
    return element_at(c, x, axis, places), places


def _sorted(
    c: Context, x: Value, axis: int = -1, descending: bool = False, **_: object
) -> tuple[Value, Value]:
    return _largest(c, x, x.shape[axis] if x.rank else 1, axis, descending)


def _order(c: Context, x: Value, axis: int = -1, descending: bool = False, **named: Any) -> Value:
    return _sorted(c, x, named.get("dim", axis), named.get("descending", descending))[1]


def element_at(c: Context, x: Value, axis: int, index: Value, **_: object) -> Value:
    """An element for each index: the other axes say where along them."""
    if not x.rank:
        return x
    axis %= x.rank
    shape = index.shape or (1,)
    grid: list[Value | Array] = list(np.indices(shape, sparse=True))
    grid[axis] = index
    places = _places(c, x.shape, grid)
    return c.reshape(c.apply("Gather", _flat(c, x, x.rank), places, axis=0), index.shape)


def _kth_smallest(c: Context, x: Value, place: int, axis: int | None) -> tuple[Value, Value]:
    """The element at a place of the sorted axis, and its index before sorting."""
    shape = c.result.shape
    if axis is None:
        x, axis = c.reshape(x, (math.prod(x.shape),)), 0
    axis %= x.rank
    smallest = c.apply("ArgTopK", x, k=place + 1, axis=axis, largest=0)
    places = c.slice(smallest, axis, place, place + 1)
    return c.reshape(element_at(c, x, axis, places), shape), c.reshape(places, shape)


def _median(c: Context, x: Value, axis: int | None = None, *_: object) -> Any:
    """The lower one of two in the middle."""
    count = math.prod(x.shape) if axis is None else x.shape[axis]
    middle = _kth_smallest(c, x, (count - 1) // 2, axis)
    return middle[0] if axis is None else middle


def _diagonal(c: Context, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    """The diagonal of two axes, as the last axis."""
    first, second = first % x.rank, second % x.rank
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    rows, columns = x.shape[first], x.shape[second]
    places = np.arange(c.result.shape[-1]) * (columns + 1) + (offset if offset >= 0 else -offset * columns)
    moved = c.transpose(x, [*rest, first, second])
    flat = c.reshape(moved, (*moved.shape[:-2], rows * columns))
    return c.apply("Gather", flat, c.integers("diagonal", places.tolist()), axis=flat.rank - 1)


def _windows(c: Context, x: Value, axis: int, size: int, step: int) -> Value:
    """Windows of an axis that overlap; what they hold is the last axis."""
    axis %= x.rank
    starts = np.arange(0, x.shape[axis] - size + 1, step)
    places = (starts[:, None] + np.arange(size)).astype(np.int64)
    taken = c.apply("Gather", x, c.constant(f"{c.scope}.windows", places), axis=axis)
    return c.last(taken, axis + 1)


HANDLERS |= {
    "embedding.default": _embedding,
    "_embedding_bag.default": _bag,
    "_embedding_bag_forward_only.default": _bag,
    "gather.default": element_at,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "index_put.default": _assigned,
    "index_add.default": _rows_added,
    "index_copy.default": _rows_copied,
    **{f"scatter.{kind}": _scatter(False) for kind in ("src", "value")},
    "scatter_add.default": _scatter(True),
    "topk.default": _largest,
    "kthvalue.default": lambda c, x, k, axis=-1, *_: _kth_smallest(c, x, k - 1, axis),
    **{f"median.{kind}": _median for kind in ("default", "dim")},
    "diagonal.default": _diagonal,
    "sort.default": _sorted,
    "sort.stable": lambda c, x, *, stable=None, dim=-1, descending=False: _sorted(c, x, dim, descending),
    **{f"argsort.{kind}": _order for kind in ("default", "stable")},
    "index_select.default": lambda c, x, axis, index: c.apply("Gather", x, index, axis=axis % x.rank),
    "unfold.default": _windows,
}
