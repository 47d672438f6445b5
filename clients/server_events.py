"""Server-sent events, read from bytes in pieces of any size."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EventReader", "ServerEvent"]


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its kind, its data, and the id to come back with."""

    kind: str
    data: str
    id: str


class EventReader:
    """Reads a stream as the HTML standard says (section 9.2): lines, an empty one behind each event."""

    def __init__(self) -> None:
        self._rest = b""
        self._kind = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that end in `piece`. Comments, and fields of other names, say nothing."""
        # A carriage return at the end may be the first half of a line end, so it waits for what follows.
        text = self._rest + piece
        held = b"\r" if text.endswith(b"\r") else b""
        text = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        found = []
        for line in lines:
            if not line:
                if self._data:
                    found.append(ServerEvent(self._kind or "message", "\n".join(self._data), self._id))
                self._kind, self._data = "", []
                continue
            name, _, value = line.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._kind = value
            elif name == "data":
                self._data.append(value)
            elif name == "id" and "\0" not in value:
                self._id = value
        return found
