"""The planning service as a child process on loopback, for as long as a `with` block runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from clients import Client

__all__ = ["LocalService", "ServiceFailed", "running_service"]

#: Seconds; a start takes about one, a busy machine needs a multiple of that.
START_SECONDS, STOP_SECONDS = 60.0, 10.0

#: Seconds between two looks at the child.
_PAUSE = 0.05


class ServiceFailed(Exception):
    """The service did not start; the message says why in one sentence."""


@contextmanager
def running_service() -> Iterator[str]:
    """Base address of a service that is ready to plan. Raises ServiceFailed."""
    with LocalService([sys.executable, "-m", "service.cli"]) as service:
        yield service.url


class LocalService:
    """`command` with ``serve`` arguments behind it; a session of its own keeps Ctrl-C from it."""

    def __init__(self, command: list[str], *, start_seconds: float = START_SECONDS) -> None:
        self._start_seconds = start_seconds
        self._url: str | None = None
        self._tail: deque[str] = deque(maxlen=20)
        self._process = subprocess.Popen(
            [*command, "serve", "--host", "127.0.0.1", "--port", "0", "--workers", "1", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            # It keeps nothing: no file is left behind.
            env={"ARENAPLAN_DATABASE_URL": "off", **os.environ},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        """Raises ServiceFailed before the service has said where it listens."""
        if self._url is None:
            raise ServiceFailed("The service is not listening.")
        return self._url

    def __enter__(self) -> Self:
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """Ask the service to finish, insist after `STOP_SECONDS`; its exit code. May be called twice."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._reader.join(STOP_SECONDS)

    def _wait(self) -> None:
        """Return when the service is ready to plan."""
        deadline = time.monotonic() + self._start_seconds
        while not (self._url and _is_ready(self._url)):
            if self._process.poll() is not None:
                self._reader.join(STOP_SECONDS)
                raise ServiceFailed(
                    f"The service ended with code {self._process.returncode}{self._last_words()}"
                )
            if time.monotonic() > deadline:
                raise ServiceFailed(
                    f"The service was not ready in {self._start_seconds:g} s{self._last_words()}"
                )
            time.sleep(_PAUSE)

    def _last_words(self) -> str:
        return f": {self._tail[-1]}" if self._tail else "."

    def _read(self) -> None:
        """Keep the pipe empty; learn the address from the event ``listening``."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._tail.append(line.strip())
                self._url = self._url or _listening(line)


def _listening(line: str) -> str | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if isinstance(event, dict) and event.get("event") == "listening":
        return str(event["url"])
    return None


def _is_ready(url: str) -> bool:
    with Client(url) as client:
        return client.ready()
