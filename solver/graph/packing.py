"""Packed bytes of stored operands: packed from floats, unpacked to floats, and checked.

Unpacking computes in float32: the integer, less the zero point, both exact, times the scale as a float32,
rounded once. Of q4_k, d a and e b are rounded, then (d a) q, then the difference. Packing rounds to the
nearest element that the storage can have:

    int8    s = largest magnitude / 127                  q = x / s rounded, halves away from 0
    int4    s = m / -8, m the element of largest         q = x / s + 8 rounded, halves up, at most 15
            magnitude, with its sign
    with    s = (most - least) / (2**bits - 1), 0 one    z = -least / s rounded, halves to even
    zero points  of least..most                          q = x / s + z rounded, halves to even

s is rounded to the type of the scales when it is stored. q is computed from s before this rounding, as in the
reference implementation of GGUF. Rounding to float16 and bfloat16 is to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from solver.errors import StorageError
from solver.graph.storage import PACKED, SCALES, STORAGES, Storage
from solver.graph.types import Array, DType, Role, TensorType

__all__ = [
    "check_packable",
    "check_packed",
    "check_storage",
    "matrix_rows",
    "pack",
    "pack_integers",
    "packed_values",
    "unpack",
    "unpack_rows",
]

_Path = tuple[str | int, ...]

#: Elements that are packed and checked at a time: temporary arrays take some MiB.
_ELEMENTS: Final = 2**18

#: Groups to propose where one does not fit, the usual ones first.
_GROUPS: Final = (32, 64, 128, 256, 16, 8, 12, 24)

#: Blocks that are unpacked at a time, so that their elements stay in the cache while they are worked on, and
#: a copy of their scales takes 8 KiB.
_BLOCKS: Final = 2048

_SCALES: Final[Mapping[str, np.dtype[Any]]] = {
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "float32": np.dtype("<f4"),
}


def check_storage(name: str, role: Role, type_: TensorType, storage: Storage, path: _Path = ()) -> None:
    """Raises StorageError where an operand of this role and type, without storage, cannot be stored so."""
    if role not in (Role.PARAMETER, Role.CONSTANT):
        raise StorageError(
            f"Operand {name!r} ({role.value}) has a storage.",
            remedy="Only parameters that are not trained, and constants, have one: leave it out.",
            path=(*path, "storage"),
        )
    if type_.dtype is not DType.FLOAT32:
        raise StorageError(
            f"Operand {name!r} is {type_}, and has a storage.",
            remedy="Declare it as float32: the element type is the one that operators compute in.",
            path=(*path, "storage"),
        )
    fault = storage.fault(type_.shape)
    if fault is not None:
        fits = next((n for n in _GROUPS if replace(storage, group=n).fault(type_.shape) is None), 0)
        raise StorageError(
            f"Operand {name!r} is {type_} and cannot be stored as asked: {fault}.",
            remedy=f'Store this operand with "group": {fits}, or leave its storage out.'
            if fits
            else "Leave the storage of this operand out.",
            path=(*path, "storage"),
        )


def check_packed(name: str, data: bytes | memoryview, type_: TensorType, path: _Path = ()) -> None:
    """Raises StorageError where bytes are no first values of a stored operand, packed or float32. Linear."""
    floats = type_.elements * DType.FLOAT32.itemsize
    if len(data) == floats:
        check_packable(name, type_, path)
        return
    if len(data) != type_.nbytes:
        raise StorageError(
            f"Operand {name!r} is {type_}, {type_.nbytes:,} bytes, but its values have {len(data):,} bytes.",
            remedy=f"Give the {type_.nbytes:,} packed bytes, or {floats:,} bytes of float32 elements.",
            path=path,
        )
    packed = np.frombuffer(data, np.uint8).reshape(type_.shape[_storage(type_).axis], -1)
    fault = _fault(packed, type_)
    if fault is not None:
        raise StorageError(
            f"The packed values of operand {name!r} stand for no weights: {fault}.",
            remedy="Pack the weights again: elements and scales are finite, and a scale is zero only where"
            " all elements of its group are.",
            path=path,
        )


def check_packable(name: str, type_: TensorType, path: _Path = ()) -> None:
    """Raises StorageError where floats cannot be packed to the storage of an operand."""
    kind = _storage(type_).kind
    if kind not in PACKED:
        raise StorageError(
            f"Operand {name!r} is stored as {kind}, to which floats are not packed, and has no other values.",
            remedy="Give the packed bytes, as a .gguf file has them, or store the operand as int4.",
            path=path,
        )


def packed_values(name: str, data: bytes, type_: TensorType) -> Array:
    """First values of a stored operand, ``uint8[rows, bytes of a row]``, from packed bytes or from float32
    elements. Raises StorageError, also where elements have no finite scale. Linear.
    """
    check_packed(name, data, type_)
    if len(data) == type_.nbytes:
        return np.frombuffer(data, np.uint8).reshape(type_.shape[_storage(type_).axis], -1)
    packed = pack(np.frombuffer(data, "<f4").reshape(type_.shape), type_)
    fault = _fault(packed, type_)
    if fault is not None:
        raise StorageError(
            f"The values of operand {name!r} cannot be stored as {type_.storage}: {fault}.",
            remedy="Leave this operand as it is: some of its elements are too large, or no numbers.",
        )
    return packed


def _storage(type_: TensorType) -> Storage:
    assert type_.storage is not None, "only stored operands are packed"
    return type_.storage


def matrix_rows(values: Array, axis: int) -> Array:
    """The elements as a matrix ``[rows, elements of a row]``, whose rows an axis counts."""
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def pack(values: Array, type_: TensorType) -> Array:
    """The bytes of elements of the operand's shape, ``uint8[rows, bytes of a row]``.

    Linear; some rows at a time, so that nothing of the size of all elements is allocated.
    """
    storage = _storage(type_)
    floats = matrix_rows(np.asarray(values, np.float32), storage.axis)
    packed = np.empty((len(floats), storage.row_bytes(type_.shape)), np.uint8)
    for rows in _some_rows(type_):
        packed[rows] = _packed_rows(np.ascontiguousarray(floats[rows]), storage)
    return packed


def _some_rows(type_: TensorType) -> Iterator[slice]:
    """The rows of a stored operand, as many at a time as have `_ELEMENTS`, at least one."""
    rows, inner = _storage(type_).matrix(type_.shape)
    step = max(1, _ELEMENTS // inner)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _packed_rows(rows: Array, storage: Storage) -> Array:
    if storage.kind == "float16":
        with np.errstate(over="ignore"):
            return rows.astype("<f2").view(np.uint8)
    if storage.kind == "bfloat16":
        return _bfloat16(rows).view(np.uint8)
    with np.errstate(all="ignore"):
        return pack_integers(*_quantised(rows.reshape(len(rows), -1, storage.group), storage), storage)


def pack_integers(scales: Array, zeros: Array, integers: Array, storage: Storage) -> Array:
    """The bytes of scales and zero points ``[rows, groups]``, and integers ``[rows, groups, group]``."""
    parts = [_stored_scales(scales, storage)]
    if storage.zero_points:
        parts.append(zeros.astype(np.uint8)[..., np.newaxis])
    if storage.kind == "int8":
        parts.append(integers.astype(np.uint8 if storage.zero_points else np.int8).view(np.uint8))
    else:
        whole, half = integers.astype(np.uint8), storage.group // 2
        parts.append(whole[..., :half] | (whole[..., half:] << 4))
    return np.concatenate(parts, axis=-1).reshape(len(scales), -1)


def _quantised(groups: Array, storage: Storage) -> tuple[Array, Array, Array]:
    """Scales and zero points ``[rows, groups]``, integers ``[rows, groups, group]``."""
    bits = STORAGES[storage.kind]
    top = np.float32(2**bits - 1)
    if storage.zero_points:
        least = np.minimum(groups.min(axis=-1), np.float32(0))
        most = np.maximum(groups.max(axis=-1), np.float32(0))
        scales = _kept((most - least) / top, storage)
        zeros = np.clip(np.rint(-least * _inverse(scales)), 0, top)
        integers = np.rint(groups * _inverse(scales)[..., np.newaxis]) + zeros[..., np.newaxis]
        return scales, zeros, np.clip(integers, 0, top)
    if storage.kind == "int8":
        scales = _kept(np.abs(groups).max(axis=-1) / np.float32(127), storage)
        quotients = groups * _inverse(scales)[..., np.newaxis]
        whole = np.floor(np.abs(quotients))
        return scales, scales, np.copysign(whole + np.floor(2 * (np.abs(quotients) - whole)), quotients)
    place = np.abs(groups).argmax(axis=-1)[..., np.newaxis]
    scales = _kept(np.take_along_axis(groups, place, axis=-1)[..., 0] / np.float32(-8), storage)
    integers = np.trunc(groups * _inverse(scales)[..., np.newaxis] + np.float32(8.5))
    return scales, scales, np.clip(integers, 0, 15)


def _kept(scales: Array, storage: Storage) -> Array:
    """The scales s, each set to zero where it rounds to zero in the type of the scales, or where 1 / s
    overflows float32.
    """
    stored = _floats_of_scales(_stored_scales(scales, storage).view(_SCALES[storage.scales]), storage)
    is_lost = (stored[..., 0] == 0) | np.isinf(np.float32(1) / scales)
    return np.where(is_lost, np.copysign(np.float32(0), scales), scales)


def _inverse(scales: Array) -> Array:
    return np.where(scales == 0, np.float32(0), np.float32(1) / scales).astype(np.float32)


def _stored_scales(scales: Array, storage: Storage) -> Array:
    """Bytes of scales, ``uint8[rows, groups, bytes of a scale]``."""
    if storage.scales == "bfloat16":
        stored = _bfloat16(np.ascontiguousarray(scales, np.float32))
    else:
        stored = scales.astype(_SCALES[storage.scales])
    return stored[..., np.newaxis].view(np.uint8)


def _bfloat16(values: Array) -> Array:
    """The first halves of float32s, rounded to nearest, ties to even; a NaN stays one."""
    bits = values.view("<u4")
    rounded = ((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16).astype("<u2")
    return np.where(np.isnan(values), (bits >> 16).astype("<u2") | 0x40, rounded)


def unpack(packed: Array, type_: TensorType) -> Array:
    """The elements of a stored operand, in its shape. Linear."""
    storage = _storage(type_)
    rows, inner = storage.matrix(type_.shape)
    floats = np.empty((rows, inner), np.float32)
    unpack_rows(packed, storage, floats)
    others = [size for axis, size in enumerate(type_.shape) if axis != storage.axis]
    return np.moveaxis(floats.reshape(rows, *others), 0, storage.axis)


def unpack_rows(packed: Array, storage: Storage, floats: Array) -> None:
    """Write the elements of stored rows, ``uint8[rows, bytes of a row]``, to ``float32[rows, elements]``.

    Both C-contiguous; nothing of their size is allocated, beside NumPy's own buffers. Linear.
    """
    if not storage.group:
        halves = packed.view("<u2")
        if storage.kind == "float16":
            np.copyto(floats, halves.view("<f2"))
        else:
            np.left_shift(halves, 16, out=floats.view(np.uint32), dtype=np.uint32)
        return
    blocks, groups = packed.reshape(-1, storage.block_bytes), floats.reshape(-1, storage.group)
    step = _BLOCKS // 8 if storage.kind == "q4_k" else _BLOCKS
    for start in range(0, len(blocks), step):
        some = slice(start, start + step)
        if storage.kind == "q4_k":
            _unpack_q4_k(blocks[some], groups[some])
        else:
            _unpack_blocks(blocks[some], storage, groups[some])


def _unpack_blocks(blocks: Array, storage: Storage, groups: Array) -> None:
    """Write the elements of ``uint8[blocks, bytes of a block]`` to ``float32[blocks, group]``."""
    scales, zeros, integers = _parts(blocks, storage)
    if storage.kind == "int8":
        np.copyto(groups, integers)
    else:
        half = storage.group // 2
        np.bitwise_and(integers, 15, out=groups[..., :half])
        np.right_shift(integers, 4, out=groups[..., half:])
    if storage.zero_points:
        np.subtract(groups, zeros, out=groups, dtype=np.float32)
    elif storage.kind == "int4":
        np.subtract(groups, 8, out=groups)
    np.multiply(groups, _floats_of_scales(scales, storage), out=groups, dtype=np.float32)


def _unpack_q4_k(blocks: Array, groups: Array) -> None:
    """Write the elements of ``uint8[blocks, 144]`` to ``float32[blocks, 256]``.

    Of the 12 bytes behind the scales, four have a[0..3] in their low 6 bits, the next four b[0..3], the last
    four the low 4 bits of a[4..7] in their low halves and of b[4..7] in their high ones. The high 2 bits of
    these are the high 2 bits of the first eight bytes. Of 64 integers, 32 are the low halves of 32 bytes, and
    the other 32 the high halves.
    """
    scales = blocks[:, :4].view("<f2").astype(np.float32)
    first, second, mixed = (blocks[:, start : start + 4] for start in (4, 8, 12))
    a = np.concatenate([first & 63, mixed & 15 | first >> 2 & 48], axis=1)
    b = np.concatenate([second & 63, mixed >> 4 | second >> 2 & 48], axis=1)
    integers, halves = blocks[:, 16:].reshape(-1, 4, 32), groups.reshape(-1, 4, 2, 32)
    np.bitwise_and(integers, 15, out=halves[:, :, 0])
    np.right_shift(integers, 4, out=halves[:, :, 1])
    elements = groups.reshape(-1, 8, 32)
    np.multiply(elements, (scales[:, :1] * a)[..., np.newaxis], out=elements)
    np.subtract(elements, (scales[:, 1:] * b)[..., np.newaxis], out=elements)


def _parts(blocks: Array, storage: Storage) -> tuple[Array, Array, Array]:
    """Views of scales, zero points (one or none a block) and integers of ``[..., bytes of a block]``."""
    size = SCALES[storage.scales]
    start = size + storage.zero_points
    signed = storage.kind == "int8" and not storage.zero_points
    return (
        blocks[..., :size].view(_SCALES[storage.scales]),
        blocks[..., size:start],
        blocks[..., start:].view(np.int8 if signed else np.uint8),
    )


def _floats_of_scales(scales: Array, storage: Storage) -> Array:
    """Scales as floats: themselves, or of bfloat16 a copy, which is small beside the elements."""
    if storage.scales != "bfloat16":
        return scales
    return (scales.astype(np.uint32) << 16).view(np.float32)


def _fault(packed: Array, type_: TensorType) -> str | None:
    """A clause about packed bytes that stand for no weights, None where all is right: elements or scales that
    are infinite or no number, or scales that are zero where integers are not the zero point. Linear.
    """
    faults = (_fault_of_rows(packed[rows], rows.start, _storage(type_)) for rows in _some_rows(type_))
    return next((fault for fault in faults if fault is not None), None)


def _fault_of_rows(packed: Array, first: int, storage: Storage) -> str | None:
    """The clause about some rows, which are counted from `first`."""
    if not storage.group:
        exponents = 0x7C00 if storage.kind == "float16" else 0x7F80
        lost = np.argwhere((packed.view("<u2") & exponents) == exponents)
        if not len(lost):
            return None
        return f"element {lost[0][1]} of row {first + lost[0][0]} is infinite or no number"
    blocks = packed.reshape(len(packed), -1, storage.block_bytes)
    scales, zeros, integers = _parts(blocks, storage)
    if storage.kind == "q4_k":
        scales = blocks[..., :4].view("<f2")
    factors = _floats_of_scales(scales, storage).astype(np.float32)
    wrong = np.argwhere(~np.isfinite(factors))
    if len(wrong):
        row, group, number = (int(index) for index in wrong[0])
        return f"the scale of group {group} in row {first + row} is {float(factors[row, group, number])}"
    if storage.kind == "q4_k":
        return None
    zero = factors[..., 0] == 0
    bytes_of_groups = integers[zero]
    if storage.kind == "int4":
        bytes_of_groups = np.concatenate([bytes_of_groups & 15, bytes_of_groups >> 4], axis=-1)
    zero_point = zeros[zero] if storage.zero_points else 8 if storage.kind == "int4" else 0
    lost = np.argwhere(zero)[(bytes_of_groups != zero_point).any(axis=-1)]
    if not len(lost):
        return None
    row, group = (int(number) for number in lost[0])
    return f"the scale of group {group} in row {first + row} is zero, and its integers are not"
