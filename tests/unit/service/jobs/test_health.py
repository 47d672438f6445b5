"""The answers to probes of a process that runs jobs, by a clock of the test's own."""

from __future__ import annotations

import asyncio

import pytest

from service.jobs.health import Health
from service.jobs.pool import WorkerPool


class Pool(WorkerPool):
    """A pool in the state that a test needs."""

    def __init__(self, *, supervised: bool = True, alive: int = 1) -> None:
        super().__init__("tests.support.fake_tasks", 1)
        self.facts = supervised, alive

    @property
    def supervised(self) -> bool:
        return self.facts[0]

    @property
    def alive(self) -> int:
        return self.facts[1]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_from_the_start_on() -> None:
    clock = Clock()
    health = Health(clock)
    assert (health.live(), health.ready()) == ((True, "ok"), (False, "starting"))
    health.pool = Pool(alive=0)
    assert health.ready() == (False, "starting")
    health.pool = Pool()
    assert (health.live(), health.ready()) == ((True, "ok"), (True, "ready"))


def test_while_the_database_is_away() -> None:
    clock = Clock()
    health = Health(clock)
    health.pool = Pool()
    clock.now = 60.0
    assert (health.live(), health.ready()) == ((True, "ok"), (False, "database-away"))
    clock.now = 301.0
    assert health.live() == (False, "database-lost")
    health.heard()
    assert (health.live(), health.ready()) == ((True, "ok"), (True, "ready"))


def test_without_supervision() -> None:
    health = Health(Clock())
    health.pool = Pool(supervised=False)
    assert health.live() == (False, "unsupervised")


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", (b"HTTP/1.1 200 OK", b'{"status": "ok"}')),
        (b"GET /readyz?x HTTP/1.0\r\n\r\n", (b"HTTP/1.1 503 Service Unavailable", b'{"status": "starting"}')),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", (b"HTTP/1.1 200 OK", b"")),
        (b"GET / HTTP/1.1\r\n\r\n", (b"HTTP/1.1 404 Not Found", b'{"status": "not-found"}')),
        (b"POST /healthz HTTP/1.1\r\n\r\n", (b"HTTP/1.1 404 Not Found", b'{"status": "not-found"}')),
        (b"nonsense\r\n\r\n", (b"", b"")),
        (b"x" * 9_000, (b"", b"")),
    ],
)
async def test_over_a_connection(asked: bytes, answered: tuple[bytes, bytes]) -> None:
    health = Health()
    port = await health.serve("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(asked)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == answered
    writer.close()
    await health.close()
