"""Files that training resumes from, bit for bit: .safetensors with the plan's digest and the iteration.

    8 bytes    length of the table, little-endian
    table      JSON: name -> dtype, shape, data_offsets; under ``__metadata__`` what is not a tensor
    data       what one iteration leaves to the next: weights, optimizer variables, running statistics, ...

The table begins with the SHA-256 of the whole file, in which 64 zeros stand for these digits. Files of
version 1 have a digest of the data alone; they are read with a warning.

Tensors have the names that the graph gives them, so other tools read the weights. Random numbers are
functions of the iteration, so its number is all that generators need. The graph has the constants.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from solver.errors import PlanError
from solver.graph.types import Array, TensorType

__all__ = ["Checkpoint", "read_checkpoint", "write_checkpoint"]

_FORMAT, _VERSION, _OLD_VERSION = "arenaplan.checkpoint", "2", "1"

#: How a table begins, in front of the digits of the digest, and what stands for these while it is computed.
_BEFORE_DIGEST, _NO_DIGEST = b'{"__metadata__":{"sha256":"', b"0" * 64

_ELEMENT_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}

#: Bytes of the table, at most: the format's own bound.
_MAX_TABLE_BYTES = 100_000_000

_ANOTHER = "Give a file that `Trainer.save` wrote with this plan."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state that training resumes from.

    `contents` has the raw bytes (``uint8[nbytes]``) of each value that one iteration leaves to the next, by
    label. `plan` is the digest of the plan, `iterations` the number of iterations of each entry point that
    counts its own, the first one that of a plan without entry points.
    """

    plan: str
    iterations: Mapping[str, int]
    contents: Mapping[str, Array]


def write_checkpoint(path: Path, checkpoint: Checkpoint, types: Mapping[str, TensorType]) -> None:
    """Write a checkpoint in place of the file at `path`, which stays as it is until the new one is on disk.

    Raises PlanError where the file cannot be written. Cost: the bytes are read twice, once for their SHA-256.
    """
    table: dict[str, object] = {
        "__metadata__": {
            "sha256": _NO_DIGEST.decode(),
            "format": _FORMAT,
            "version": _VERSION,
            "plan": checkpoint.plan,
            "iteration": str(next(iter(checkpoint.iterations.values()))),
            **({"iterations": json.dumps(checkpoint.iterations)} if len(checkpoint.iterations) > 1 else {}),
        }
    }
    position = 0
    for name, array in checkpoint.contents.items():
        type_ = types[name]
        table[name] = {
            "dtype": _ELEMENT_TYPES[type_.dtype.value],
            "shape": list(type_.shape),
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    length, data = len(text).to_bytes(8, "little"), [array.data for array in checkpoint.contents.values()]
    digest = hashlib.sha256(length + text)
    for piece in data:
        digest.update(piece)
    _replace(path, [length, text.replace(_NO_DIGEST, digest.hexdigest().encode(), 1), *data])


def _replace(path: Path, pieces: list[bytes | memoryview]) -> None:
    try:
        fresh = path.with_name(f".{path.name}.part")  # one name: what a killed process leaves is written over
        try:
            with fresh.open("wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        # The new name is on disk once its folder is, where a system lets folders be opened.
        with contextlib.suppress(OSError):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except (OSError, ValueError) as error:
        raise PlanError(
            f"The checkpoint {str(path)!r:.200} cannot be written: {_reason(error)}.",
            remedy="Name a file in a folder that exists, on a disk with room for it.",
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_checkpoint(
    path: Path, plan: str, types: Mapping[str, TensorType], counters: Collection[str]
) -> Checkpoint:
    """The checkpoint in a file that was written with the plan of this digest.

    The plan carries tensors of `types`, and counts the iterations of each of the `counters`.

    Raises PlanError for a file that cannot be read, is damaged, or belongs to another plan. Warns about a
    file of version 1. Cost: the bytes are read twice, once for their SHA-256.
    """
    try:
        data = np.fromfile(path, np.uint8)
    except (OSError, ValueError) as error:
        raise PlanError(
            f"The checkpoint {str(path)!r:.200} cannot be read: {_reason(error)}.",
            remedy=_ANOTHER,
        ) from None
    try:
        checkpoint, table = _parsed(path, data)
        if checkpoint.plan != plan:
            raise PlanError(
                f"The checkpoint {str(path)!r:.200} was written with another plan.",
                remedy="Train with that plan; or begin anew from its weights, which are in the file by name.",
            )
        _check_tensors(path, table, types)
        if len(counters) == 1:
            counts = dict(zip(counters, checkpoint.iterations.values(), strict=True))
            return replace(checkpoint, iterations=counts)
        if set(checkpoint.iterations) != set(counters):
            raise _damaged(path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(path) from None
    return checkpoint


def _damaged(path: Path) -> PlanError:
    return PlanError(
        f"{str(path)!r:.200} is damaged, or is no checkpoint of arenaplan.",
        remedy=_ANOTHER,
    )


_Table = Mapping[str, Mapping[str, object]]


def _parsed(path: Path, data: Array) -> tuple[Checkpoint, _Table]:
    begin = 8 + len(_BEFORE_DIGEST)
    is_whole = data[8:begin].tobytes() == _BEFORE_DIGEST
    if is_whole:
        digits = data[begin : begin + len(_NO_DIGEST)]
        digest = digits.tobytes().decode()
        digits[...] = _NO_DIGEST[0]
        if hashlib.sha256(data.data).hexdigest() != digest:
            raise _damaged(path)
    length = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or length > min(_MAX_TABLE_BYTES, len(data) - 8):
        raise _damaged(path)
    table = json.loads(data[8 : 8 + length].tobytes())
    metadata, body = table.pop("__metadata__"), data[8 + length :]
    version = _VERSION if is_whole else _OLD_VERSION
    if (metadata["format"], metadata["version"]) != (_FORMAT, version):
        raise _damaged(path)
    contents: dict[str, Array] = {}
    position = 0
    for name, entry in table.items():
        begin, end = entry["data_offsets"]
        if begin != position or not begin <= end <= len(body):
            raise _damaged(path)
        contents[name] = body[begin:end]
        position = end
    if position != len(body):
        raise _damaged(path)
    if not is_whole:
        if hashlib.sha256(body.data).hexdigest() != metadata["sha256"]:
            raise _damaged(path)
        warnings.warn(
            f"The checkpoint {str(path)!r:.200} is of an earlier version, whose digest covers the tensors but"
            " not the number of the iteration. Save it again.",
            stacklevel=2,
        )
    counts = json.loads(metadata["iterations"]) if "iterations" in metadata else {"": metadata["iteration"]}
    return Checkpoint(metadata["plan"], {name: int(n) for name, n in counts.items()}, contents), table


def _check_tensors(path: Path, table: _Table, types: Mapping[str, TensorType]) -> None:
    for name in (*types, *table):
        type_, entry = types.get(name), table.get(name)
        if entry is None:
            what = f"lacks {name!r:.80}"
        elif type_ is None:
            what = f"has {name!r:.80}, which the plan does not carry"
        elif (entry["dtype"], entry["shape"]) != (_ELEMENT_TYPES[type_.dtype.value], list(type_.shape)):
            what = f"has {name!r:.80} as {entry['dtype']} {entry['shape']}, and the plan carries {type_}"
        else:
            continue
        raise PlanError(f"The checkpoint {str(path)!r:.200} {what}.", remedy=_ANOTHER)
