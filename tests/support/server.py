"""The service as a process of its own, as a user starts it."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

__all__ = ["NO_EVENT", "PATIENCE", "ROOT", "Server", "die_with_parent", "is_running", "running_server"]

ROOT = Path(__file__).resolve().parents[2]

#: Far beyond what anything takes on a loaded machine; only a failing test waits for it.
PATIENCE = 120.0

_LIBC = ctypes.CDLL(None)

#: Stands in the log for a line that is not an event, such as a traceback.
NO_EVENT = "no event"


class Server:
    """A running service; `log` has every event so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self._fresh: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.url = str(self.wait_for(lambda event: event["event"] == "listening")["url"])
        except BaseException:
            self.kill()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            event = _event(line)
            self.log.append(event)
            self._fresh.put(event)
        self._fresh.put({"event": "end of log"})

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event, of those not waited for before, that is wanted."""
        while True:
            try:
                event = self._fresh.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError(f"no such event within {PATIENCE:g} s; the log: {self.log}") from None
            if wanted(event):
                return event
            assert event["event"] != "end of log", f"the service ended; the log: {self.log}"

    def request_event(self, request_id: str) -> dict[str, Any]:
        """The access line of one request."""
        return self.wait_for(lambda e: e["event"] == "request" and e.get("request_id") == request_id)

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, **more)

    def worker_pids(self) -> list[int]:
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(
            encoding="utf-8"
        )
        return [int(pid) for pid in listing.split()]

    def kill(self) -> None:
        """End the service at once; returns when its workers have gone too."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)

    def stop(self) -> int:
        """SIGTERM, then the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


def die_with_parent() -> None:
    """In a child before it becomes the command: a test run that is killed leaves no process (Linux).

    Interrupts arrive as they do at a terminal, also where a shell has started the tests in the background.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform == "linux":
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie that its parent has yet to collect."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _event(line: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return {"event": NO_EVENT, "line": line}
    return event


@contextmanager
def running_server(*arguments: str, **settings: object) -> Iterator[Server]:
    """A server on a free port of loopback; `settings` become environment variables.

    Two of them are none: the server may open `open_files` files, and its `clock` is ahead of ours by the
    seconds in that file. There is no load balancer to wait for when it stops, and its database is gone with
    it, unless `settings` say so.
    """
    open_files, clock = settings.pop("open_files", None), settings.pop("clock", None)
    with tempfile.TemporaryDirectory(prefix="arenaplan-state-") as state:
        settings = {"drain_seconds": 0, "database_url": f"sqlite:///{state}/jobs.db", **settings}
        program = ["service.cli"] if clock is None else ["tests.support.clock", str(clock)]
        with _running((*program, "serve", "--port", "0", *arguments), settings, open_files) as server:
            yield server


@contextmanager
def _running(arguments: tuple[str, ...], settings: dict[str, object], open_files: object) -> Iterator[Server]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARENAPLAN_")}
    environment |= {f"ARENAPLAN_{name.upper()}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", *arguments]

    def prepare() -> None:
        die_with_parent()
        if isinstance(open_files, int):
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=prepare,
    ) as process:
        server = Server(process)
        try:
            yield server
        finally:
            server.kill()
