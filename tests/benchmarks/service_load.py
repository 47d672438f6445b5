"""A load generator with sockets: ``python -m tests.benchmarks.service_load PORT FILE CONNECTIONS SECONDS``.

FILE holds one HTTP request, head and body. Each connection sends it, reads the answer by its Content-Length,
and sends it again. Prints JSON: answers by status, seconds, and latencies as quantiles in milliseconds.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

__all__ = ["drive"]

_PIECE: Final = 1 << 18


class _Connection:
    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._request = memoryview(request)
        self._left = self._request
        self._answer = bytearray()
        self._wanted = 0
        self.began = 0.0

    def begin(self) -> None:
        self.began = time.perf_counter()
        self._left = self._request
        self.write()

    def write(self) -> bool:
        """Whether all of the request has been sent."""
        try:
            while self._left:
                self._left = self._left[self.socket.send(self._left[:_PIECE]) :]
        except BlockingIOError:
            return False
        return True

    def read(self) -> int | None:
        """The status, once the whole answer is there."""
        piece = self.socket.recv(_PIECE)
        if not piece:
            raise ConnectionError("the service has closed the connection")
        self._answer += piece
        if not self._wanted:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return None
            head = bytes(self._answer[:end]).lower()
            length = next(
                (
                    line.partition(b":")[2]
                    for line in head.split(b"\r\n")
                    if line.startswith(b"content-length:")
                ),
                b"0",
            )
            self._wanted = end + 4 + int(length)
        if len(self._answer) < self._wanted:
            return None
        status = int(self._answer[9:12])
        self._answer, self._wanted = bytearray(), 0
        return status


def drive(port: int, request: bytes, connections: int, seconds: float) -> dict[str, Any]:
    """Keep so many connections busy for so long."""
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        every = [_Connection(port, request) for _ in range(connections)]
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        began = time.perf_counter()
        for one in every:
            one.begin()
            selector.register(one.socket, both, one)
        until = began + seconds
        while time.perf_counter() < until:
            for key, events in selector.select(1):
                connection: _Connection = key.data
                if events & selectors.EVENT_WRITE and connection.write():
                    selector.modify(connection.socket, selectors.EVENT_READ, connection)
                if events & selectors.EVENT_READ and (status := connection.read()) is not None:
                    statuses[status] += 1
                    latencies.append(time.perf_counter() - connection.began)
                    connection.begin()
                    if not connection.write():
                        selector.modify(connection.socket, both, connection)
        took = time.perf_counter() - began
        for one in every:
            one.socket.close()
    latencies.sort()
    quantiles = {
        f"p{share}": round(latencies[min(len(latencies) - 1, len(latencies) * share // 100)] * 1000, 3)
        for share in (50, 90, 99)
        if latencies
    }
    return {"statuses": statuses, "seconds": took, "milliseconds": quantiles}


if __name__ == "__main__":
    _port, _file, _connections, _seconds = sys.argv[1:]
    print(json.dumps(drive(int(_port), Path(_file).read_bytes(), int(_connections), float(_seconds))))
