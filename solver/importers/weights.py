"""Files of weights alone, .safetensors, .gguf and .npz: their values become a graph's first values.

Such a file is mapped and not read: its table says where each tensor lies, and the graph says the same of its
operands, with a SHA-256 each. Weights that are not trained keep the file's 16, 8 or 4 bits as their storage,
where every operation that reads them can. Only what lies there in another way than in memory is copied:
compressed tensors, other element types, other orders of axes or bytes.

safetensors: 8 bytes with the length of a JSON object, the object (name -> dtype, shape, data_offsets), data
(https://huggingface.co/docs/safetensors). .npz: a ZIP archive of arrays in NumPy's format, a file each.
.gguf: read by llama.cpp's own package, which also makes floats of the quantised types.

Names of a file may differ from the model's. A JSON object beside it then maps these to those, and stands in
the file's place. Each * is any text, the same in both names; what is mapped to null keeps its first values:

    {"file": "model.gguf", "names": {"layers.*.query.weight": "blk.*.attn_q.weight", "*.lora_*": null}}
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import itertools
import json
import math
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from solver.errors import DocumentError
from solver.graph import Array, FileRange, Initializer, Operand, Role, TrainableGraph
from solver.graph.nodes import stored_axes
from solver.graph.packing import check_packed, packed_values
from solver.graph.storage import Q4_K_GROUP, Storage
from solver.importers.narrowed import Origin, widening_notes
from solver.importers.options import Imported
from solver.importers.text import some
from solver.names import counted

__all__ = ["StoredWeight", "read_arrays", "read_weights", "weight_array", "with_weights"]

#: Element types of safetensors, as NumPy reads them; bfloat16 is the upper half of a float32.
_BFLOAT16: Final = "bfloat16"
_SAFE: Final[Mapping[str, str]] = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "BF16": _BFLOAT16, "F32": "<f4", "F64": "<f8",
}  # fmt: skip
#: Quantised types of GGUF whose blocks are those of a storage, byte for byte.
_BLOCKS: Final[Mapping[str, Storage]] = {
    "Q8_0": Storage("int8", 32), "Q4_0": Storage("int4", 32), "Q4_K": Storage("q4_k", Q4_K_GROUP),
}  # fmt: skip
#: Storages by the element type of a file.
_STORAGES: Final[Mapping[str, Storage]] = {
    "<f2": Storage("float16"), _BFLOAT16: Storage("bfloat16"), **_BLOCKS,
}  # fmt: skip
#: Element types of GGUF that are not quantised, as NumPy reads them.
_PLAIN: Final[Mapping[str, str]] = {
    "F16": "<f2", "BF16": _BFLOAT16, "F32": "<f4", "F64": "<f8",
    "I8": "|i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
}  # fmt: skip
#: The format's own bound of its table; a larger one is damage.
_MAX_TABLE_BYTES: Final = 100_000_000
#: Bytes in front of an array in NumPy's format, at most: NumPy's bound, and what stands before it.
_MAX_HEADER_BYTES: Final = 10_000 + 12
#: The header of a file inside an archive, before its name.
_LOCAL_HEADER_BYTES: Final = 30
_ZIP: Final = b"PK\x03\x04"
_GGUF: Final = b"GGUF"
#: Axes that NumPy can have.
_MAX_AXES: Final = 64
#: Element types of arrays, as their headers write them: numbers and conditions of up to 64 bits.
_ELEMENT: Final = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
#: Roles of operands that have a value before training begins.
_STORED: Final = frozenset({Role.PARAMETER, Role.STATE, Role.CONSTANT})
#: Errors that a table with unexpected entries leads to.
_BAD_VALUE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
#: Errors of Python's readers of literals and JSON for text that is nested too deeply, or ends too soon.
_TOO_DEEP: Final = (RecursionError, MemoryError, SyntaxError, EOFError)
#: Errors of Python's reader of archives for damaged ones.
_BAD_ARCHIVE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    RuntimeError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """One tensor of a file: its `shape`, its element type, its place.

    `element` is the type as NumPy writes it, ``bfloat16``, or a quantised type of GGUF as ``Q4_0``. The
    tensor has `length` bytes from `offset` on; where the archive compresses it, `offset` is -1, and `member`
    is its name in there. Elements are in C order, or, with `fortran`, in the opposite one.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    offset: int
    length: int
    fortran: bool = False
    member: str = ""

    @property
    def is_quantised(self) -> bool:
        return self.element[0].isupper()

    @property
    def kind(self) -> str:
        """The element type as people write it: float32."""
        plain = self.element != _BFLOAT16 and not self.is_quantised
        return np.dtype(self.element).name if plain else self.element

    @property
    def is_floating(self) -> bool:
        return self.is_quantised or self.kind.startswith(("float", _BFLOAT16))

    @property
    def storage(self) -> Storage | None:
        """The storage whose bytes these are, with rows along axis 0; None for floats of 32 bits and more."""
        return _STORAGES.get(self.element)

    def lies_as(self, operand: Operand) -> bool:
        """Whether these bytes are the operand's in memory."""
        if self.offset < 0 or (self.fortran and sum(size > 1 for size in self.shape) > 1):
            return False
        if operand.type.storage is not None:
            return self.storage == operand.type.storage
        return self.kind == operand.dtype.numpy.name and np.dtype(self.element) == operand.dtype.numpy


# --------------------------------------------------------------------------------------- a graph with weights


def with_weights(graph: TrainableGraph, path: Path) -> Imported:
    """The graph with the first values that a file has under the names of its operands, or under mapped names.

    Every parameter must be in the file; states and constants may be, and what else the file has is left out,
    which a note says. A matrix that is not trained is stored as the file has it, where the operations that
    read it take its rows from there (`stored_axes`); elsewhere floats are made of it. Raises DocumentError
    for a file that is of none of the formats or is damaged, for parameters that it lacks, and for shapes and
    element types that do not fit; StorageError for packed bytes that stand for no weights. Cost: what is used
    of the file is read once, for its SHA-256.
    """
    path, renamed = _names(path)
    stored = read_weights(path)
    filled = [operand for operand in graph.operands.values() if operand.role in _STORED]
    sources = {operand.id: renamed(operand.id) for operand in filled}
    parameters = (sources[operand.id] for operand in filled if operand.role is Role.PARAMETER)
    missing = [source for source in parameters if source is not None and source not in stored]
    if missing:
        names = some(list(stored), quoted=True) or "nothing"
        raise DocumentError(
            f"{str(path)!r:.200} lacks {len(missing)} of the parameters: {some(missing, quoted=True)}.",
            remedy=f"It has {names}. Save them under the model's names, or map names by a .json file as the"
            f' weights: {{"file": "{path.name}", "names": {{"our name": "its name"}}}}, with null for what'
            " keeps its first values.",
        )
    data, axes = _mapped(path), stored_axes(graph)
    operands, kept, converted = dict(graph.operands), Counter[str](), Counter[str]()
    widened = []
    for operand in filled:
        weight = stored.get(sources[operand.id] or "")
        if weight is None:
            continue
        _check_fits(operand, weight, path)
        taker = _as_stored(operand, weight, axes.get(operand.id))
        if weight.lies_as(taker):
            lying = data[weight.offset : weight.offset + weight.length]
            if taker.type.storage is not None:
                check_packed(operand.id, lying, taker.type)
                kept[f"{weight.kind} ({taker.type.storage})"] += 1
            place = FileRange(str(path), weight.offset, hashlib.sha256(lying).hexdigest())
            initializer = Initializer("values", file=place)
        else:
            values = weight_array(path, data, weight).astype(operand.dtype.numpy)
            copied = np.ascontiguousarray(values).tobytes()
            if taker.type.storage is not None:
                copied = packed_values(operand.id, copied, taker.type).tobytes()
            initializer = Initializer("values", data=copied)
            converted[f"{weight.kind} as {taker.type.storage or operand.dtype.value}"] += 1
            widened.append((taker.type, Origin(weight.name, weight.kind, weight.length)))
        operands[operand.id] = replace(taker, initializer=initializer)
    spare = [name for name in stored if name not in sources.values()]
    notes = (*_notes(spare, kept, converted, path), *widening_notes(widened))
    return Imported(graph.with_graph(operands=operands), notes)


def _names(path: Path) -> tuple[Path, Callable[[str], str | None]]:
    """The file of weights, and the name in there of an operand; for a mapping of names, what that says."""
    if path.suffix.lower() != ".json":
        return path, lambda name: name
    try:
        mapping = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique_keys)
        file, names = mapping.pop("file"), mapping.pop("names")
        rules = {re.compile("(.+)".join(map(re.escape, name.split("*")))): names[name] for name in names}
        fits = all(source is None or rule.groups == source.count("*") for rule, source in rules.items())
        if not fits or mapping or not isinstance(file, str):
            raise ValueError("it has other fields, or a pair of names with another number of * in each")
        if not (path.parent / file).is_file():
            raise ValueError(f"there is no file {file!r:.200}")
    except (*_BAD_VALUE, *_TOO_DEEP) as error:
        raise DocumentError(
            f"{str(path)!r:.200} does not map names: {' '.join(str(error).split())[:200]}.",
            remedy='Write a JSON object as {"file": "model.gguf", "names": {"layers.*.weight": "blk.*.w"}}.',
        ) from None

    def renamed(name: str) -> str | None:
        for rule, source in rules.items():
            match = rule.fullmatch(name)
            if match is not None and source is None:
                return None
            if match is not None:
                parts = itertools.zip_longest(source.split("*"), match.groups(), fillvalue="")
                return "".join(itertools.chain.from_iterable(parts))
        return name

    return path.parent / file, renamed


def _as_stored(operand: Operand, weight: StoredWeight, axis: int | None) -> Operand:
    """The operand in the storage of a weight of the file; itself where operations cannot read that.

    `axis` counts the rows that they read, None where they read floats alone. Floats of 16 bits may lie in
    another order than the file has them in; groups may not.
    """
    storage = weight.storage
    if storage is None or axis is None or (storage.group and axis != storage.axis):
        return operand
    return replace(operand, type=replace(operand.type, storage=replace(storage, axis=axis)))


def _check_fits(operand: Operand, weight: StoredWeight, path: Path) -> None:
    if weight.shape != operand.shape:
        what = f"has shape {list(weight.shape)}, and the model's has {list(operand.shape)}"
    elif not (weight.is_floating and operand.dtype.is_floating) and weight.kind != operand.dtype.numpy.name:
        what = f"has elements of {weight.kind}, and the model's has {operand.dtype.value}"
    else:
        return
    raise DocumentError(
        f"{operand.id!r} in {str(path)!r:.200} {what}.",
        remedy="Take the weights of this model, as it was exported.",
    )


def _notes(spare: Sequence[str], kept: Counter[str], converted: Counter[str], path: Path) -> Iterator[str]:
    if spare:
        names = some(spare, quoted=True)
        yield f"The model has no use for {counted(len(spare), 'tensor')} of {path.name!r:.80}: {names}."
    if kept:
        what = ", ".join(f"{counted(count, 'tensor')} of {kind}" for kind, count in kept.items())
        yield f"Stored as {path.name!r:.80} has them, for they are not trained: {what}."
    if converted:
        what = ", ".join(f"{counted(count, 'tensor')} of {kinds}" for kinds, count in converted.items())
        yield f"Taken from {path.name!r:.80} by copy: {what}."


# -------------------------------------------------------------------------------------------------- the files


def read_weights(path: Path) -> Mapping[str, StoredWeight]:
    """The tensors of a .safetensors, .gguf or .npz file by name; the first bytes tell which it is.

    Raises DocumentError for another file and a damaged one, OSError where it cannot be read. Cost: its table;
    memory is bounded by that.
    """
    data = _mapped(path)
    try:
        if bytes(data[:4]) == _ZIP:
            return _npz(path, data)
        if bytes(data[:4]) == _GGUF:
            return _gguf(path)
        if bytes(data[8:9]) == b"{":
            return _safetensors(path, data)
    except (*_BAD_VALUE, *_TOO_DEEP, *_BAD_ARCHIVE) as error:
        raise _damaged(path, str(error) or type(error).__name__) from None
    raise DocumentError(
        f"{str(path)!r:.200} is neither a .safetensors, a .gguf nor an .npz file.",
        remedy="Write one of them: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors'), or"
        " numpy.savez('weights.npz', **{name: array}).",
    )


def read_arrays(path: Path) -> dict[str, Array]:
    """The tensors of a file as arrays, mapped where they lie as NumPy has them; raises as `read_weights`."""
    stored, data = read_weights(path), _mapped(path)
    return {name: weight_array(path, data, weight) for name, weight in stored.items()}


def weight_array(path: Path, data: memoryview, weight: StoredWeight) -> Array:
    """The values of a tensor of a file, whose bytes are `data`; bfloat16 and quantised ones as float32.

    Raises DocumentError where a compressed one is damaged, and for quantised ones that are no numbers or of a
    type that is not read. Nothing is copied that lies there as NumPy has it.
    """
    if weight.offset >= 0:
        raw: Any = data[weight.offset : weight.offset + weight.length]
    else:
        raw = _unpacked(path, weight)
    if weight.is_quantised:
        return _dequantised(path, weight, raw)
    order: Any = "F" if weight.fortran else "C"
    if weight.element == _BFLOAT16:
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").reshape(weight.shape)
    return np.frombuffer(raw, weight.element).reshape(weight.shape, order=order)


def _damaged(path: Path, why: str) -> DocumentError:
    return DocumentError(
        f"{str(path)!r:.200} is damaged: {' '.join(why.split())[:200]}.",
        remedy="Write it again; a file that was copied may have been cut off.",
    )


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        return memoryview(b"") if not size else np.memmap(stream, np.uint8, "r").data


def _sizes(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple) or len(shape) > _MAX_AXES:
        raise ValueError("a shape is not a list of sizes")
    if any(type(size) is not int or not 0 <= size < 2**63 for size in shape):
        raise ValueError(f"a shape is {str(shape)[:80]}")
    return tuple(shape)


def _safetensors(path: Path, data: memoryview) -> Mapping[str, StoredWeight]:
    length = int.from_bytes(data[:8], "little")
    if length > min(_MAX_TABLE_BYTES, len(data) - 8):
        raise ValueError(f"its table would have {length:,} bytes, and the file has {len(data):,}")
    table = json.loads(bytes(data[8 : 8 + length]).decode(), object_pairs_hook=_unique_keys)
    weights = {}
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        shape, element = _sizes(entry["shape"]), _SAFE.get(entry["dtype"])
        if element is None:
            raise ValueError(f"{name!r:.80} has elements of type {entry['dtype']!r:.40}")
        needed = math.prod(shape) * (2 if element == _BFLOAT16 else np.dtype(element).itemsize)
        if type(begin) is not int or type(end) is not int or not 0 <= begin <= end <= len(data) - 8 - length:
            raise ValueError(f"{name!r:.80} lies outside of the file")
        if end - begin != needed:
            raise ValueError(f"{name!r:.80} needs {needed:,} bytes and has {end - begin:,}")
        weights[name] = StoredWeight(name, shape, element, 8 + length + begin, needed)
    return weights


def _gguf(path: Path) -> Mapping[str, StoredWeight]:
    """Shapes are in the order of NumPy and PyTorch, the opposite of the file's."""
    try:
        from gguf import GGUFEndian, GGUFReader
    except ImportError:
        raise DocumentError(
            "GGUF files are read with the package 'gguf', which is not installed.",
            remedy="pip install 'gguf>=0.17'",
        ) from None

    class Reader(GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Array:
            """As there; but what the file does not have is an error and not a shorter array."""
            end = int(offset) + int(count) * np.dtype(dtype).itemsize
            if end > len(self.data):
                raise ValueError(f"it ends before byte {end:,}")
            return super()._get(offset, dtype, count, override_order)

    try:
        reader = Reader(path)
    except ValueError as error:
        unknown = re.search(r"(\d+)\)? is not a valid GGMLQuantizationType", str(error))
        if unknown is None:
            raise
        raise _not_read(path, f"a tensor of type {unknown[1]}") from None
    if reader.endianess != GGUFEndian.LITTLE:
        raise DocumentError(
            f"{str(path)!r:.200} is a GGUF file in big-endian order.",
            remedy="Convert it: python -m gguf.scripts.gguf_convert_endian FILE little",
        )
    weights = {}
    for tensor in reader.tensors:
        shape, word = _sizes([*map(int, reversed(tensor.shape))]), tensor.tensor_type.name
        if math.prod(shape) != tensor.n_elements:
            raise ValueError(f"{tensor.name!r:.80} has the sizes {list(shape)}")
        weights[tensor.name] = StoredWeight(
            tensor.name, shape, _PLAIN.get(word, word), int(tensor.data_offset), int(tensor.n_bytes)
        )
    return weights


def _dequantised(path: Path, weight: StoredWeight, raw: Any) -> Array:
    from gguf import GGMLQuantizationType, dequantize

    if not weight.length:
        return np.empty(weight.shape, np.float32)
    rows = np.frombuffer(raw, np.uint8).reshape(math.prod(weight.shape[:-1]), -1)
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused below
            floats: Array = dequantize(rows, GGMLQuantizationType[weight.element]).reshape(weight.shape)
    except RuntimeError:
        raise _not_read(path, f"{weight.name!r:.80}, of type {weight.element}") from None
    if not np.isfinite(floats).all():
        raise DocumentError(
            f"{weight.name!r:.80} in {str(path)!r:.200} has elements that are not finite, by its scales.",
            remedy="Quantise the model again.",
        )
    return floats


def _not_read(path: Path, what: str) -> DocumentError:
    return DocumentError(
        f"{str(path)!r:.200} has {what}, which is not read.",
        remedy=f"Convert it to one of {', '.join((*_PLAIN, *_dequantised_types()))}.",
    )


def _dequantised_types() -> Iterator[str]:
    """The quantised types that the package makes floats of."""
    from gguf import GGML_QUANT_SIZES, dequantize

    for kind, (_, size) in GGML_QUANT_SIZES.items():
        with contextlib.suppress(RuntimeError):
            if kind.name not in _PLAIN:
                dequantize(np.zeros((1, size), np.uint8), kind)
                yield kind.name


def _unique_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name!r:.80} is there twice")
        table[name] = value
    return table


def _npz(path: Path, data: memoryview) -> Mapping[str, StoredWeight]:
    weights: dict[str, StoredWeight] = {}
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            if name == entry.filename:
                continue  # NumPy leaves out what is not an array, too
            if name in weights:
                raise ValueError(f"{name!r:.80} is there twice")
            begin = -1
            if entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & 1:
                begin = _data_offset(data, entry)
                head = bytes(data[begin : begin + min(entry.file_size, _MAX_HEADER_BYTES)])
            elif entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                with archive.open(entry) as stream:
                    head = stream.read(_MAX_HEADER_BYTES)
            else:
                raise ValueError(f"{name!r:.80} is compressed as NumPy never does")
            shape, fortran, element, header = _header(head, name)
            length = math.prod(shape) * np.dtype(element).itemsize
            if length != entry.file_size - header:
                raise ValueError(f"{name!r:.80} needs {length:,} bytes and has {entry.file_size - header:,}")
            offset = -1 if begin < 0 else begin + header
            weights[name] = StoredWeight(name, shape, element, offset, length, fortran, entry.filename)
    return weights


def _data_offset(data: memoryview, entry: zipfile.ZipInfo) -> int:
    """Where the bytes of a file begin in an archive: behind a header of its own, whose length varies."""
    local = (
        bytes(data[entry.header_offset : entry.header_offset + _LOCAL_HEADER_BYTES])
        if entry.header_offset >= 0
        else b""
    )
    if len(local) < _LOCAL_HEADER_BYTES or local[:4] != _ZIP:
        raise ValueError(f"{entry.filename!r:.80} does not begin where the archive says")
    begin = entry.header_offset + _LOCAL_HEADER_BYTES + int.from_bytes(local[26:28], "little")
    begin += int.from_bytes(local[28:30], "little")
    if begin + entry.file_size > len(data):
        raise ValueError(f"{entry.filename!r:.80} is cut off")
    return begin


def _header(head: bytes, name: str) -> tuple[tuple[int, ...], bool, str, int]:
    """Shape, whether in Fortran's order, element type and length of an array's header."""
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"{name!r:.80} is of version {version} of NumPy's format")
    size = int.from_bytes(stream.read(2 if version == (1, 0) else 4), "little")
    if size > len(head) - stream.tell():
        raise ValueError(f"the header of {name!r:.80} has {size:,} bytes")
    fields = ast.literal_eval(stream.read(size).decode("latin-1" if version < (3, 0) else "utf-8"))
    element = fields.get("descr") if isinstance(fields, dict) else None
    if not isinstance(element, str) or not _ELEMENT.fullmatch(element):
        raise ValueError(f"{name!r:.80} is not an array of numbers, but of {str(element)[:40]}")
    return _sizes(fields["shape"]), fields["fortran_order"] is True, element, stream.tell()


def _unpacked(path: Path, weight: StoredWeight) -> bytes:
    """The bytes of a compressed tensor, and never more than its header says."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(weight.member) as stream:
            header = archive.getinfo(weight.member).file_size - weight.length
            stream.read(header)
            raw = stream.read(weight.length)
            if len(raw) != weight.length or stream.read(1):
                raise ValueError(f"{weight.name!r:.80} has another length than it says")
    except (ValueError, EOFError, *_BAD_ARCHIVE) as error:
        raise _damaged(path, str(error)) from None
    return raw
