"""Request bodies that wait on disk instead of in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from typing import Final

__all__ = ["Spool", "pieces"]

_PIECE_BYTES: Final = 1 << 18


class Spool:
    """A body in a file without a name, which is gone with this object or with the process.

    Raises OSError where there is no room or no descriptor left.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `close` ends it
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
