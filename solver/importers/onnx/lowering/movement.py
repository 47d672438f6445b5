"""Movement: shapes that are known, and operators that are an order of moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from solver.graph import MAX_OPERATIONS, Array, DType
from solver.importers.onnx.network import (
    Constant,
    Lowering,
    Sequence_,
    Site,
    Tensor,
    Unsupported,
    Value,
    sequence,
)
from solver.importers.onnx.read import ELEMENTS

__all__ = ["LOWERINGS", "pad_widths", "slice_bounds", "split_sizes", "target_shape"]


def target_shape(site: Site) -> list[int]:
    """The shape that a Reshape asks for, with its zeros and its -1 resolved."""
    shape = list(site.ints(1, "the shape") if site.has(1) else site.attributes["shape"])
    if not site.get("allowzero", 0):
        rank = len(site.shape())
        shape = [site.shape()[i] if size == 0 and i < rank else size for i, size in enumerate(shape)]
    if shape.count(-1) == 1 and 0 not in shape:
        known = math.prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = math.prod(site.shape()) // known
    return shape


def _flatten(site: Site) -> Value:
    x, axis = site.tensor(0), site.get("axis", 1)
    split = axis + x.rank if axis < 0 else axis
    return site.reshape(x, [math.prod(x.shape[:split]), math.prod(x.shape[split:])])


def _squeeze(site: Site) -> Value:
    x, axes = site.tensor(0), site.axes()
    if axes is None:
        axes = tuple(i for i, size in enumerate(x.shape) if size == 1)
    dropped = {axis % x.rank for axis in axes}
    if any(x.shape[axis] != 1 for axis in dropped):
        raise Unsupported(f"axes {sorted(dropped)} of {list(x.shape)} are not all of size 1")
    return site.reshape(x, [size for i, size in enumerate(x.shape) if i not in dropped])


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


def slice_bounds(site: Site) -> tuple[tuple[int, ...], ...]:
    """Starts, ends, axes and steps of a Slice, from attributes or, in later opsets, from inputs."""
    if "starts" in site.attributes:
        starts, ends = tuple(site.attributes["starts"]), tuple(site.attributes["ends"])
        return starts, ends, tuple(site.get("axes", range(len(starts)))), (1,) * len(starts)
    starts, ends = site.ints(1, "where it starts"), site.ints(2, "where it ends")
    axes = site.ints(3, "the axes") if site.has(3) else tuple(range(len(starts)))
    return starts, ends, axes, site.ints(4, "the steps") if site.has(4) else (1,) * len(starts)


def _slice(site: Site) -> Value:
    x, bounds = site.tensor(0), slice_bounds(site)
    whole = True
    for start, end, axis, step in zip(*bounds, strict=True):
        size = x.shape[axis]
        whole = whole and step == 1 and len(range(*slice(start, end, step).indices(size))) == size
    return x if whole else site.emit("Slice", x, *map(site.integers, bounds))


def split_sizes(site: Site) -> Sequence[int]:
    """The sizes of a Split's parts: as stated, else equal, of which the last may be smaller."""
    sizes = site.get("split") or (site.ints(1, "the sizes") if site.has(1) else ())
    if sizes:
        return tuple(sizes)
    count, size = max(1, len(site.is_read)), site.shape()[site.get("axis", 0)]
    each = -(-size // count)
    return [*[each] * (count - 1), size - each * (count - 1)]


def _split(site: Site) -> Sequence[Value]:
    x, count = site.tensor(0), len(site.is_read)
    if count == 1:
        return [x]
    sizes = site.integers(split_sizes(site))
    return site.emit_all("Split", x, sizes, outputs=count, axis=site.get("axis", 0))


def _expand(site: Site) -> Value:
    x = site.tensor(0)
    shape = np.broadcast_shapes(x.shape, site.ints(1, "the shape"))
    if shape == x.shape:
        return x
    if math.prod(shape) == x.type.elements:
        return site.reshape(x, shape)
    return site.emit("Expand", x, site.integers(shape))


def _tile(site: Site) -> Value:
    """[a, b] repeated (r, s) times is [r, a, s, b] of one copy each, seen as [ra, sb]."""
    x, repeats = site.tensor(0), site.ints(1, "the repeats")
    if math.prod(repeats) == 1:
        return x
    opened = [size for pair in x.shape for size in (1, pair)]
    shape = [size for times, pair in zip(repeats, x.shape, strict=True) for size in (times, pair)]
    copied = site.emit("Expand", site.reshape(x, opened), site.integers(shape))
    return site.reshape(copied, [times * size for times, size in zip(repeats, x.shape, strict=True)])


def pad_widths(site: Site) -> tuple[list[int], list[int]]:
    """The numbers of elements that a Pad adds before and after each axis; negative ones cut off."""
    rank = len(site.shape())
    pads = site.attributes["pads"] if "pads" in site.attributes else site.ints(1, "the pads")
    axes = [axis % rank for axis in site.ints(3, "the axes")] if site.has(3) else list(range(rank))
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    return before, after


def _pad(site: Site) -> Value:
    x, (before, after) = site.tensor(0), pad_widths(site)
    value = site.get("value", site.scalar(2)) or 0.0
    if min((*before, *after), default=0) < 0:
        axes = [axis for axis in range(x.rank) if before[axis] < 0 or after[axis] < 0]
        starts = [max(0, -before[axis]) for axis in axes]
        ends = [x.shape[axis] - max(0, -after[axis]) for axis in axes]
        x = site.emit("Slice", x, *(site.integers(v) for v in (starts, ends, axes)))
        before, after = [max(0, n) for n in before], [max(0, n) for n in after]
    if not any((*before, *after)):
        return x
    mode = site.get("mode", "constant")
    filled = None if mode != "constant" or not value else site.number(value, x)
    return site.emit("Pad", x, site.integers([*before, *after]), filled, mode=mode)


def _resize(site: Site) -> Value:
    """Resize: X, roi, scales, sizes since opset 11; before, X and scales with asymmetric coordinates."""
    x, attributes = site.tensor(0), dict(site.attributes)
    if site.opset < 11 or site.op == "Upsample":
        scales = site.constant(1, "the scales") if site.has(1) else np.asarray(attributes.pop("scales"))
        mode = attributes.get("mode", "nearest")
        return site.emit(
            "Resize", x, None, Constant(np.asarray(scales, np.float32)),
            mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip
    attributes.pop("extrapolation_value", None)
    for key, unused in (("cubic_coeff_a", "cubic"), ("nearest_mode", "nearest")):
        if attributes.get("mode", "nearest") != unused:
            attributes.pop(key, None)
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Unsupported("it crops (tf_crop_and_resize)")
    factors = site.known(2)
    if factors is not None and factors.size:
        return site.emit("Resize", x, None, Constant(np.asarray(factors, np.float32)), **attributes)
    sizes = Constant(np.asarray(site.constant(3, "the sizes"), np.int64))
    return site.emit("Resize", x, None, None, sizes, **attributes)


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


def _element_at(site: Site, x: Tensor, index: Tensor | Constant) -> Tensor:
    places = _element_places(site, x.shape, index)
    return site.emit("Gather", site.reshape(x, [x.type.elements]), places)


def _element_places(site: Site, shape: Sequence[int], index: Tensor | Constant) -> Value:
    """Known indices are places in memory; others become places by arithmetic of integers.

    These are indices times a stride, plus what the other axes add; negative ones count from the end.
    """
    axis = site.get("axis", 0) % len(shape)
    grid: list[Array] = list(np.indices(index.shape, sparse=True))
    if isinstance(index, Constant):
        grid[axis] = index.array.astype(np.int64) % shape[axis]
        return Constant(np.ascontiguousarray(_places(shape, grid), np.int64))
    position = _non_negative(site, index, shape[axis])
    stride = math.prod(shape[axis + 1 :])
    grid[axis] = np.zeros((), np.int64)
    scaled = site.emit("Mul", position, site.number(stride, position)) if stride > 1 else position
    return site.emit("Add", scaled, Constant(np.asarray(_places(shape, grid), np.int64)))


def _non_negative(site: Site, index: Value, size: int) -> Tensor:
    position = site.cast(index, DType.INT64)
    behind = site.emit("Less", position, site.number(0, position))
    return site.emit("Where", behind, site.emit("Add", position, site.number(size, position)), position)


def _gather_nd(site: Site) -> Value:
    x, index, batched = site.tensor(0), site.value(1), site.get("batch_dims", 0)
    depth = index.shape[-1]
    if not batched:
        return site.emit("Gather", _rows(site, x, depth), _row_places(site, x.shape, index))
    places = site.as_tensor(_row_places(site, x.shape[batched:], index))
    stride = math.prod(x.shape[batched : batched + depth])
    starts = np.arange(math.prod(x.shape[:batched]), dtype=np.int64) * stride
    starts = starts.reshape(*x.shape[:batched], *[1] * (len(places.shape) - batched))
    rows = _rows(site, x, batched + depth)
    return site.emit("Gather", rows, site.emit("Add", site.cast(places, DType.INT64), Constant(starts)))


def _rows(site: Site, x: Tensor, depth: int) -> Tensor:
    """The first axes as one."""
    return site.reshape(x, [math.prod(x.shape[:depth]), *x.shape[depth:]])


def _row_places(site: Site, shape: Sequence[int], index: Tensor | Constant) -> Value:
    """The last axis of the indices is a place in the first axes of what has this shape."""
    depth = index.shape[-1]
    if isinstance(index, Constant):
        rows = index.array.astype(np.int64)
        return Constant(_places(shape[:depth], [rows[..., k] % shape[k] for k in range(depth)]))
    total: Tensor | None = None
    for k in range(depth):
        part = site.emit("Gather", index, Constant(np.asarray(k, np.int64)), axis=index.rank - 1)
        place = _non_negative(site, part, shape[k])
        stride = math.prod(shape[k + 1 : depth])
        scaled = site.emit("Mul", place, site.number(stride, place)) if stride > 1 else place
        total = scaled if total is None else site.emit("Add", total, scaled)
    assert total is not None, "the last axis has an element"
    return total


def _scatter_elements(site: Site) -> Value:
    x = site.tensor(0)
    places = _element_places(site, x.shape, site.value(1))
    flat = _scattered(site, site.reshape(x, [x.type.elements]), places, site.tensor(2))
    return site.reshape(flat, x.shape)


def _scatter_nd(site: Site) -> Value:
    x, index = site.tensor(0), site.value(1)
    places = _row_places(site, x.shape, index)
    return site.reshape(_scattered(site, _rows(site, x, index.shape[-1]), places, site.tensor(2)), x.shape)


def _scattered(site: Site, rows: Tensor, places: Value, updates: Tensor) -> Tensor:
    """Rows with others added to them, or in their place: these are added to zeros, at places that differ.

    Where elements have no derivative, or places may be equal, rows are overwritten instead.
    """
    reduction = site.get("reduction", "none")
    is_floating = rows.type.dtype.is_floating
    if reduction == "add" and is_floating:
        return site.emit("ScatterAdd", rows, places, updates)
    is_repeated = isinstance(places, Constant) and np.unique(places.array).size != places.array.size
    if reduction != "none" or not is_floating or is_repeated:
        return site.emit("ScatterUpdate", rows, places, updates, reduction=reduction)
    zeros = Constant(np.zeros(rows.shape, rows.type.dtype.numpy))
    added = site.emit("ScatterAdd", zeros, places, updates)
    if not isinstance(places, Constant):
        ones = Constant(np.ones(updates.shape, rows.type.dtype.numpy))
        count = site.emit("ScatterAdd", zeros, places, ones)
        return site.emit("Where", site.emit("Greater", count, site.number(0, rows)), added, rows)
    written = np.zeros(rows.shape, np.bool_)
    written[places.array] = True
    return added if written.all() else site.emit("Where", Constant(written), added, rows)


def _compress(site: Site) -> Value:
    """The positions that a known condition keeps."""
    kept = np.flatnonzero(site.constant(1, "the condition"))
    if not kept.size:
        raise Unsupported("its condition keeps nothing")
    x, axis = site.tensor(0), site.get("axis")
    if axis is None:
        x, axis = site.reshape(x, [x.type.elements]), 0
    return site.emit("Gather", x, Constant(kept.astype(np.int64)), axis=axis)


def _reverse_sequence(site: Site) -> Value:
    """The first elements of each example in the opposite order, as many as its length says."""
    x, lengths = site.tensor(0), site.value(1)
    batch, time = site.get("batch_axis", 1), site.get("time_axis", 0)
    shape, along = [1] * x.rank, [1] * x.rank
    shape[batch], along[time] = x.shape[batch], x.shape[time]
    steps = Constant(np.arange(x.shape[time], dtype=np.int64).reshape(along))
    ends = site.reshape(site.cast(lengths, DType.INT64), shape)
    turned = site.emit("Sub", site.emit("Sub", ends, site.number(1, ends)), steps)
    index = site.emit("Where", site.emit("Less", steps, ends), turned, steps)
    whole = site.emit("Expand", index, site.integers(x.shape))
    return _element_at(replace(site, attributes={"axis": time}), x, whole)


def _top_k(site: Site) -> Sequence[Value]:
    """Values and places; of equal ones the first comes first."""
    count = int(site.scalar(1) or 0) if site.has(1) else int(site.attributes["k"])
    x = site.tensor(0)
    axis = site.get("axis", -1)
    places = site.emit("ArgTopK", x, k=count, axis=axis, largest=site.get("largest", 1))
    if not site.is_read[0]:
        return [places, places]
    return [_element_at(replace(site, attributes={"axis": axis}), x, places), places]


def _grid_sample(site: Site) -> Value:
    """Samples images between their pixels: by weights of the four neighbours, or the nearest one."""
    x, grid, mode = (
        site.tensor(0),
        site.tensor(1),
        site.get("mode", "linear" if site.opset >= 20 else "bilinear"),
    )
    padding = site.get("padding_mode", "zeros")
    if x.rank != 4 or mode not in ("linear", "bilinear", "nearest") or padding not in ("zeros", "border"):
        raise Unsupported(f"it samples {x.rank - 2} axes by {mode} with padding {padding}")
    n, channels, height, width = x.shape
    rows, columns = grid.shape[1:3]
    aligned = site.get("align_corners", 0)

    def along(k: int, size: int) -> Tensor:
        """Coordinates from -1 to 1 as places in pixels."""
        part = site.reshape(site.cut(grid, 3, k, k + 1), [n, rows, columns])
        scale, shift = ((size - 1) / 2, (size - 1) / 2) if aligned else (size / 2, (size - 1) / 2)
        pixel = site.emit("Add", site.emit("Mul", part, site.number(scale, part)), site.number(shift, part))
        if padding == "border":
            pixel = site.emit("Clip", pixel, min=0.0, max=float(size - 1))
        return pixel

    across, down = along(0, width), along(1, height)
    pixels = site.reshape(site.emit("Transpose", x, perm=(0, 2, 3, 1)), [n * height * width, channels])
    starts = Constant((np.arange(n, dtype=np.int64) * height * width).reshape(n, 1, 1))

    def at(column: Tensor, row: Tensor, weight: Tensor | None) -> Tensor:
        """The pixels at whole places, 0 beyond the image, times their weight."""
        inside: Tensor | None = None
        whole = []
        for place, size in ((column, width), (row, height)):
            bounded = site.emit("Clip", place, min=0.0, max=float(size - 1))
            kept = site.emit("Equal", bounded, place)
            inside = kept if inside is None else site.emit("And", inside, kept)
            whole.append(site.cast(bounded, DType.INT64))
        index = site.emit("Add", site.emit("Mul", whole[1], site.number(width, whole[1])), whole[0])
        taken = site.emit("Gather", pixels, site.emit("Add", index, starts))
        assert inside is not None, "there are two axes"
        factor = site.cast(inside, x.type.dtype)
        factor = factor if weight is None else site.emit("Mul", factor, weight)
        return site.emit("Mul", taken, site.reshape(factor, [n, rows, columns, 1]))

    if mode == "nearest":
        sampled = at(site.emit("Round", across), site.emit("Round", down), None)
    else:
        left, top = site.emit("Floor", across), site.emit("Floor", down)
        one = site.number(1, x)
        right_part, lower_part = site.emit("Sub", across, left), site.emit("Sub", down, top)
        left_part, upper_part = site.emit("Sub", one, right_part), site.emit("Sub", one, lower_part)
        right, bottom = site.emit("Add", left, one), site.emit("Add", top, one)
        corners = [
            at(column, row, site.emit("Mul", wide, tall))
            for column, wide in ((left, left_part), (right, right_part))
            for row, tall in ((top, upper_part), (bottom, lower_part))
        ]
        sampled = reduce(lambda one, other: site.emit("Add", one, other), corners)
    return site.emit("Transpose", sampled, perm=(0, 3, 1, 2))


def _places(shape: Sequence[int], index: Sequence[Array]) -> Array:
    places: Array = np.zeros((), np.int64)
    for size, positions in zip(shape, index, strict=True):
        places = places * size + positions
    return places


def _eye_like(site: Site) -> Value:
    dtype = ELEMENTS[site.get("dtype")] if "dtype" in site.attributes else site.dtype()
    rows, columns = site.shape()
    return Constant(np.asarray(np.eye(rows, columns, site.get("k", 0), dtype.numpy)))


# --------------------------------------------------------------------------------------------- sequences


def _split_to_sequence(site: Site) -> Value:
    x, axis = site.tensor(0), site.get("axis", 0)
    size = x.shape[axis]
    split = site.known(1)
    if size > MAX_OPERATIONS and (split is None or split.ndim == 0):
        raise Unsupported(f"it makes a sequence of {size:,}")
    if split is None:
        sizes = [1] * size
    elif split.ndim == 0:
        step = max(1, int(split))
        sizes = [min(step, size - start) for start in range(0, size, step)]
    else:
        sizes = [int(size) for size in split.reshape(-1)]
    parts: Sequence[Value] = [x]
    if len(sizes) > 1:
        parts = site.emit_all("Split", x, site.integers(sizes), outputs=len(sizes), axis=axis)
    if split is None and not site.get("keepdims", 1):
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
    """Concat without empty pieces, which exporters write before the first step."""
    pieces = [site.value(i) for i in range(len(site.inputs)) if 0 not in site.shape(i)]
    if len(pieces) == 1:
        return pieces[0]
    return site.emit("Concat", *pieces, axis=site.attributes["axis"])


LOWERINGS: Mapping[str, Lowering] = {
    "Identity": lambda site: site.value(0),
    "Reshape": lambda site: site.reshape(site.value(0), target_shape(site)),
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
    "GatherElements": lambda site: _element_at(site, site.tensor(0), site.value(1)),
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _top_k,
    "Compress": _compress,
    "GridSample": _grid_sample,
    "ReverseSequence": _reverse_sequence,
    "Concat": _concat,
    "SequenceConstruct": lambda site: Sequence_(tuple(site.value(i) for i in range(len(site.inputs)))),
    "SplitToSequence": _split_to_sequence,
    "SequenceAt": _sequence_at,
    "ConcatFromSequence": _concat_from_sequence,
}
