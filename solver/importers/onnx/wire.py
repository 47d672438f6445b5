"""The wire format of an ONNX file, as far as it takes to leave the weights where they are.

A model is a protobuf message whose weights are most of its bytes. Parsed as a whole it would be copied, and
could not exceed 2 GiB. So the raw values of weights are cut out first, and where they lie in the file is
kept:

    file      | ... | name "fc.weight" | raw_data: 4,096 bytes | ...
    skeleton  | ... | name "fc.weight" | ...                          parsed by onnx
    ranges    {7: Range(offset, 4096)}                                initializer 7 of the graph

https://protobuf.dev/programming-guides/encoding, and the numbers of fields in onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from solver.errors import DocumentError

__all__ = ["Range", "Skeleton", "skeleton_of"]

_VARINT, _BYTES = 0, 2
#: ModelProto.graph, GraphProto.initializer, and the fields of TensorProto.
_GRAPH: Final = 7
_INITIALIZER: Final = 5
_DATA_TYPE: Final = 2
_RAW: Final = 9
#: Field of packed values -> the element type that has their bytes: float and double.
_PACKED: Final = {4: 1, 10: 11}
#: Values of fewer bytes are parsed with the rest: shapes, axes, scalars.
_MIN_CUT_BYTES: Final = 512
#: Bytes of the longest varint, which holds 64 bits.
_MAX_VARINT_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A model without the values of its large weights, and where in the file these are, by initializer."""

    data: bytes
    ranges: dict[int, Range]


def skeleton_of(data: memoryview) -> Skeleton:
    """Cut the weights out of a model. Raises DocumentError for what is not protobuf. Linear in the rest."""
    kept: list[memoryview | bytes] = []
    ranges: dict[int, Range] = {}
    for number, kind, start, value, stop in _fields(data, 0, len(data)):
        if number == _GRAPH and kind == _BYTES:
            graph = _graph(data, value, stop, ranges)
            size = sum(len(part) for part in graph)
            kept += [_varint_bytes(_GRAPH << 3 | _BYTES), _varint_bytes(size), *graph]
        else:
            kept.append(data[start:stop])
    return Skeleton(b"".join(kept), ranges)


def _graph(data: memoryview, begin: int, end: int, ranges: dict[int, Range]) -> list[memoryview | bytes]:
    kept: list[memoryview | bytes] = []
    count = 0
    for number, kind, start, value, stop in _fields(data, begin, end):
        if number != _INITIALIZER or kind != _BYTES:
            kept.append(data[start:stop])
            continue
        if stop - value > _MIN_CUT_BYTES:
            tensor = _tensor(data, value, stop, count, ranges)
            size = sum(len(part) for part in tensor)
            kept += [_varint_bytes(_INITIALIZER << 3 | _BYTES), _varint_bytes(size), *tensor]
        else:
            kept.append(data[start:stop])
        count += 1
    return kept


def _tensor(data: memoryview, begin: int, end: int, index: int, ranges: dict[int, Range]) -> list[memoryview]:
    """The fields of a tensor but its values, if these are one piece of bytes as they lie in memory."""
    fields = list(_fields(data, begin, end))
    types = [
        _varint(data, value, stop)[0]
        for n, kind, _, value, stop in fields
        if (n, kind) == (_DATA_TYPE, _VARINT)
    ]
    element = types[-1] if types else 0
    values = [f for f in fields if f[1] == _BYTES and (f[0] == _RAW or _PACKED.get(f[0]) == element)]
    if len(values) != 1 or values[0][4] - values[0][3] <= _MIN_CUT_BYTES:
        return [data[begin:end]]
    _, _, start, value, stop = values[0]
    ranges[index] = Range(value, stop - value)
    return [data[begin:start], data[stop:end]]


def _fields(data: memoryview, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, wire type, start of the field, start of its value, end) of each field of a message."""
    position = begin
    while position < end:
        start = position
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        value = position
        match kind:
            case 0:
                _, position = _varint(data, position, end)
            case 1:
                position += 8
            case 2:
                length, value = _varint(data, position, end)
                position = value + length
            case 5:
                position += 4
            case _:
                raise _broken(start, f"a field of wire type {kind}")
        if number == 0 or position > end:
            raise _broken(start, "a field that goes beyond the end" if number else "a field without a number")
        yield number, kind, start, value, position


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The variable-length integer at a position, and the position behind it."""
    value = 0
    for k in range(_MAX_VARINT_BYTES):
        if position + k >= end:
            break
        byte = data[position + k]
        value |= (byte & 0x7F) << 7 * k
        if byte < 0x80:
            return value, position + k + 1
    raise _broken(position, "a number without an end")


def _varint_bytes(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _broken(position: int, what: str) -> DocumentError:
    return DocumentError(
        f"This is not an ONNX model, or it is damaged: {what} at byte {position:,}.",
        remedy="Export it again; a file that was copied may have been cut off.",
    )
