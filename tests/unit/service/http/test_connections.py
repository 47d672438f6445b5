"""Requests that arrive slowly, malformed, or too many at once, over real sockets and a small application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from service.http.connections import (
    DRAIN_BYTES,
    HEAD_BYTES,
    PARTS_AT_A_TIME,
    Admission,
    Hosts,
    Pace,
    PacedFlow,
    guarded,
    holder_of,
)
from service.problems import MEDIA_TYPE

#: Ends a test that hangs; nothing here takes this long.
PATIENCE = 60.0


@dataclass
class Site:
    """A server under test; `open` makes a connection to it."""

    port: int
    release: asyncio.Event
    arrived: asyncio.Queue[str]
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self, data: bytes = b"", address: str = "127.0.0.1") -> asyncio.StreamReader:
        """From an address of this machine: all of 127.0.0.0/8 are."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        self.writers.append(writer)
        writer.write(data)
        return reader


@asynccontextmanager
async def serving(
    connections: int = 100,
    header_seconds: float = PATIENCE,
    body_seconds: float = PATIENCE,
    each: int | None = None,
) -> AsyncIterator[Site]:
    release, arrived = asyncio.Event(), asyncio.Queue[str]()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        early, size = scope["path"] in ("/early", "/early-close"), 0
        more = not early
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        if scope["path"] == "/wait":
            arrived.put_nowait(scope["path"])
            await release.wait()
        body = str(size).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        headers += [(b"connection", b"close")] if scope["path"] == "/early-close" else []
        status = 413 if early else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config, state = uvicorn.Config(application, lifespan="off", log_config=None), ServerState()
    make = guarded(Admission(connections, header_seconds, body_seconds, each=each))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: make(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    site = Site(server.sockets[0].getsockname()[1], release, arrived)
    try:
        async with asyncio.timeout(PATIENCE):
            yield site
    finally:
        for writer in site.writers:
            writer.close()
        server.close()
        release.set()
        await asyncio.gather(*state.tasks)
        while state.connections:
            for connection in list(state.connections):
                connection.shutdown()
            await asyncio.sleep(0)


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers in small letters, body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def problem(reader: asyncio.StreamReader, status: int, code: str) -> dict[str, Any]:
    """The problem that was answered, after which the connection is closed."""
    found, headers, body = await answer(reader)
    document: dict[str, Any] = json.loads(body)
    assert (found, document["status"], document["type"]) == (status, status, f"/problems/{code}")
    assert (headers["content-type"], headers["connection"]) == (MEDIA_TYPE, "close")
    assert document["instance"] == f"urn:request:{headers['x-request-id']}"
    assert await reader.read() == b""
    return document


POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_requests_are_answered_one_after_another() -> None:
    async with serving() as site:
        reader = await site.open(POST + b"12345" + GET + POST)
        assert (await answer(reader))[2] == b"5"
        assert (await answer(reader))[2] == b"0"
        site.writers[0].write(b"12345")
        assert (await answer(reader))[2] == b"5"


@pytest.mark.parametrize("half", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "])
async def test_half_sent_headers(half: bytes) -> None:
    async with serving(header_seconds=0.05) as site:
        await problem(await site.open(half), 408, "request-timeout")


async def test_half_sent_headers_of_a_second_request() -> None:
    async with serving(header_seconds=0.05) as site:
        reader = await site.open(GET)
        assert (await answer(reader))[0] == 200
        site.writers[0].write(GET[:10])
        await problem(reader, 408, "request-timeout")


async def test_a_connection_that_says_nothing() -> None:
    async with serving(header_seconds=0.05) as site:
        assert await (await site.open()).read() == b""


async def test_a_half_sent_body() -> None:
    async with serving(body_seconds=0.05) as site:
        await problem(await site.open(POST + b"123"), 408, "request-timeout")


async def test_time_to_arrive_is_not_time_to_answer() -> None:
    async with serving(header_seconds=0.02, body_seconds=0.02) as site:
        reader = await site.open(POST.replace(b"/ ", b"/wait ") + b"12345")
        other = await site.open(b"G")
        await problem(other, 408, "request-timeout")  # so the time is over
        site.release.set()
        assert (await answer(reader))[2] == b"5"


async def test_the_longest_waiting_connection_makes_room() -> None:
    async with serving(connections=3) as site:
        idle, half, busy = await site.open(), await site.open(b"GET"), await site.open(b"GET")
        for _ in range(3):
            assert (await answer(await site.open(GET)))[0] == 200
        assert await idle.read() == b""
        await problem(half, 408, "request-timeout")
        await problem(busy, 408, "request-timeout")


async def test_too_many_connections_at_work() -> None:
    async with serving(connections=2) as site:
        busy = [await site.open(GET.replace(b"/ ", b"/wait ")) for _ in range(2)]
        for _ in busy:
            await site.arrived.get()
        refused = await site.open()
        await problem(refused, 503, "overloaded")
        site.release.set()
        assert [(await answer(reader))[0] for reader in busy] == [200, 200]


async def test_one_caller_does_not_take_all_connections() -> None:
    wait = GET.replace(b"/ ", b"/wait ")
    async with serving(connections=10, each=2) as site:
        busy = [await site.open(wait) for _ in range(2)]
        for _ in busy:
            await site.arrived.get()
        await problem(await site.open(), 503, "overloaded")
        other = await site.open(wait, "127.0.0.2")
        await site.arrived.get()
        site.release.set()
        assert [(await answer(reader))[0] for reader in (*busy, other)] == [200] * 3


async def test_what_one_caller_leaves_unused_makes_room_for_its_own() -> None:
    async with serving(connections=10, each=2) as site:
        other = await site.open(address="127.0.0.2")
        idle = [await site.open() for _ in range(2)]
        last = await site.open(GET)
        assert (await answer(last))[0] == 200
        assert await idle[0].read() == b""
        site.writers[0].write(GET)
        assert (await answer(other))[0] == 200


@pytest.mark.parametrize(
    ("address", "holder"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_who_is_behind_an_address(address: str, holder: str) -> None:
    assert holder_of(address) == holder


MALFORMED: dict[str, Callable[[], bytes]] = {
    "garbage": lambda: b"\x16\x03\x01 hello\r\n\r\n",
    "two lengths": lambda: b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "a length and chunks": lambda: (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks and a length": lambda: (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    ),
    "no host": lambda: b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": lambda: b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "a bad chunk": lambda: b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a coding that is not read": lambda: (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    ),
    "a connection to elsewhere": lambda: b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_breaks_the_rules_of_http(case: str) -> None:
    async with serving() as site:
        await problem(await site.open(MALFORMED[case]()), 400, "bad-request")


_LONG = b"X-Long: " + b"x" * HEAD_BYTES
_CHUNKS = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n" + 2 * _LONG,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + _LONG + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * (HEAD_BYTES // 6) + b"\r\n",
        b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["half sent", "one long header", "many headers", "a long address"],
)
async def test_too_much_before_the_body(request_bytes: bytes) -> None:
    async with serving() as site:
        await problem(await site.open(request_bytes), 431, "headers-too-large")


@pytest.mark.parametrize(
    "endless", [b"0\r\n" + 8 * _LONG, b"1;" + b"x" * (8 * HEAD_BYTES)], ids=["trailers", "extensions"]
)
async def test_too_much_between_the_parts_of_a_body(endless: bytes) -> None:
    """An endless head behind a body would be kept in memory as well."""
    async with serving() as site:
        reader = await site.open(_CHUNKS)
        site.writers[0].write(endless)
        await site.writers[0].drain()
        await problem(reader, 431, "headers-too-large")


async def test_too_much_of_a_head_behind_a_request_that_is_answered_yet() -> None:
    async with serving() as site:
        reader = await site.open(GET.replace(b"/ ", b"/wait "))
        await site.arrived.get()
        site.writers[0].write(b"GET / HTTP/1.1\r\n" + 2 * _LONG)
        await problem(reader, 431, "headers-too-large")


def _upload(path: str, size: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()


@pytest.mark.parametrize("path", ["/early", "/early-close"])
async def test_an_early_answer_is_read_by_a_client_that_sends_everything_first(path: str) -> None:
    size = 50_000_000
    async with serving() as site:
        reader = await site.open(_upload(path, size))
        for _ in range(50):
            site.writers[0].write(bytes(size // 50))
            await site.writers[0].drain()
        assert (await answer(reader))[0] == 413
        if path == "/early":  # the connection goes on
            site.writers[0].write(GET)
            assert (await answer(reader))[0] == 200
        else:
            assert await reader.read() == b""


async def test_a_malformed_request_is_answered_though_its_body_still_comes() -> None:
    size = 10_000_000
    async with serving() as site:
        reader = await site.open(_upload("/", size).replace(b"Host: x", b"Host: x\r\nHost: y"))
        site.writers[0].write(bytes(size))
        await site.writers[0].drain()
        await problem(reader, 400, "bad-request")


@pytest.mark.parametrize("path", ["/early", "/early-close"])
async def test_a_body_behind_an_answer_is_not_read_without_end(path: str) -> None:
    async with serving() as site:
        reader = await site.open(_upload(path, 10 * DRAIN_BYTES))
        assert (await answer(reader))[0] == 413
        sent = 0

        async def send_on() -> None:
            nonlocal sent
            while sent < 2 * DRAIN_BYTES:
                site.writers[0].write(bytes(1 << 20))
                await site.writers[0].drain()
                sent += 1 << 20

        with pytest.raises(ConnectionError):
            await send_on()
        assert sent >= DRAIN_BYTES


@pytest.mark.parametrize("path", ["/early", "/early-close"])
async def test_a_body_behind_an_answer_is_not_awaited_for_long(path: str) -> None:
    async with serving(body_seconds=0.05) as site:
        reader = await site.open(_upload(path, 10))
        assert (await answer(reader))[0] == 413
        assert await reader.read() == b""


async def test_a_connection_that_is_drained_makes_room_first() -> None:
    async with serving(connections=2) as site:
        drained = await site.open(_upload("/early", 10))
        assert (await answer(drained))[0] == 413
        busy = await site.open(GET.replace(b"/ ", b"/wait "))
        await site.arrived.get()
        assert (await answer(await site.open(GET)))[0] == 200
        assert await drained.read() == b""
        site.release.set()
        assert (await answer(busy))[0] == 200


@pytest.mark.parametrize(
    ("names", "host", "wanted"),
    [
        ("plans.example.com", "Plans.Example.com:443", True),
        ("plans.example.com", "plans.example.com.", True),
        ("plans.example.com", "localhost", False),
        ("a.example, *.farm.example", "x.y.farm.example", True),
        ("a.example, *.farm.example", "farm.example", False),
        ("a.example, *.farm.example", "evilfarm.example", False),
        ("::1", "[::1]:8080", True),
        ("local", "[::1]", True),
        ("local", "192.0.2.1:80", True),
        ("local", "localhost", True),
        ("local", "x.localhost:1", True),
        ("local", "evil.example", False),
        ("local", "127.0.0.1.evil.example", False),
        ("local", "evil-localhost", False),
        ("*", "anything", True),
        ("", "anything", False),
    ],
)
def test_hosts(names: str, host: str, wanted: bool) -> None:
    assert Hosts(names).include(host) is wanted


async def test_large_bodies_are_read_in_turns() -> None:
    """A few in each turn of the event loop, in order; one that is stopped again is not let on."""
    went_on: list[int] = []

    class Flow(PacedFlow):
        def __init__(self, number: int) -> None:
            self.number = number

        def resume_now(self) -> None:
            went_on.append(self.number)

    pace, flows = Pace(), [Flow(number) for number in range(3 * PARTS_AT_A_TIME)]
    for flow in flows:
        pace.add(flow)
    pace.add(flows[0])
    pace.remove(flows[1])
    pace.remove(flows[1])
    counts = []
    while len(went_on) < len(flows) - 1:
        await asyncio.sleep(0)
        counts.append(len(went_on))
    assert went_on == [0, *range(2, len(flows))]
    assert counts[0] == PARTS_AT_A_TIME
    assert len(counts) == 3
