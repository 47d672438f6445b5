"""Elements in other shapes, orders and places. PyTorch's views become Reshape, Transpose, Slice."""

from __future__ import annotations

import math
from collections.abc import Sequence

from solver.importers.pytorch.context import Context, Handler, UnsupportedError, Value

__all__ = ["HANDLERS"]

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
