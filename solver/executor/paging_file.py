"""A file that takes the place of slower memory: what is paged out really leaves the process.

    space     | arena of the fast memory |      arrays
    file      | flash  [w@..) [x@flash ..)      positions; pread and pwrite, whole values at a time

Bytes are counted where they pass. The file is new, and has its full size from the beginning, so that a full
disk shows before training begins. It has no name, or loses it as soon as it is open: the bytes go with the
process, however that ends. Where a system does not let the name of an open file go, that is done at the end.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from solver.errors import PlanError
from solver.graph.types import Array

__all__ = ["PagingFile"]

_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)

#: Bytes that are written at a time where a file is filled.
_BLOCK_BYTES = 1 << 20


class PagingFile:
    """`size` bytes in a new file where `path` is, all of the value `fill`. `moved_in` and `moved_out` count
    bytes.

    Raises PlanError where the file exists, cannot be made, or the disk cannot hold it; and where it
    cannot be read or written later. Close it, or use it in a ``with``: that gives its bytes back.
    """

    def __init__(self, path: Path, size: int, fill: int) -> None:
        self.path = path
        self.moved_in = self.moved_out = 0
        self._named = False
        try:
            self._file = self._unnamed()
            if self._file < 0:
                self._file = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
                self._named = True
                self._take_name_back()
        except FileExistsError:
            raise PlanError(
                f"The paging file {str(path)!r} exists.",
                remedy="Name a file that does not exist.",
            ) from None
        except OSError as error:
            raise self._failed("made", error) from None
        try:
            block = bytes([fill]) * min(size, _BLOCK_BYTES)
            for start in range(0, size, _BLOCK_BYTES):
                self._write(memoryview(block)[: size - start], start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close and remove the file. Twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._take_name_back()

    def _unnamed(self) -> int:
        """A file without a name, where the path is; -1 where there are no such files, or none can be made."""
        if not hasattr(os, "O_TMPFILE") or os.path.lexists(self.path):
            return -1
        try:
            return os.open(self.path.parent, _FLAGS | os.O_TMPFILE | os.O_EXCL, 0o600)
        except OSError:
            return -1

    def _take_name_back(self) -> None:
        if self._named:
            with contextlib.suppress(OSError):
                self.path.unlink()
                self._named = False

    def __enter__(self) -> PagingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, target: Array, position: int, *, count: bool = True) -> None:
        """Fill ``uint8[n]`` from the bytes at a position."""
        left = target.data
        while len(left):
            try:
                got = os.preadv(self._file, [left], position)
            except OSError as error:
                raise self._failed("read", error) from None
            if not got:
                raise self._failed("read", OSError(errno.EIO, "it ends too early"))
            left, position = left[got:], position + got
        if count:
            self.moved_in += len(target)

    def write(self, source: Array, position: int, *, count: bool = True) -> None:
        """Put ``uint8[n]`` at a position."""
        self._write(source.data, position)
        if count:
            self.moved_out += len(source)

    def _write(self, left: memoryview, position: int) -> None:
        while len(left):
            try:
                done = os.pwrite(self._file, left, position)
            except OSError as error:
                raise self._failed("written", error) from None
            left, position = left[done:], position + done

    def _failed(self, what: str, error: OSError) -> PlanError:
        remedy = "Name a file on another disk."
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "Make room, or name a file on another disk."
        elif what == "made":
            remedy = "Name a file in a folder that exists and that you may write to."
        return PlanError(
            f"The paging file {str(self.path)!r} cannot be {what}: {error.strerror or error}.", remedy=remedy
        )
