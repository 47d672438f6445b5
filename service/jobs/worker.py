"""A worker process: ``python -m service.jobs.worker MODULE`` serves the tasks of one module.

It takes one task at a time. A reader thread keeps the pipe moving while a task computes, and ends
the process at once when the service has gone.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, BinaryIO, Final

from service.jobs.frames import Frame, read_frame_from_file
from service.problems import Problem

__all__ = ["Channel", "Task", "main"]

#: A worker that has heard nothing for so long may spend time on warming up.
IDLE_SECONDS: Final = 0.05


class Channel:
    """The worker's side of the conversation about one task."""

    def __init__(self, output: BinaryIO, inbox: queue.SimpleQueue[Frame]) -> None:
        self._output = output
        self._inbox = inbox

    def send(self, kind: str, head: Mapping[str, Any], body: bytes = b"") -> None:
        frame = Frame(kind, head, body)
        self._output.write(frame.encode())
        self._output.write(body)
        self._output.flush()

    def offer(self, key: str) -> bool:
        """Tell the service which request this is; false when it has the answer already."""
        self.send("offer", {"key": key})
        return self._inbox.get().kind == "go"


Task = Callable[[Mapping[str, Any], bytes, Channel], None]


def _perform(tasks: Mapping[str, Task], frame: Frame, channel: Channel) -> None:
    try:
        tasks[frame.kind](frame.head, frame.body, channel)
    except BrokenPipeError:
        raise
    except Problem as problem:
        channel.send("problem", problem.facts())
    except Exception:  # noqa: BLE001 - a bug must cost one request, never the worker
        bug = Problem("internal-error", "The planner failed on this request; that is a bug in it.")
        channel.send("problem", {**bug.facts(), "traceback": traceback.format_exc()})


def _private_output() -> BinaryIO:
    """The pipe to the service; whatever prints to standard output goes to standard error instead."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    os.dup2(2, 1)
    return pipe


def _listen(source: BinaryIO, inbox: queue.SimpleQueue[Frame]) -> None:
    while frame := read_frame_from_file(source):
        inbox.put(frame)
    os._exit(0)


def main(module: str) -> None:
    """Serve until the service closes the pipe. Ctrl-C and SIGTERM are the service's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    output, inbox = _private_output(), queue.SimpleQueue[Frame]()
    tasks = importlib.import_module(module)
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        _serve(tasks, Channel(output, inbox), inbox)
    os._exit(0)  # the service has gone, and a thread is still blocked in a read


def _serve(tasks: ModuleType, channel: Channel, inbox: queue.SimpleQueue[Frame]) -> None:
    channel.send("ready", {"pid": os.getpid()})
    try:
        _perform(tasks.TASKS, inbox.get(timeout=IDLE_SECONDS), channel)
    except queue.Empty:
        tasks.warm()
    while True:
        _perform(tasks.TASKS, inbox.get(), channel)


if __name__ == "__main__":
    main(sys.argv[1])
