"""Structured logs: one event a line, each with the id of the request it belongs to."""

from __future__ import annotations

import contextlib
import logging
import logging.config
import sys
from typing import Any, TextIO

import structlog

__all__ = ["configure_logging"]

_SHARED: tuple[Any, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


def configure_logging(level: str, style: str) -> None:
    """Send the service's events and those of its libraries to standard error, in one form."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_SHARED, _renderer(style)],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(_Unfailing(sys.stderr)),  # type: ignore[arg-type]  # only write and flush
        cache_logger_on_first_use=False,
    )
    logging.config.dictConfig(_library_logging(threshold, style))


class _Unfailing:
    """A stream whose reader may have gone: events are lost then, and what reports them goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _renderer(style: str) -> Any:
    if style == "json":
        return structlog.processors.JSONRenderer(sort_keys=True)
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())


def _library_logging(threshold: int, style: str) -> dict[str, Any]:
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "foreign_pre_chain": _SHARED,
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(style)],
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"events": formatter},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "events"}},
        "root": {"handlers": ["stderr"], "level": threshold},
        # One access line a request is enough, and the middleware writes a better one.
        "loggers": {"uvicorn.access": {"handlers": [], "propagate": False}},
    }
