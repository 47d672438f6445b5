"""Events are one JSON object a line, those of libraries too, with the request id. No reader holds them up."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
import structlog

from service.auth.quotas import Quotas
from service.auth.registry import Gate, Registry
from service.http.access import Access
from service.logs import LogWriter, configure_logging
from service.settings import Settings
from service.store import Store

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging as the test runner has set it up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    access = logging.getLogger("uvicorn.access")
    yield
    root.handlers[:], root.level = handlers, level
    access.propagate = True
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)
    structlog.reset_defaults()


@pytest.fixture
def configured(capsys: pytest.CaptureFixture[str]) -> Callable[[str, str], Callable[[], str]]:
    """Sets logging up; what that returns waits for the lines and gives them."""

    def configure(level: str, style: str) -> Callable[[], str]:
        writer = configure_logging(level, style)

        def written() -> str:
            assert writer.drain(PATIENCE)
            return capsys.readouterr().err

        return written

    return configure


Configure = Callable[[str, str], Callable[[], str]]


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json(configured: Configure) -> None:
    written = configured("info", "json")
    structlog.get_logger("service").info("started", workers=2)
    logging.getLogger("uvicorn.error").warning("careful: %s", "hot")
    first, second = events(written())
    assert (first["event"], first["level"], first["workers"]) == ("started", "info", 2)
    assert (second["event"], second["level"]) == ("careful: hot", "warning")
    assert first["timestamp"].endswith("Z")


def test_request_ids(configured: Configure) -> None:
    written = configured("info", "json")
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        structlog.get_logger("service").info("inside")
        logging.getLogger("library").warning("inside too")
    assert [event["request_id"] for event in events(written())] == ["r1", "r1"]


def test_tracebacks_stay_on_one_line(configured: Configure) -> None:
    written = configured("info", "json")
    try:
        raise ValueError("bad")
    except ValueError:
        structlog.get_logger("service").exception("failed")
        logging.getLogger("library").exception("failed too")
    first, second = events(written())
    assert "ValueError: bad" in first["exception"]
    assert "ValueError: bad" in second["exception"]


@pytest.mark.parametrize("value", ["\x1b[31m", "\x9b31m", "\u2028", "\ud800", "ü", 1e999, 10**40])
def test_values_that_need_care(configured: Configure, value: object) -> None:
    """Nothing that a caller sends reaches a terminal as a control character, or ends a line."""
    written = configured("info", "json")
    structlog.get_logger("service").info("given", value=value, thing=threading, list=[value])
    text = written()
    assert text.isascii()
    assert text.count("\n") == 1
    assert not any(ord(character) < 32 for character in text[:-1])
    (event,) = events(text)
    assert (event["value"], event["list"]) == (value, [value])
    assert event["thing"] == repr(threading)


def test_times(configured: Configure) -> None:
    written = configured("info", "json")
    before = datetime.now(UTC)
    structlog.get_logger("service").info("now")
    (event,) = events(written())
    told = datetime.fromisoformat(event["timestamp"])
    assert before.replace(microsecond=0) <= told <= datetime.now(UTC)


def test_levels(configured: Configure) -> None:
    written = configured("error", "json")
    structlog.get_logger("service").info("quiet")
    logging.getLogger("library").warning("quiet")
    structlog.get_logger("service").error("loud")
    assert [event["event"] for event in events(written())] == ["loud"]


def test_access_lines_of_the_server_are_dropped(configured: Configure) -> None:
    written = configured("debug", "json")
    logging.getLogger("uvicorn.access").info("GET /")
    assert written() == ""


def test_text(configured: Configure) -> None:
    written = configured("info", "text")
    structlog.get_logger("service").info("started", workers=2)
    assert re.fullmatch(r"\d\d:\d\d:\d\d started, workers 2\n", written())


def test_text_of_a_request(configured: Configure) -> None:
    """For people: without what machines need, but for the id of a request that went wrong in here."""
    written = configured("info", "text")
    log = structlog.get_logger("service")
    request = {"method": "POST", "path": "/v1/plan\x1b[2J", "milliseconds": 5.5, "request_id": "r1"}
    log.info("request", status=422, detail="No.", problem="invalid-json", client="::1", **request)
    log.info("request", status=500, **request)
    refused, broken = written().splitlines()
    assert refused[9:] == "POST /v1/plan\\x1b[2J: 422, 5.5 ms, problem invalid-json: No."
    assert broken[9:] == "POST /v1/plan\\x1b[2J: 500, 5.5 ms, request_id r1"


def test_text_of_what_goes_wrong(configured: Configure) -> None:
    written = configured("info", "text")
    logging.getLogger("uvicorn.error").info("Application startup complete.")
    logging.getLogger("library").warning("beware of %s", "\x07bells")
    try:
        raise ValueError("a\x1bb")
    except ValueError:
        structlog.get_logger("service").exception("failed")
    lines = written().splitlines()
    assert lines[0][9:] == "warning: beware of \\x07bells"
    assert lines[1][9:] == "error: failed"
    assert lines[2] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: a\\x1bb"


def test_the_style_is_that_of_the_reader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        writer = configure_logging("info", None)
        structlog.get_logger("service").info("started")
        assert writer.drain(PATIENCE)
        assert capsys.readouterr().err.startswith("{") is not is_terminal


def test_a_reader_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are lost and counted, and nothing is raised where they are reported."""

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", Gone())
    writer = configure_logging("info", "json")
    structlog.get_logger("service").info("lost")
    logging.getLogger("library").warning("lost too")
    assert writer.drain(PATIENCE)
    assert writer.dropped == 2


class SlowReader(io.StringIO):
    """Takes nothing before `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return super().write(text)


def test_a_slow_reader_holds_nobody_up() -> None:
    """Lines without room are dropped; a line says how many, once the reader goes on."""
    stream = SlowReader()
    writer = LogWriter(stream, lambda count: f"{count} dropped\n", room=20)
    writer.write("first\n")
    assert stream.asked.wait(PATIENCE)
    for number in range(10):
        writer.write(f"line {number}\n")  # 7 characters, two fit beside the first
    assert writer.dropped == 8
    assert not writer.drain(0)
    stream.go.set()
    assert writer.drain(PATIENCE)
    assert stream.getvalue() == "first\nline 0\nline 1\n8 dropped\n"


def test_a_pipe_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a pipe holds: all of it arrives once somebody reads, in order."""
    source, sink = os.pipe()
    with os.fdopen(source, encoding="utf-8") as reader, os.fdopen(sink, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        writer = configure_logging("info", "json")
        for number in range(2_000):
            structlog.get_logger("service").info("line", number=number, padding="é" * 50)
        got = [json.loads(reader.readline())["number"] for _ in range(2_000)]
        assert writer.drain(PATIENCE)
    assert got == list(range(2_000))
    assert writer.dropped == 0


@pytest.mark.parametrize(
    ("audit", "lines"),
    [
        ("off", []),
        ("changes", ["POST /v1/plan 401", "GET /v1/jobs 401"]),
        ("all", ["POST /v1/plan 401", "GET /v1/jobs 401"]),
    ],
)
async def test_audit_lines_do_not_depend_on_the_level(
    configured: Configure, store: Store, audit: Literal["off", "changes", "all"], lines: list[str]
) -> None:
    """Refusals of strangers have neither tenant nor subject."""
    written = configured("error", "json")

    async def nothing(*_: Any) -> Any:
        return {}

    access = Access(nothing, Gate(Registry(store, Quotas()), True, None), Settings(audit=audit))
    for method, path in (("POST", "/v1/plan"), ("GET", "/v1/jobs")):
        scope = {
            "type": "http", "method": method, "path": path, "headers": [], "client": ("192.0.2.1", 9),
            "state": {"request_id": "r", "facts": {}},
        }  # fmt: skip
        await access(scope, nothing, nothing)
    audited = events(written())
    assert [f"{line['action']} {line['target']} {line['result']}" for line in audited] == lines
    assert {(line["tenant"], line["subject"], line["client"]) for line in audited} <= {
        (None, None, "192.0.2.1")
    }
