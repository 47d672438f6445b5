"""Movement: shapes that are known, and operators that are an order of moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from solver.graph import MAX_OPERATIONS, Array, DType
from solver.importers.onnx.lowering.base import Lowering, Site, Unsupported, ints, sequence
from solver.importers.onnx.network import Constant, Sequence_, Tensor, Value
from solver.importers.onnx.read import ELEMENTS

__all__ = ["LOWERINGS"]


def _identity(site: Site) -> Value:
    return site.value(0)


def _reshape(site: Site) -> Value:
    x = site.tensor(0)
    wanted = ints(site.constant(1, "the shape")) if site.has(1) else tuple(site.attributes["shape"])
    shape = list(wanted)
    if not site.get("allowzero", 0):
        shape = [x.shape[i] if size == 0 and i < x.rank else size for i, size in enumerate(wanted)]
    if shape.count(-1) == 1 and 0 not in shape:
        known = math.prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = x.type.elements // known
    return site.reshape(x, shape)


def _flatten(site: Site) -> Value:
    x, axis = site.tensor(0), site.get("axis", 1)
    split = axis + x.rank if axis < 0 else axis
    return site.reshape(x, [math.prod(x.shape[:split]), math.prod(x.shape[split:])])


def _squeeze(site: Site) -> Value:
    x, axes = site.tensor(0), site.axes()
    dropped = {axis % x.rank for axis in axes} if axes is not None else set(_ones(x))
    if any(x.shape[axis] != 1 for axis in dropped):
        raise Unsupported(f"axes {sorted(dropped)} of {list(x.shape)} are not all of size 1")
    return site.reshape(x, [size for i, size in enumerate(x.shape) if i not in dropped])


def _ones(x: Tensor) -> list[int]:
    return [i for i, size in enumerate(x.shape) if size == 1]


def _unsqueeze(site: Site) -> Value:
    x, axes = site.tensor(0), site.axes() or ()
    shape = list(x.shape)
    for axis in sorted(axis % (x.rank + len(axes)) for axis in axes):
        shape.insert(axis, 1)
    return site.reshape(x, shape)


def _transpose(site: Site) -> Value:
    x = site.tensor(0)
    perm = tuple(site.get("perm") or range(x.rank)[::-1])
    if perm == tuple(range(x.rank)):
        return x
    moved = [axis for axis in perm if x.shape[axis] > 1]
    if moved == sorted(moved):  # only axes of size 1 change places
        return site.reshape(x, [x.shape[axis] for axis in perm])
    return site.emit("Transpose", x, perm=perm)


def _slice(site: Site) -> Value:
    x = site.tensor(0)
    if "starts" in site.attributes:
        starts, ends = tuple(site.attributes["starts"]), tuple(site.attributes["ends"])
        axes, steps = tuple(site.get("axes", range(len(starts)))), (1,) * len(starts)
    else:
        starts, ends = ints(site.constant(1, "where it starts")), ints(site.constant(2, "where it ends"))
        axes = ints(site.constant(3, "the axes")) if site.has(3) else tuple(range(len(starts)))
        steps = ints(site.constant(4, "the steps")) if site.has(4) else (1,) * len(starts)
    whole = True
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        whole = whole and step == 1 and len(range(*slice(start, end, step).indices(size))) == size
    if whole:
        return x
    given = (site.integers(v) for v in (starts, ends, axes, steps))
    return site.emit("Slice", x, *given)


def _split(site: Site) -> Sequence[Value]:
    sizes = site.get("split") or (ints(site.constant(1, "the sizes")) if site.has(1) else None)
    x, count = site.tensor(0), len(site.wanted)
    axis = site.get("axis", 0)
    if sizes is None:
        each = -(-x.shape[axis] // count)
        sizes = [*[each] * (count - 1), x.shape[axis] - each * (count - 1)]
    if count == 1:
        return [x]
    return site.emit_all("Split", x, site.integers(sizes), outputs=count, axis=axis)


def _expand(site: Site) -> Value:
    x = site.tensor(0)
    shape = np.broadcast_shapes(x.shape, ints(site.constant(1, "the shape")))
    if shape == x.shape:
        return x
    if math.prod(shape) == x.type.elements:
        return site.reshape(x, shape)
    return site.emit("Expand", x, site.integers(shape))


def _tile(site: Site) -> Value:
    """[a, b] repeated (r, s) times is [r, a, s, b] of one copy each, seen as [ra, sb]."""
    x, repeats = site.tensor(0), ints(site.constant(1, "the repeats"))
    if math.prod(repeats) == 1:
        return x
    opened = [size for pair in x.shape for size in (1, pair)]
    shape = [size for times, pair in zip(repeats, x.shape, strict=True) for size in (times, pair)]
    copied = site.emit("Expand", site.reshape(x, opened), site.integers(shape))
    return site.reshape(copied, [times * size for times, size in zip(repeats, x.shape, strict=True)])


def _pad(site: Site) -> Value:
    """Negative pads cut off."""
    x = site.tensor(0)
    pads = tuple(site.attributes["pads"]) if "pads" in site.attributes else ints(site.constant(1, "the pads"))
    axes = [a % x.rank for a in ints(site.constant(3, "the axes"))] if site.has(3) else list(range(x.rank))
    value = site.get("value", site.scalar(2)) or 0.0
    before, after = list(pads[: len(axes)]), list(pads[len(axes) :])
    if min(pads, default=0) < 0:
        starts = [max(0, -pad) for pad in before]
        ends = [x.shape[axis] - max(0, -pad) for axis, pad in zip(axes, after, strict=True)]
        x = site.emit("Slice", x, *(site.integers(v) for v in (starts, ends, axes)))
        before, after = [max(0, p) for p in before], [max(0, p) for p in after]
    if not any((*before, *after)):
        return x
    whole = [0] * (2 * x.rank)
    for axis, one, other in zip(axes, before, after, strict=True):
        whole[axis], whole[axis + x.rank] = one, other
    mode = site.get("mode", "constant")
    filled = None if mode != "constant" or not value else site.number(value, x)
    return site.emit("Pad", x, site.integers(whole), filled, mode=mode)


def _resize(site: Site) -> Value:
    """Inputs X, roi, scales, sizes since opset 11; X and scales before, then always asymmetric."""
    x, given = site.tensor(0), dict(site.attributes)
    if site.opset < 11 or site.op == "Upsample":
        scales = site.constant(1, "the scales") if site.has(1) else np.asarray(given.pop("scales"))
        mode = given.get("mode", "nearest")
        return site.emit(
            "Resize", x, None, Constant(np.asarray(scales, np.float32)),
            mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip
    given.pop("extrapolation_value", None)
    for key, unused in (("cubic_coeff_a", "cubic"), ("nearest_mode", "nearest")):
        if given.get("mode", "nearest") != unused:
            given.pop(key, None)
    if given.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Unsupported("it crops (tf_crop_and_resize)")
    factors = site.known(2)
    if factors is not None and factors.size:
        return site.emit("Resize", x, None, Constant(np.asarray(factors, np.float32)), **given)
    sizes = Constant(np.asarray(site.constant(3, "the sizes"), np.int64))
    return site.emit("Resize", x, None, None, sizes, **given)


def _depth_to_space(site: Site) -> Value:
    x, b = site.tensor(0), site.attributes["blocksize"]
    n, c, h, w = x.shape
    if site.get("mode", "DCR") == "DCR":
        shape, perm = [n, b, b, c // (b * b), h, w], (0, 3, 4, 1, 5, 2)
    else:
        shape, perm = [n, c // (b * b), b, b, h, w], (0, 1, 4, 2, 5, 3)
    moved = site.emit("Transpose", site.reshape(x, shape), perm=perm)
    return site.reshape(moved, [n, c // (b * b), h * b, w * b])


def _space_to_depth(site: Site) -> Value:
    x, b = site.tensor(0), site.attributes["blocksize"]
    n, c, h, w = x.shape
    parts = site.reshape(x, [n, c, h // b, b, w // b, b])
    perm = (0, 3, 5, 1, 2, 4) if site.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = site.emit("Transpose", parts, perm=perm)
    return site.reshape(moved, [n, c * b * b, h // b, w // b])


def _trilu(site: Site) -> Value:
    x, k = site.tensor(0), int(site.scalar(1, 0.0) or 0)
    mask = np.ones(x.shape[-2:], np.bool_)
    kept = np.triu(mask, k) if site.get("upper", 1) else np.tril(mask, k)
    return site.emit("Where", Constant(kept), x, site.number(0, x))


def _one_hot(site: Site) -> Value:
    """Depth and values are known; indices are compared with each class, counted from both ends."""
    index = site.tensor(0)
    size, values = int(site.scalar(1) or 0), site.constant(2, "the values")
    axis = site.get("axis", -1) % (index.rank + 1)
    shape = (*index.shape[:axis], 1, *index.shape[axis:])
    classes = np.arange(size).reshape(-1, *[1] * (index.rank - axis))
    opened = site.reshape(index, shape)
    ends = (Constant((classes - start).astype(index.type.dtype.numpy)) for start in (0, size))
    hot = site.emit("Or", *(site.emit("Equal", opened, end) for end in ends))
    return site.emit("Where", hot, Constant(values[1]), Constant(values[0]))


def _picked(site: Site, places: Array) -> Value:
    """Elements of a tensor by their places in its memory."""
    x = site.tensor(0)
    flat = site.reshape(x, [x.type.elements])
    return site.emit("Gather", flat, Constant(np.ascontiguousarray(places, np.int64)))


def _gather_elements(site: Site) -> Value:
    """Known indices are places in memory; others become places by arithmetic of integers."""
    shape, known = site.shape(), site.known(1)
    axis = site.get("axis", 0) % len(shape)
    if known is None:
        return _gathered_at(site, shape, axis)
    index = known.astype(np.int64)
    grid: list[Array] = list(np.indices(index.shape, sparse=True))
    grid[axis] = index % shape[axis]
    return _picked(site, _places(shape, grid))


def _gathered_at(site: Site, shape: Sequence[int], axis: int) -> Value:
    """Places are indices times a stride, plus what the other axes add; negative ones count from the end."""
    index = site.cast(site.value(1), DType.INT64)
    behind = site.emit("Less", index, site.number(0, index))
    wrapped = site.emit("Add", index, site.number(shape[axis], index))
    index = site.emit("Where", behind, wrapped, index)
    stride = math.prod(shape[axis + 1 :])
    grid: list[Array] = list(np.indices(index.shape, sparse=True))
    grid[axis] = np.zeros((), np.int64)
    scaled = site.emit("Mul", index, site.number(stride, index)) if stride > 1 else index
    places = site.emit("Add", scaled, Constant(np.asarray(_places(shape, grid), np.int64)))
    flat = site.reshape(site.tensor(0), [math.prod(shape)])
    return site.emit("Gather", flat, places)


def _gather_nd(site: Site) -> Value:
    """The last axis of the indices is a place in the first axes of the data."""
    x, index = site.tensor(0), site.constant(1, "the indices").astype(np.int64)
    if site.get("batch_dims", 0):
        raise Unsupported("it has batch dimensions")
    depth = index.shape[-1]
    places = _places(x.shape[:depth], [index[..., k] % x.shape[k] for k in range(depth)])
    rows = site.reshape(x, [math.prod(x.shape[:depth]), *x.shape[depth:]])
    return site.emit("Gather", rows, Constant(places))


def _places(shape: Sequence[int], index: Sequence[Array]) -> Array:
    found: Array = np.zeros((), np.int64)
    for size, positions in zip(shape, index, strict=True):
        found = found * size + positions
    return found


def _eye_like(site: Site) -> Value:
    dtype = ELEMENTS[site.get("dtype")] if "dtype" in site.attributes else site.dtype()
    rows, columns = site.shape()
    return Constant(np.asarray(np.eye(rows, columns, site.get("k", 0), dtype.numpy)))


# --------------------------------------------------------------------------------------------- sequences


def _sequence_construct(site: Site) -> Value:
    return Sequence_(tuple(site.value(i) for i in range(len(site.inputs))))


def _split_to_sequence(site: Site) -> Value:
    x, axis = site.tensor(0), site.get("axis", 0)
    size = x.shape[axis]
    given = site.known(1)
    if size > MAX_OPERATIONS and (given is None or given.ndim == 0):
        raise Unsupported(f"it makes a sequence of {size:,}")
    if given is None:
        sizes = [1] * size
    elif given.ndim == 0:
        step = max(1, int(given))
        sizes = [min(step, size - start) for start in range(0, size, step)]
    else:
        sizes = list(ints(given))
    parts: Sequence[Value] = [x]
    if len(sizes) > 1:
        parts = site.emit_all("Split", x, site.integers(sizes), outputs=len(sizes), axis=axis)
    if given is None and not site.get("keepdims", 1):
        rest = [s for i, s in enumerate(x.shape) if i != axis % x.rank]
        parts = [site.reshape(part, rest) for part in parts]
    return Sequence_(tuple(parts))


def _sequence_at(site: Site) -> Value:
    items = sequence(site.inputs[0]).items
    position = int(site.constant(1, "the position").reshape(-1)[0])
    if not -len(items) <= position < len(items):
        raise Unsupported(f"position {position} of a sequence of {len(items)}")
    return items[position]


def _concat_from_sequence(site: Site) -> Value:
    items, axis = sequence(site.inputs[0]).items, site.attributes["axis"]
    if not site.get("new_axis", 0):
        return site.emit("Concat", *items, axis=axis)
    opened = []
    for item in items:
        tensor = site.as_tensor(item)
        place = axis % (tensor.rank + 1)
        opened.append(site.reshape(tensor, [*tensor.shape[:place], 1, *tensor.shape[place:]]))
    return site.emit("Concat", *opened, axis=axis)


def _concat(site: Site) -> Value:
    """Pieces without elements, as exporters write before the first step, are left out."""
    pieces = [site.value(i) for i in range(len(site.inputs)) if 0 not in site.shape(i)]
    if len(pieces) == 1:
        return pieces[0]
    return site.emit("Concat", *pieces, axis=site.attributes["axis"])


LOWERINGS: Mapping[str, Lowering] = {
    "Identity": _identity,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Slice": _slice,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Trilu": _trilu,
    "OneHot": _one_hot,
    "EyeLike": _eye_like,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Concat": _concat,
    "SequenceConstruct": _sequence_construct,
    "SplitToSequence": _split_to_sequence,
    "SequenceAt": _sequence_at,
    "ConcatFromSequence": _concat_from_sequence,
}
