"""Messages between the service and a worker, over the worker's standard input and output.

    | head length, 4 bytes | body length, 8 bytes | head: JSON object | body: raw bytes |

The head carries the kind of the message and small facts, the body a document as it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from typing import Any, BinaryIO, Final

__all__ = [
    "Frame",
    "Spool",
    "encode_head",
    "pieces",
    "read_frame",
    "read_frame_from_file",
]

_LENGTHS: Final = struct.Struct(">IQ")


@dataclass(frozen=True, slots=True)
class Frame:
    """Kinds to a worker: the name of a task, ``go``, ``stop``. Kinds from a worker: ``ready``,
    ``offer``, ``progress``, ``fallback``, ``result``, ``problem`` of a task; ``log`` and ``warmed``
    at any time."""

    kind: str
    head: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


def encode_head(kind: str, head: Mapping[str, Any], size: int) -> bytes:
    """A frame up to its body of `size` bytes, which is sent after it without a copy."""
    text = json.dumps({"kind": kind, **head}).encode()
    return _LENGTHS.pack(len(text), size) + text


def _frame(head: bytes, body: bytes) -> Frame:
    facts = json.loads(head)
    return Frame(facts.pop("kind"), facts, body)


async def read_frame(stream: asyncio.StreamReader) -> Frame | None:
    """The next frame; None once the other side has closed, between frames or inside one."""
    try:
        head, body = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
        return _frame(await stream.readexactly(head), await stream.readexactly(body))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def read_frame_from_file(stream: BinaryIO) -> Frame | None:
    """As `read_frame`, blocking."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head_length, body_length = _LENGTHS.unpack(lengths)
    head, body = stream.read(head_length), stream.read(body_length)
    return _frame(head, body) if len(head) == head_length and len(body) == body_length else None


_PIECE_BYTES: Final = 1 << 18


class Spool:
    """A body in a file without a name, which is gone with this object or with the process.

    Raises OSError if the disk is full or the process may open no more files.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as this object, whose `close` closes it
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size += len(data)

    def pieces(self) -> Iterator[bytes]:
        """The body in order, at most 256 KiB at a time."""
        for start in range(0, self._size, _PIECE_BYTES):
            yield os.pread(self._file.fileno(), min(_PIECE_BYTES, self._size - start), start)

    def view(self) -> mmap:
        """All of it, to look through; to be closed. It must not be empty."""
        return mmap(self._file.fileno(), self._size, access=ACCESS_READ)

    def close(self) -> None:
        self._file.close()


def pieces(body: bytes | Spool) -> Iterator[bytes | memoryview]:
    """A body in order, so that no second copy of all of it is ever made."""
    if isinstance(body, Spool):
        yield from body.pieces()
        return
    for start in range(0, len(body), _PIECE_BYTES):
        yield memoryview(body)[start : start + _PIECE_BYTES]
