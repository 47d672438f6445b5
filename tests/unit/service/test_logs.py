"""Events are one JSON object a line, those of libraries too, and carry the request id."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from service.logs import configure_logging


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging as the test runner has set it up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    access = logging.getLogger("uvicorn.access")
    yield
    root.handlers[:], root.level = handlers, level
    access.propagate = True
    structlog.reset_defaults()


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    structlog.get_logger("service").info("started", workers=2)
    logging.getLogger("uvicorn.error").warning("careful: %s", "hot")
    first, second = events(capsys)
    assert (first["event"], first["level"], first["workers"]) == ("started", "info", 2)
    assert (second["event"], second["level"]) == ("careful: hot", "warning")
    assert first["timestamp"].endswith("Z")


def test_request_ids(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        structlog.get_logger("service").info("inside")
        logging.getLogger("library").warning("inside too")
    assert [event["request_id"] for event in events(capsys)] == ["r1", "r1"]


def test_tracebacks_stay_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    try:
        raise ValueError("bad")
    except ValueError:
        structlog.get_logger("service").exception("failed")
        logging.getLogger("library").exception("failed too")
    first, second = events(capsys)
    assert "ValueError: bad" in first["exception"]
    assert "ValueError: bad" in second["exception"]


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("error", "json")
    structlog.get_logger("service").info("quiet")
    logging.getLogger("library").warning("quiet")
    structlog.get_logger("service").error("loud")
    assert [event["event"] for event in events(capsys)] == ["loud"]


def test_access_lines_of_the_server_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", "json")
    logging.getLogger("uvicorn.access").info("GET /")
    assert events(capsys) == []


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "text")
    structlog.get_logger("service").info("started", workers=2)
    assert "started" in capsys.readouterr().err


def test_a_reader_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are lost, and nothing is raised where they are reported."""

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", Gone())
    configure_logging("info", "json")
    structlog.get_logger("service").info("lost")
    logging.getLogger("library").warning("lost too")
