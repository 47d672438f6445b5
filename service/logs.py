"""Structured logs: one event a line, each with the id of the request it belongs to.

A thread of its own writes the lines. A reader that is slow, or has stopped, costs lines and never a request.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import logging.config
import os
import select
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TextIO

import structlog
from pydantic_core import PydanticSerializationError, to_json

__all__ = ["LogWriter", "configure_logging", "log_line"]

#: Characters that may wait for the reader of the log; lines beyond are dropped.
ROOM: Final = 1 << 22
#: Pause between two writes, in which lines gather: a write for each of them would cost more than they do.
PAUSE_SECONDS: Final = 0.02
#: How long the end of the process waits for the reader.
CLOSE_SECONDS: Final = 2.0


_SHARED: tuple[Any, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


class LogWriter:
    """A stream that never blocks: a thread writes to `stream` what was written here.

    At most `room` characters wait. Lines beyond are counted in `dropped`, as are those that the stream does
    not take, and once there is room again a line tells of them: `gap_line` makes it of their number.
    """

    def __init__(self, stream: TextIO, gap_line: Callable[[int], str], *, room: int = ROOM) -> None:
        self._stream = stream
        self._gap_line = gap_line
        self._room = room
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._size = 0
        self._untold = 0
        self._wake = threading.Event()
        self._empty = threading.Event()
        self._empty.set()
        self.dropped = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> int:
        with self._lock:
            if self._size + len(text) > self._room:
                self.dropped += 1
                self._untold += 1
                return len(text)
            self._lines.append(text)
            self._size += len(text)
            self._empty.clear()
        if not self._wake.is_set():
            self._wake.set()
        return len(text)

    def flush(self) -> None:
        """Returns at once: see `drain`."""

    def drain(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until all lines have reached the stream; False if that takes more than `seconds`."""
        return self._empty.wait(seconds)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                lines, self._lines = self._lines, []
                untold, self._untold = self._untold, 0
            lost = 0
            try:
                self._put("".join(lines) + (self._gap_line(untold) if untold else ""))
            except (OSError, ValueError):  # the reader has gone, or the stream was closed
                lost = len(lines)
            with self._lock:
                self._size -= sum(map(len, lines))
                self.dropped += lost
                if self._untold and not lost:
                    self._wake.set()
                elif not self._lines:
                    self._empty.set()
                self._untold += lost
            time.sleep(PAUSE_SECONDS)

    def _put(self, text: str) -> None:
        """Past Python's own buffer where that is possible: its lock would be held while the reader sleeps."""
        try:
            number = self._stream.fileno()
        except (OSError, AttributeError):
            self._stream.write(text)
            self._stream.flush()
            return
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(number, rest) :]
            except BlockingIOError:
                select.select([], [number], [])


def configure_logging(level: str, style: str | None) -> LogWriter:
    """Send the service's events and those of its libraries to standard error, in one form.

    `style` is json or text; None stands for text where standard error is a terminal, else for json.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    style = style or ("text" if sys.stderr.isatty() else "json")
    renderer = _renderer(style)
    gap = "log lines dropped"
    writer = LogWriter(sys.stderr, lambda count: log_line(style, gap, "warning", count=count) + "\n")
    atexit.register(writer.drain)
    structlog.configure(
        processors=[*_SHARED, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(writer),  # type: ignore[arg-type]  # only write and flush
        cache_logger_on_first_use=False,
    )
    logging.config.dictConfig(_library_logging(threshold, renderer, writer))
    if style == "text":  # of the server's own lines, those that say what this service says better
        logging.getLogger("uvicorn.error").setLevel(max(threshold, logging.WARNING))
    return writer


def log_line(style: str | None, event: str, level: str = "info", **facts: Any) -> str:
    """A line as the log would have it now, to be written elsewhere; `style` as for `configure_logging`."""
    style = style or ("text" if sys.stderr.isatty() else "json")
    now = datetime.now(UTC).isoformat()
    return str(_renderer(style)(None, level, {"event": event, **facts, "level": level, "timestamp": now}))


def _renderer(style: str) -> Any:
    return _json if style == "json" else _text


#: Facts of an event that a person at a terminal has no use for; the JSON has them.
_FOR_MACHINES: Final = frozenset(
    {"level", "timestamp", "event", "exception", "client", "digest", "request_id", "trace_id", "pid"}
)


def _text(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """``12:34:56 POST /v1/plan: 200, 52.6 ms, arena_bytes 11584``: local time, and the event for people."""
    facts = {name: value for name, value in event.items() if name not in _FOR_MACHINES}
    what = str(event.get("event", ""))
    if what == "request":
        status, milliseconds = facts.pop("status", None), facts.pop("milliseconds", 0.0)
        what = f"{facts.pop('method', '')} {facts.pop('path', '')}: {status}, {milliseconds} ms"
        if isinstance(status, int) and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            facts["request_id"] = event.get("request_id")
    elif what == "listening":
        what = f"listening on {facts.pop('url', '')}; try {facts.pop('docs', '')}. Ctrl-C stops it."
    detail = facts.pop("detail", None)
    named = "".join(f", {name} {value}" for name, value in facts.items() if value is not None)
    level = event.get("level", "info")
    moment = datetime.fromisoformat(str(event["timestamp"])).astimezone()
    line = f"{moment:%H:%M:%S} {'' if level == 'info' else f'{level}: '}{what}{named}"
    trace = str(event.get("exception", "")).splitlines()
    return "\n".join(map(_printable, [line + (f": {detail}" if detail else ""), *trace]))


def _printable(line: str) -> str:
    """Control characters of callers as escapes: they must not reach the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def _json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """One line of ASCII, as `structlog.processors.JSONRenderer` makes it in six times the time.

    Events with other characters go to the standard encoder, which escapes them: control characters of callers
    must not reach a terminal that shows the log.
    """
    with contextlib.suppress(PydanticSerializationError):
        line = to_json(event, fallback=repr)
        if line.isascii():
            return line.decode()
    return json.dumps(event, default=repr)


def _library_logging(threshold: int, renderer: Any, writer: LogWriter) -> dict[str, Any]:
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "foreign_pre_chain": _SHARED,
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"events": formatter},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "events", "stream": writer}},
        "root": {"handlers": ["stderr"], "level": threshold},
        # One access line a request is enough, and the middleware writes a better one.
        "loggers": {"uvicorn.access": {"handlers": [], "propagate": False}},
    }
