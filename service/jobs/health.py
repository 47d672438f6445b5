"""`/healthz` and `/readyz` of a process that runs jobs and has no other routes, at a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from service.jobs.pool import WorkerPool

__all__ = ["Health"]

#: How long the database may be away until the process says that it must be restarted: a new one may find it.
LOST_SECONDS: Final = 300.0
#: How long it may be away until the process is not ready.
AWAY_SECONDS: Final = 10.0
#: How long a probe may take to ask.
ASK_SECONDS: Final = 5.0
HEAD_BYTES: Final = 8192


class Health:
    """Answers in the event loop that the jobs run in: where that stands still, a probe has no answer.

    `pool` is asked from the time that it is there; `heard` is called whenever the database has answered.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard = clock()
        self._server: asyncio.Server | None = None
        self.pool: WorkerPool | None = None

    def heard(self) -> None:
        """The database has answered."""
        self._heard = self._clock()

    def live(self) -> tuple[bool, str]:
        """Whether the process should go on, and its state in a word."""
        if self.pool is not None and not self.pool.supervised:
            return False, "unsupervised"
        return (True, "ok") if self._clock() - self._heard < LOST_SECONDS else (False, "database-lost")

    def ready(self) -> tuple[bool, str]:
        """Whether it runs jobs now, and if not why."""
        if self._clock() - self._heard >= AWAY_SECONDS:
            return False, "database-away"
        return (True, "ready") if self.pool is not None and self.pool.alive else (False, "starting")

    async def serve(self, host: str, port: int) -> int:
        """Begin to answer; the port. Raises OSError for one that is taken."""
        self._server = await asyncio.start_server(self._answer, host, port, limit=HEAD_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a connection; what is none is not answered."""
        with contextlib.suppress(OSError, ValueError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            async with asyncio.timeout(ASK_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _version = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                writer.write(self._response(method, path.partition("?")[0]))
                await writer.drain()
        writer.close()

    def _response(self, method: str, path: str) -> bytes:
        known = {"/healthz": self.live, "/readyz": self.ready}.get(path)
        if known is None or method not in ("GET", "HEAD"):
            status, message = HTTPStatus.NOT_FOUND, "not-found"
        else:
            good, message = known()
            status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps({"status": message}).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)
