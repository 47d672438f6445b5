"""A worker process: ``python -m service.jobs.worker MODULE PARENT [confined]`` serves a module's tasks.

It takes one task at a time. A reader thread keeps the pipe moving while a task computes, and ends
the process at once when the service has gone. On Linux the kernel ends it as well, should the reader
not come to it: code that holds the interpreter's lock, or a module that takes long to import. It
is confined before it reads anything (`service.jobs.confinement`), where that is asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, BinaryIO, Final

from service.jobs.confinement import be_killed_first, confine, limited
from service.jobs.frames import Frame, encode_head, read_frame_from_file
from service.jobs.query import notes_headers
from service.problems import Problem, out_of_memory

__all__ = ["Channel", "Task", "main"]

#: Seconds without a task after which a worker spends time on warming up.
IDLE_SECONDS: Final = 0.05

_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


class Channel:
    """The worker's side of the protocol. Any thread may send: a search logs from its own."""

    def __init__(self, output: BinaryIO, inbox: queue.SimpleQueue[Frame]) -> None:
        self._output = output
        self._inbox = inbox
        self._lock = threading.Lock()
        self._began: float | None = None
        self._stages: list[tuple[str, float, float]] = []
        self.context: Mapping[str, Any] = {}
        self.notes = ""

    def begin(self, head: Mapping[str, Any]) -> None:
        """A task begins. `progress` in its head says whether somebody follows it; `context` is what the
        service's own log lines about it carry. `notes` are those on the model that the task imports, as
        `notes_text` writes them: every answer carries them.
        """
        self._began = time.monotonic() if head.get("progress") else None
        self._stages = []
        self.notes = ""
        self.context = head.get("context", {})

    def stage(self, name: str, seconds: float) -> None:
        """A stage of the task took `seconds`; the service is told with the answer."""
        self._stages.append((name, time.time() - seconds, seconds))

    def progress(self, stage: str, **facts: Any) -> None:
        """Tell who follows the task how far it is."""
        if self._began is not None:
            seconds = round(time.monotonic() - self._began, 3)
            self.send("progress", {"stage": stage, **facts, "seconds": seconds})

    def send(self, kind: str, head: Mapping[str, Any], body: bytes = b"") -> None:
        if kind in ("result", "problem"):
            head = {**head, "stages": self._stages}
        if self.notes and kind in ("result", "fallback"):
            head = {**head, "notes": self.notes}
        with self._lock:
            self._output.write(encode_head(kind, head, len(body)))
            self._output.write(body)
            self._output.flush()

    def offer(self, key: str) -> bool:
        """Tell the service which request this is; false when it has the answer already."""
        self.send("offer", {"key": key})
        return self._inbox.get().kind == "go"


Task = Callable[[Mapping[str, Any], bytes, Channel], None]


class _Forward(logging.Handler):
    """Sends what libraries log in a worker to the service, which logs it in its own form."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(BrokenPipeError):
            facts = {"level": record.levelname.lower(), "event": record.getMessage(), "logger": record.name}
            facts |= self._channel.context
            if record.exc_info:
                facts["exception"] = logging.Formatter().formatException(record.exc_info)
            self._channel.send("log", facts)


def _perform(tasks: Mapping[str, Task], frame: Frame, channel: Channel) -> None:
    channel.begin(frame.head)
    try:
        with limited(frame.head):
            tasks[frame.kind](frame.head, frame.body, channel)
    except BrokenPipeError:
        raise
    except Problem as problem:
        problem.headers |= notes_headers({"notes": channel.notes})
        channel.send("problem", problem.facts())
    except MemoryError:
        # What was torn down half way may still hold memory: a fresh process takes this one's place.
        channel.send("problem", {**out_of_memory().facts(), "last": True})
    except Exception:  # noqa: BLE001 - a bug must cost one request, never the worker
        bug = Problem("internal-error", "The planner failed on this request; that is a bug in it.")
        channel.send("problem", {**bug.facts(), "traceback": traceback.format_exc()})


def _private_output() -> BinaryIO:
    """The pipe to the service; what prints to standard output goes to standard error instead."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    os.dup2(2, 1)
    return pipe


def _listen(source: BinaryIO, inbox: queue.SimpleQueue[Frame]) -> None:
    while frame := read_frame_from_file(source):
        inbox.put(frame)
    os._exit(0)


def _end_with(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` dies. Without Linux the pipe alone has to tell."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(0)


def main(module: str, parent: int, *, confined: bool) -> None:
    """Serve until the service closes the pipe. Ctrl-C and SIGTERM are the service's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_with(parent)
    be_killed_first()
    confinement = confine(module) if confined else {}  # before there are threads
    output, inbox = _private_output(), queue.SimpleQueue[Frame]()
    channel = Channel(output, inbox)
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()
    logging.captureWarnings(True)
    logging.basicConfig(handlers=[_Forward(channel)], level=logging.INFO)
    with contextlib.suppress(BrokenPipeError):
        _serve(_imported(module, channel), channel, inbox, confinement)
    os._exit(0)  # the service has gone, and a thread is still blocked in a read


def _imported(module: str, channel: Channel) -> ModuleType:
    """The module; ends the process with code 1, and an event in the log, where it cannot be imported."""
    try:
        return importlib.import_module(module)
    except Exception:  # noqa: BLE001 - modules fail in ways of their own
        facts = {"event": f"{module} cannot be imported", "exception": traceback.format_exc()}
        channel.send("log", {"level": "error", "logger": __name__, **facts})
        os._exit(1)


def _serve(
    tasks: ModuleType, channel: Channel, inbox: queue.SimpleQueue[Frame], confinement: Mapping[str, str]
) -> None:
    channel.send("ready", {"pid": os.getpid(), "confinement": confinement})
    warm = False
    while True:
        try:
            frame = inbox.get(timeout=None if warm else IDLE_SECONDS)
        except queue.Empty:
            warm = _warm_up(tasks, channel)
        else:
            _perform(tasks.TASKS, frame, channel)


def _warm_up(tasks: ModuleType, channel: Channel) -> bool:
    """Reports what of the optional code loads here; returns whether that is known by now.

    A failure costs the time that was to be saved.
    """
    try:
        report = tasks.warm()
        if report is None:
            return False
        channel.send("warmed", report)
    except BrokenPipeError:
        raise
    except Exception:
        logging.getLogger(__name__).exception("warming up failed")
        channel.send("warmed", {})
    return True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), confined="confined" in sys.argv[3:])
