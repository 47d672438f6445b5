"""How many bytes of request bodies this process holds, over all requests at the same time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from service.jobs.frames import Spool
from service.problems import Problem

__all__ = ["Intake", "IntakeBody"]

#: So much of each body stays in memory without being counted: connections are bounded, too.
FREE_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Intake:
    """At most `memory` bytes of bodies in memory, and `disk` bytes of what does not fit there in files."""

    memory: int
    disk: int
    in_memory: int = field(default=0, init=False)
    on_disk: int = field(default=0, init=False)

    def expect(self, size: int) -> None:
        """Raises `Problem` ``too-many-bytes`` where a body of `size` bytes has no room now."""
        free = max(self.memory - self.in_memory, self.disk - self.on_disk)
        if size > max(free, FREE_BYTES):
            raise _no_room()


class IntakeBody:
    """One body as it arrives: in memory while there is room for it, all of it in a file from then on."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._chunks: list[bytes] = []
        self._spool: Spool | None = None
        self._counted = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, chunk: bytes) -> None:
        """Raises `Problem` ``too-many-bytes`` where there is no room, also on disk."""
        self._size += len(chunk)
        if self._spool is None:
            self._chunks.append(chunk)
            if self._size > FREE_BYTES:
                self._count(self._size - self._counted)
        else:
            self._write(chunk)

    def _count(self, more: int) -> None:
        if self._intake.in_memory + more <= self._intake.memory:
            self._intake.in_memory += more
            self._counted += more
            return
        try:
            self._spool = Spool()
        except OSError as error:
            raise _no_room() from error
        self._intake.in_memory -= self._counted
        self._counted = 0
        chunks, self._chunks = self._chunks, []
        for chunk in chunks:
            self._write(chunk)

    def _write(self, chunk: bytes) -> None:
        assert self._spool is not None
        if self._intake.on_disk + len(chunk) > self._intake.disk:
            raise _no_room()
        self._intake.on_disk += len(chunk)
        self._counted += len(chunk)
        try:
            self._spool.append(chunk)
        except OSError as error:
            raise _no_room() from error

    def whole(self) -> bytes | Spool:
        """The body, once it is complete; it counts until `close`."""
        if self._spool is not None:
            return self._spool
        body = b"".join(self._chunks)
        self._chunks = []
        return body

    def close(self) -> None:
        """Give its room back."""
        self._chunks = []
        if self._spool is None:
            self._intake.in_memory -= self._counted
        else:
            self._intake.on_disk -= self._counted
            self._spool.close()
        self._counted = 0


def _no_room() -> Problem:
    return Problem(
        "too-many-bytes",
        "There is no room for this body now, beside those of other requests.",
        remedy="Send it again in a moment.",
        headers={"Retry-After": "2", "Connection": "close"},
    )
