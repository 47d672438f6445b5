"""One line for every request, with what is needed to find and judge it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import LogCapture

from service.http.middleware import RequestContext
from service.http.responses import note

RUNNING: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()


@pytest.fixture
def log() -> Iterator[LogCapture]:
    capture = LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
    yield capture
    structlog.reset_defaults()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/bug":
        raise RuntimeError("secret")
    if scope["path"] == "/cut-off":
        current = asyncio.current_task()
        assert current is not None
        RUNNING.put_nowait(current)
        await asyncio.Event().wait()
    note(scope, digest="d", cache="hit")
    await send({"type": "http.response.start", "status": 204, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body"})
    if scope["path"] == "/late-bug":
        raise RuntimeError("after the answer")


async def get(path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(RequestContext(application))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path, headers={name.replace("_", "-"): v for name, v in headers.items()})


def lines(log: LogCapture, event: str) -> list[dict[str, Any]]:
    return [dict(entry) for entry in log.entries if entry["event"] == event]


async def test_access_line(log: LogCapture) -> None:
    response = await get("/x", X_Request_ID="id-1")
    (line,) = lines(log, "request")
    assert line.pop("milliseconds") >= 0
    assert line == {
        "event": "request",
        "log_level": "info",
        "request_id": "id-1",
        "method": "GET",
        "path": "/x",
        "status": 204,
        "client": "127.0.0.1",
        "digest": "d",
        "cache": "hit",
    }
    assert response.headers["x-own"] == "1"
    assert response.headers["x-request-id"] == "id-1"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_are_quiet(log: LogCapture, path: str) -> None:
    await get(path)
    (line,) = lines(log, "request")
    assert line["log_level"] == "debug"


async def test_a_bug(log: LogCapture) -> None:
    response = await get("/bug", X_Request_ID="id-2")
    assert response.status_code == 500
    assert response.json()["instance"] == "urn:request:id-2"
    assert "secret" not in response.text
    (failure,) = lines(log, "request failed")
    assert failure["exc_info"]
    assert failure["request_id"] == "id-2"
    assert lines(log, "request")[0]["status"] == 500


async def test_a_request_that_is_cut_off(log: LogCapture) -> None:
    """The server cancels what is not finished when it stops: an answer that says to come back."""
    request = asyncio.create_task(get("/cut-off"))
    (await RUNNING.get()).cancel()
    response = await request
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.json()["type"], response.headers["retry-after"]) == ("/problems/stopping", "2")
    assert lines(log, "request")[0]["status"] == 503


async def test_a_bug_after_the_answer(log: LogCapture) -> None:
    assert (await get("/late-bug")).status_code == 204
    assert len(lines(log, "request failed")) == 1


async def test_other_protocols_pass_untouched(log: LogCapture) -> None:
    seen: list[Scope] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        pass

    await RequestContext(inner)({"type": "lifespan"}, receive, send)
    assert seen == [{"type": "lifespan"}]
    assert log.entries == []
