"""Reading an ONNX file: a model whose weights stay where they are, each with the bytes that hold it.

A model is a protobuf message whose weights are most of its bytes. Parsed as a whole it would be copied, and
could not exceed 2 GiB. So the raw values of weights are cut out first, and their places in the file are kept:

    file      | ... | name "fc.weight" | raw_data: 4,096 bytes | ...
    skeleton  | ... | name "fc.weight" | ...                          parsed by onnx
    ranges    {7: Range(offset, 4096)}                                initializer 7 of the graph

https://protobuf.dev/programming-guides/encoding, and the numbers of fields in onnx.proto.

Weights lie in the file itself, or in files beside it (external data). Those must be inside the model's
folder: a model from somebody else must not choose what is read from a machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from solver.errors import DocumentError
from solver.graph import Array, DType
from solver.importers.narrowed import Origin

if TYPE_CHECKING:
    import onnx

__all__ = [
    "ELEMENTS",
    "MAX_DIMENSION",
    "Range",
    "Skeleton",
    "Source",
    "StoredTensor",
    "array_of",
    "constant_tensor",
    "read_model",
    "skeleton_of",
    "stored_tensors",
    "tensors_of",
]

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


#: ONNX's numbers of element types -> ours; those of 16 bits are taken as float32.
ELEMENTS: Final[Mapping[int, DType]] = {
    1: DType.FLOAT32,
    2: DType.UINT8,
    3: DType.INT8,
    6: DType.INT32,
    7: DType.INT64,
    9: DType.BOOL,
    10: DType.FLOAT32,
    11: DType.FLOAT64,
    16: DType.FLOAT32,
}
_FLOAT16, _BFLOAT16 = 10, 16
#: Those whose bytes in the file are the bytes in memory.
_PLAIN: Final = frozenset({1, 2, 3, 6, 7, 9, 11})
#: No tensor of more elements is made, and no axis may be longer.
MAX_DIMENSION: Final = 2**63 - 1
#: Files of opsets before this one have operators that mean something else.
_OLDEST_OPSET: Final = 7
#: Data files beside a model; each stays open while the model is read.
_MAX_FILES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Source:
    """Bytes of weights, of the file itself or one beside it; `path` is None for bytes without a file."""

    path: Path | None
    data: memoryview


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """An initializer, or what a Constant holds: `shape`, ONNX's number of its element type, and where its
    bytes are.

    `source` and `range` are None for values that the parsed message holds itself, in `message`, and for those
    in a file that is `absent`, which is then its name.
    """

    name: str
    shape: tuple[int, ...]
    element: int
    message: Any = field(repr=False)
    source: Source | None = None
    range: Range | None = None
    absent: str = ""

    @property
    def dtype(self) -> DType | None:
        return ELEMENTS.get(self.element)

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def in_place(self) -> bool:
        """Whether the bytes in the file are those in memory."""
        return self.source is not None and self.element in _PLAIN

    def bytes(self) -> memoryview:
        """The bytes in the file; only where `source` is given."""
        assert self.source is not None
        assert self.range is not None
        return self.source.data[self.range.offset : self.range.offset + self.range.length]

    @property
    def origin(self) -> Origin:
        """Its element type and its bytes in the file."""
        import onnx

        word = onnx.TensorProto.DataType.Name(self.element).lower()
        word = {"float": "float32", "double": "float64"}.get(word, word)
        if self.range is not None:
            return Origin(self.name, word, self.range.length)
        bits = 4 if word.endswith("int4") else 8 * onnx.helper.tensor_dtype_to_np_dtype(self.element).itemsize
        return Origin(self.name, word, -(-self.elements * bits // 8))

    def values(self) -> Array | None:
        """The values as `array` gives them, or None where they lie in a file that is absent."""
        return None if self.absent else self.array()

    def array(self) -> Array:
        """The values, in an element type of ours where there is one."""
        if self.source is None:
            return array_of(self.message)
        if self.element == _BFLOAT16:  # the upper half of a float32
            halves = np.frombuffer(self.bytes(), np.uint16).astype(np.uint32)
            return (halves << 16).view(np.float32).reshape(self.shape)
        wide = ELEMENTS[self.element].numpy
        stored = np.dtype(np.float16) if self.element == _FLOAT16 else wide
        return np.asarray(np.frombuffer(self.bytes(), stored).reshape(self.shape), wide)


def array_of(message: onnx.TensorProto) -> Array:
    """The values of a tensor that stands in the message. Raises DocumentError."""
    from onnx import numpy_helper

    _check_shape(message.name, tuple(message.dims))
    if message.data_location == message.EXTERNAL:
        raise _bad_tensor(message.name, "only initializers of the model's own graph may lie in other files")
    try:
        values = numpy_helper.to_array(message)
    except (ValueError, TypeError, RuntimeError, KeyError, OverflowError, AttributeError) as error:
        raise _bad_tensor(message.name, str(error)) from None
    if values.dtype.name in ("float16", "bfloat16"):
        return values.astype(np.float32)
    return np.asarray(values)


def constant_tensor(node: onnx.NodeProto) -> StoredTensor | None:
    """The floating tensor that a node Constant holds, named as its output; None for other nodes and types."""
    from onnx import numpy_helper

    if node.op_type != "Constant" or not node.output:
        return None
    for attribute in node.attribute:
        message = attribute.t
        if attribute.ref_attr_name:
            continue
        if attribute.name == "value_float":
            message = numpy_helper.from_array(np.asarray(attribute.f, np.float32))
        elif attribute.name == "value_floats":
            message = numpy_helper.from_array(np.asarray(attribute.floats, np.float32))
        elif attribute.name != "value":
            continue
        dtype = ELEMENTS.get(message.data_type)
        if dtype is not None and dtype.is_floating:
            _check_shape(node.output[0], tuple(message.dims))
            return StoredTensor(node.output[0], tuple(message.dims), message.data_type, message)
    return None


def tensors_of(branch: onnx.GraphProto) -> tuple[StoredTensor, ...]:
    """The initializers of a branch of an If, whose values stand in the message."""
    for message in branch.initializer:
        _check_shape(message.name, tuple(message.dims))
    return tuple(StoredTensor(m.name, tuple(m.dims), m.data_type, m) for m in branch.initializer)


def read_model(
    data: bytes | memoryview, path: Path | None, *, weights: bool = True
) -> tuple[onnx.ModelProto, tuple[StoredTensor, ...]]:
    """The model without its large weights, and all initializers of its graph.

    Without `weights`, those in files that cannot be read are absent.

    Raises DocumentError for what is not a model, for an unknown or old opset, and for weights that are
    missing, cut off or outside the model's folder. Cost: linear in the file less its weights.
    """
    import onnx

    view = memoryview(data)
    skeleton = skeleton_of(view)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(skeleton.data)
    except Exception as error:  # noqa: BLE001 - protobuf's own; only onnx brings that package along
        raise DocumentError(
            f"This is not an ONNX model, or it is damaged: {error}.",
            remedy="Export it again; a file that was copied may have been cut off.",
        ) from None
    _check_model(model)
    return model, tuple(stored_tensors(model.graph, skeleton.ranges, Source(path, view), weights=weights))


def _check_model(model: onnx.ModelProto) -> None:
    import onnx

    if not model.HasField("graph") or not model.graph.node:
        raise DocumentError(
            "The model has no graph." if not model.HasField("graph") else "The model's graph has no nodes.",
            remedy="Give a model in ONNX's format, as torch.onnx.export writes it.",
        )
    versions = {o.domain: o.version for o in model.opset_import if o.domain in ("", "ai.onnx")}
    if not model.opset_import:
        raise DocumentError("The model names no opset.", remedy="Export it again with an opset.")
    newest = onnx.defs.onnx_opset_version()
    version = max(versions.values(), default=newest)  # operators of other domains are named one by one
    if not _OLDEST_OPSET <= version <= newest:
        raise DocumentError(
            f"The model is of opset {version}; {_OLDEST_OPSET} to {newest} are read here.",
            remedy="Export it with another opset_version, or convert it with onnx.version_converter."
            if version < _OLDEST_OPSET
            else "Export it with an older opset_version, or install a newer onnx.",
        )


def stored_tensors(
    graph: onnx.GraphProto, ranges: Mapping[int, Range], own: Source, *, weights: bool
) -> Iterator[StoredTensor]:
    """The initializers, with where their bytes are. Raises DocumentError."""
    files = _Files(own.path)
    names: set[str] = set()
    if len(graph.sparse_initializer):
        raise DocumentError("The model has sparse weights.", remedy="Export it with dense ones.")
    for index, message in enumerate(graph.initializer):
        shape = tuple(message.dims)
        _check_shape(message.name, shape)
        if not isinstance(message.name, str) or not message.name or message.name in names:
            raise _bad_tensor(message.name, "its name is empty or taken")
        names.add(message.name)
        source, range_, absent = None, None, ""
        if index in ranges:
            source, range_ = own, ranges[index]
        elif message.data_location == message.EXTERNAL:
            try:
                source, range_ = files.place(message)
            except DocumentError:
                if weights:
                    raise
                absent = next((e.value for e in message.external_data if e.key == "location"), "?")
        tensor = StoredTensor(message.name, shape, message.data_type, message, source, range_, absent)
        if source is not None and range_ is not None:
            _check_length(tensor, range_)
        yield tensor


def _check_shape(name: str, shape: tuple[int, ...]) -> None:
    if any(size < 0 or size > MAX_DIMENSION for size in shape) or len(shape) > 64:
        raise _bad_tensor(name, f"its shape is {list(shape)[:8]}")


def _check_length(tensor: StoredTensor, range_: Range) -> None:
    import onnx

    try:
        itemsize = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.element)).itemsize
    except (KeyError, TypeError, ValueError):
        raise _bad_tensor(tensor.name, f"its element type is {tensor.element}") from None
    needed = tensor.elements * itemsize
    if tensor.dtype is None:
        raise _bad_tensor(
            tensor.name, f"its element type is {onnx.TensorProto.DataType.Name(tensor.element)}"
        )
    if needed != range_.length:
        raise _bad_tensor(tensor.name, f"it needs {needed:,} bytes and has {range_.length:,}")


def _bad_tensor(name: str, why: str) -> DocumentError:
    return DocumentError(
        f"The weight {name!r:.80} cannot be read: {' '.join(why.split())[:200]}.",
        remedy="Export the model again, and keep its data files beside it.",
    )


class _Files:
    """The files beside a model that hold its weights, each mapped once."""

    def __init__(self, model: Path | None) -> None:
        self.folder = None if model is None else model.resolve().parent
        self.open: dict[str, Source] = {}

    def place(self, message: onnx.TensorProto) -> tuple[Source, Range]:
        entries = {entry.key: entry.value for entry in message.external_data}
        location = entries.get("location", "")
        source = self._source(message.name, location)
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", "-1"))
        except ValueError:
            raise _bad_tensor(message.name, f"its place in {location!r} is not a number") from None
        if length < 0:
            length = len(source.data) - offset
        if offset < 0 or length < 0 or offset + length > len(source.data):
            raise _bad_tensor(
                message.name,
                f"{location!r} has {len(source.data):,} bytes, too few for {length:,} from {offset:,} on",
            )
        return source, Range(offset, length)

    def _source(self, name: str, location: str) -> Source:
        if location in self.open:
            return self.open[location]
        if self.folder is None:
            raise DocumentError(
                f"The weight {name!r:.80} lies in another file, {location!r:.80}, which was not sent.",
                remedy="Save the model with its weights inside, or import it where the file is. Or draw the"
                " weights, with --weights none.",
            )
        path = (self.folder / location).resolve() if "\0" not in location else self.folder
        if not location or not path.is_relative_to(self.folder) or len(self.open) > _MAX_FILES:
            raise DocumentError(
                f"The weight {name!r:.80} lies in {location!r:.80}, outside the model's folder.",
                remedy="Keep data files in the folder of the model.",
            )
        if not path.is_file():
            raise DocumentError(
                f"The file {location!r:.80} with the weight {name!r:.80} is missing.",
                remedy=f"Put it into {str(self.folder)!r:.200}, beside the model. Or draw the weights, with"
                " --weights none.",
            )
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            data = memoryview(b"") if not size else np.memmap(stream, np.uint8, "r").data
        self.open[location] = Source(path, data)
        return self.open[location]
