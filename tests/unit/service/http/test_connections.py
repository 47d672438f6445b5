"""Hosts, malformed requests, and too many connections, over real sockets and a small application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.http.connections import BoundedProtocol, CheckHost, Hosts
from service.http.middleware import DRAIN_BYTES, RequestContext

#: Ends a test that hangs; nothing here takes this long.
PATIENCE = 60.0


@dataclass
class Site:
    """A server under test; `open` makes a connection to it."""

    port: int
    release: asyncio.Event
    arrived: asyncio.Queue[str]
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self, data: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        return reader


@asynccontextmanager
async def serving(limit: int = 100, hosts: str = "*") -> AsyncIterator[Site]:
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

    config = uvicorn.Config(
        RequestContext(CheckHost(application, Hosts(hosts))),
        http=BoundedProtocol,
        port=0,
        lifespan="off",
        log_config=None,
        limit_concurrency=limit,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    site = Site(server.servers[0].sockets[0].getsockname()[1], release, arrived)
    try:
        async with asyncio.timeout(PATIENCE):
            yield site
    finally:
        for writer in site.writers:
            writer.close()
        release.set()
        await server.shutdown()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers in small letters, body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def status(reader: asyncio.StreamReader) -> int:
    """The status of an answer, behind which the connection is closed."""
    return int((await reader.read()).split()[1])


POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_requests_are_answered_one_after_another() -> None:
    async with serving() as site:
        reader = await site.open(POST + b"12345" + GET + POST)
        assert (await answer(reader))[2] == b"5"
        assert (await answer(reader))[2] == b"0"
        site.writers[0].write(b"12345")
        assert (await answer(reader))[2] == b"5"


async def test_requests_beyond_the_limit_are_refused() -> None:
    async with serving(limit=3) as site:
        busy = [await site.open(GET.replace(b"/ ", b"/wait ")) for _ in range(2)]
        for _ in busy:
            await site.arrived.get()
        assert await status(await site.open(GET)) == 503
        site.release.set()
        assert [(await answer(reader))[0] for reader in busy] == [200, 200]


async def test_connections_far_beyond_the_limit_are_closed() -> None:
    async with serving(limit=3) as site:
        for _ in range(3):
            await site.open()
        assert await (await site.open()).read() == b""


POST_TO_X = b"POST / HTTP/1.1\r\nHost: x\r\n"
MALFORMED = {
    "garbage": b"\x16\x03\x01 hello\r\n\r\n",
    "two lengths": POST_TO_X + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "a length and chunks": POST_TO_X + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST_TO_X + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "a bad chunk": POST_TO_X + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a coding that is not read": POST_TO_X + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a connection to elsewhere": b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_breaks_the_rules_of_http(case: str) -> None:
    async with serving() as site:
        assert await status(await site.open(MALFORMED[case])) == 400


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


async def test_a_body_behind_an_answer_is_not_read_without_end() -> None:
    async with serving() as site:
        reader = await site.open(_upload("/early-close", 10 * DRAIN_BYTES))
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


async def test_a_host_of_another_site_is_refused() -> None:
    async with serving(hosts="local") as site:
        assert await status(await site.open(GET)) == 421
        assert (await answer(await site.open(GET.replace(b"Host: x", b"Host: localhost"))))[0] == 200


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
