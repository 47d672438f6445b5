"""Messages between the service and a worker, over the worker's standard input and output.

    | head length, 4 bytes | body length, 8 bytes | head: JSON object | body: raw bytes |

The head carries the kind of the message and small facts, the body a document as it is.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

__all__ = ["Frame", "encode_head", "read_frame", "read_frame_from_file"]

_LENGTHS: Final = struct.Struct(">IQ")


@dataclass(frozen=True, slots=True)
class Frame:
    """Kinds to a worker: the name of a task, ``go``, ``stop``. Kinds from a worker: ``ready``,
    ``offer``, ``progress``, ``fallback``, ``result``, ``problem`` of a task; ``log`` and ``warmed``
    at any time."""

    kind: str
    head: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def encode(self) -> bytes:
        """Everything but the body, which is sent after it without a copy."""
        return encode_head(self.kind, self.head, len(self.body))


def encode_head(kind: str, head: Mapping[str, Any], size: int) -> bytes:
    """A frame up to its body, which has `size` bytes."""
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
