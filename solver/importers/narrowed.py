"""Weights that a model stores in few bits: recognised by their values and stored so, or held in more bytes.

Operators compute in float32 and float64 here. An importer that converts a stored weight, or computes it from
packed integers and scales, says so with the bytes of both (`widening_notes`): a plan must not be four times
as large as the file without a word. Most of these weights can keep their few bits (`with_stored_origins`).

Models unpack their weights in many ways: two integers from a byte, zero points subtracted, axes moved, scales
for each tensor, row or group, by operators of their own. No such operator is interpreted here. An importer
has computed the floats w of a weight already. Each tensor of floats from which they were computed is tried as
the scales s, one for each row or for each group of a row of w:

    q = w / s, rounded          integers of 4 or 8 bits, with zero points or without
    unpack(pack(q, s)) == w     bit for bit; else these are not the scales

Without scales the integers themselves are tried, s = 1, and then w in 16 bits, for weights that the model
stores in half precision. Any other weight, such as q s + m with a float m, stays float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.errors import StorageError
from solver.graph import Array, DType, Initializer, Role, TensorType, TrainableGraph
from solver.graph.nodes import stored_axes
from solver.graph.packing import matrix_rows, pack, pack_integers, unpack_rows
from solver.graph.storage import Storage
from solver.importers.text import some

__all__ = ["Origin", "stored_rows", "widening_notes", "with_stored_origins"]

#: Stored types of masks, indices and sizes: what is computed from them alone is no weight.
_NO_WEIGHTS = frozenset({"bool", "int64"})
#: Stored types that the plan holds as they are.
_PLANNED = frozenset({"float32", "float64"})
#: Tensors that a note names.
_NAMED_TENSORS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The source of a constant: a tensor of `nbytes` bytes that the model stores, or a result of `parents`.

    `name` and `element`, the element type in the model's own word, are empty for results. `values` returns
    the elements of a stored tensor of floats, where the importer has them, as float32.
    """

    name: str = ""
    element: str = ""
    nbytes: int = 0
    parents: tuple[Origin, ...] = ()
    values: Callable[[], Array] | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether it is stored as a weight, and not as the plan holds it."""
        return self.element not in {"", *_PLANNED, *_NO_WEIGHTS}

    def stored(self) -> tuple[Origin, ...]:
        """The stored tensors that the constant is computed from. Linear in the results on the way."""
        seen: dict[Origin, None] = {}
        pending = [self]
        while pending:
            origin = pending.pop()
            if origin not in seen:
                seen[origin] = None
                pending.extend(reversed(origin.parents))
        return tuple(origin for origin in seen if origin.element)


def widening_notes(weights: Iterable[tuple[TensorType, Origin]]) -> tuple[str, ...]:
    """One sentence about the operands that need more bytes than the model stores for them; else none.

    `weights` are the types of operands in the graph, with their origins. Only floating operands without a
    storage count, and only those with a stored tensor of another type than float32 and float64 behind them;
    masks and tables that are computed from conditions or indices do not. The sentence names the stored
    tensors.
    """
    count, planned, sources = 0, 0, dict[Origin, None]()
    for type_, origin in weights:
        floats = type_.dtype.is_floating and type_.storage is None
        stored = origin.stored() if floats else ()
        is_narrow = any(each.is_narrow for each in stored)
        if is_narrow and type_.nbytes > sum(each.nbytes for each in stored):
            count += 1
            planned += type_.nbytes
            sources |= dict.fromkeys(stored)
    if not count:
        return ()
    kinds = ", ".join(sorted({source.element for source in sources}))
    names = [source.name for source in sources if source.is_narrow]
    size = sum(source.nbytes for source in sources)
    subject = f"{count:,} weights are" if count > 1 else "1 weight is"
    note = (
        f"{subject} stored in {size:,} bytes ({kinds}) and planned in {planned:,} bytes as floats, because"
        f" operators do not compute in narrower types here: {some(names, _NAMED_TENSORS, quoted=True)}."
    )
    return (note,)


#: Elements that are computed with at a time.
_BLOCK_ELEMENTS = 2**20


def with_stored_origins(graph: TrainableGraph, origins: Mapping[str, Origin]) -> TrainableGraph:
    """The graph with a storage for weights that come from tensors of few bits, as `origins` say.

    A parameter is a tensor of 16 bits itself. A constant is computed from tensors of few bits.
    A weight gets a storage only if its readers can unpack it, and if that gives the same floats, bit for bit.
    Raises StorageError for scales that are not finite. Linear, for each tensor that may be the scales.
    """
    operands = dict(graph.operands)
    for name, axis in stored_axes(graph).items():
        origin, operand = origins.get(name), operands[name]
        if origin is None:
            continue
        if operand.role is Role.PARAMETER and origin.element in ("float16", "bfloat16"):
            type_ = replace(operand.type, storage=Storage(origin.element, axis=axis))
            operands[name] = replace(operand, type=type_)
            continue
        if operand.initializer is None or operand.initializer.data is None:
            continue
        sources = origin.stored()
        if not any(source.is_narrow for source in sources):
            continue
        floats = np.frombuffer(operand.initializer.data, np.float32).reshape(operand.shape)
        scales = {source.name: source.values() for source in sources if source.values is not None}
        _check_finite(name, floats, scales)
        match = stored_rows(np.ascontiguousarray(matrix_rows(floats, axis)), scales.values())
        if match is not None:
            storage, packed = match
            type_ = replace(operand.type, storage=replace(storage, axis=axis))
            initializer = Initializer("values", data=packed.tobytes())
            operands[name] = replace(operand, type=type_, initializer=initializer)
    return graph.with_graph(operands=operands)


def _check_finite(weight: str, floats: Array, scales: Mapping[str, Array]) -> None:
    if np.isfinite(floats).all():
        return
    for name, values in scales.items():
        if not np.isfinite(values).all():
            raise StorageError(
                f"{name!r}, from which the model computes {weight!r}, has elements that are not finite.",
                remedy="Quantise the model again: scales are finite numbers.",
            )


def stored_rows(rows: Array, scales: Iterable[Array]) -> tuple[Storage, Array] | None:
    """The storage of ``float32[rows, elements]`` and the packed rows, which give these floats bit for bit.

    `scales` are finite tensors that may be the scales, in any shape. None where no storage gives the floats.
    """
    for each in _scales_of_groups(rows.shape, scales):
        integers = _integers(rows, each)
        storage = None if integers is None else _storage_of_integers(integers, each)
        if integers is None or storage is None or storage.fault(rows.shape) is not None:
            continue
        zeros = (
            np.maximum(0, -integers.min(axis=-1)) if storage.zero_points else np.zeros(each.shape, np.int16)
        )
        if storage.kind == "int4" and not storage.zero_points:
            zeros += 8
        packed = pack_integers(each, zeros, integers + zeros[..., np.newaxis], storage)
        if _gives(rows, packed, storage):
            return storage, packed
    for kind in ("bfloat16", "float16"):
        storage = Storage(kind)
        packed = pack(rows, TensorType(rows.shape, DType.FLOAT32, storage))
        if _gives(rows, packed, storage):
            return storage, packed
    return None


def _scales_of_groups(shape: Sequence[int], tensors: Iterable[Array]) -> Iterator[Array]:
    """Scales ``float32[rows, groups of a row]``: each tensor in the layouts of its size; then ones."""
    rows, inner = shape
    for tensor in tensors:
        flat = np.ascontiguousarray(tensor, np.float32).reshape(-1)
        groups = flat.size // max(rows, 1)
        if flat.size == 1:
            yield np.full((rows, 1), flat[0])
        elif groups and flat.size == rows * groups and inner % groups == 0:
            yield flat.reshape(rows, groups)
            if groups > 1:
                yield np.ascontiguousarray(flat.reshape(groups, rows).T)
    yield np.ones((rows, 1), np.float32)


def _blocks(rows: Array) -> Iterator[slice]:
    size = max(1, _BLOCK_ELEMENTS // max(1, rows.shape[1]))
    return (slice(start, start + size) for start in range(0, len(rows), size))


def _integers(rows: Array, scales: Array) -> Array | None:
    """The rounded quotients, ``int16[rows, groups, elements]``; None where one has more than 8 bits."""
    integers = np.empty((*scales.shape, rows.shape[1] // scales.shape[1]), np.int16)
    for block in _blocks(rows):
        divisors = np.where(scales[block] == 0, np.float32(1), scales[block])[..., np.newaxis]
        with np.errstate(all="ignore"):
            quotients = np.rint(rows[block].reshape(integers[block].shape) / divisors)
            if not (np.abs(quotients) <= 255).all():
                return None
        integers[block] = quotients
    return integers


def _storage_of_integers(integers: Array, scales: Array) -> Storage | None:
    """The narrowest storage that has the integers of every group."""
    least, most = integers.min(axis=-1, initial=0), integers.max(axis=-1, initial=0)
    span = int((most - least).max(initial=0))
    lowest, highest = int(least.min(initial=0)), int(most.max(initial=0))
    if lowest >= -8 and highest <= 7:
        kind, zero_points = "int4", False
    elif span <= 15:
        kind, zero_points = "int4", True
    elif lowest >= -128 and highest <= 127:
        kind, zero_points = "int8", False
    elif span <= 255:
        kind, zero_points = "int8", True
    else:
        return None
    return Storage(kind, integers.shape[-1], zero_points, _type_of_scales(scales))


def _type_of_scales(scales: Array) -> str:
    with np.errstate(over="ignore"):
        if np.array_equal(scales, scales.astype(np.float16)):
            return "float16"
    return "float32" if (scales.view(np.uint32) & 0xFFFF).any() else "bfloat16"


def _gives(rows: Array, packed: Array, storage: Storage) -> bool:
    """Whether the packed rows unpack to these floats, bit for bit."""
    for block in _blocks(rows):
        floats = np.empty_like(rows[block])
        unpack_rows(packed[block], storage, floats)
        if not np.array_equal(floats.view(np.uint32), rows[block].view(np.uint32)):
            return False
    return True
