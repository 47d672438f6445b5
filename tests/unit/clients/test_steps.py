"""The core of the clients, driven by hand: what it wants done, in which order, and what comes of it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from clients import AsyncClient, Client, ConnectionFailed, Retry
from clients.exchange import Exchange
from clients.shells import AsyncShell, BlockingShell
from clients.steps import Do, Emit, Emitting, Machine, Pause, Request, Send, do, open_stream, read

GET = Request("GET", "/x?y=1")


def exchange() -> Exchange:
    return Exchange(httpx.URL("http://me:secret@test"), Retry(attempts=2, base=1.0, chance=lambda: 1.0))


def test_an_exchange_waits_and_asks_again() -> None:
    answer = httpx.Response(200)
    machine = Machine(exchange().ask(GET))
    wanted = [machine.action]
    for outcome in (httpx.Response(503), None, answer):
        machine.done(outcome)
        wanted.append(machine.action)
    assert wanted == [Send(GET), Pause(1.0), Send(GET), None]
    assert machine.result is answer


def test_an_exchange_gives_up() -> None:
    machine = Machine(exchange().ask(GET))
    machine.failed(httpx.ConnectError("refused"))
    assert machine.action == Pause(1.0)
    machine.done(None)
    with pytest.raises(ConnectionFailed, match=r"^http://test/x: "):
        machine.failed(httpx.ConnectError("refused"))


def test_other_errors_pass() -> None:
    machine = Machine(exchange().ask(GET))
    with pytest.raises(KeyError):
        machine.failed(KeyError("a bug"))


def counted(closed: list[bool]) -> Emitting[int]:
    """Emits the length of what it reads, and of what work comes to."""
    try:
        opened = yield from open_stream(GET)
        while piece := (yield from read(opened)):
            yield Emit(len(piece))
        yield Emit((yield from do(lambda: 7)))
    finally:
        closed.append(True)


TRANSPORT = httpx.MockTransport(lambda _request: httpx.Response(200, content=b"four"))


def test_a_blocking_iteration() -> None:
    closed: list[bool] = []
    with httpx.Client(base_url="http://test", transport=TRANSPORT) as http:
        shell = BlockingShell(http, lambda _seconds: None)
        assert list(shell.iterate(Machine(counted(closed)))) == [4, 7]
        first = iter(shell.iterate(Machine(counted(closed))))
        assert next(first) == 4
        del first
    assert closed == [True, True]


async def test_an_asynchronous_iteration() -> None:
    closed: list[bool] = []
    async with httpx.AsyncClient(base_url="http://test", transport=TRANSPORT) as http:
        shell = AsyncShell(http, asyncio.sleep)
        assert [value async for value in shell.iterate(Machine(counted(closed)))] == [4, 7]
    assert closed == [True]


async def test_a_call_that_is_cancelled_ends_its_steps() -> None:
    waiting = asyncio.Event()

    async def forever(_seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    busy = httpx.MockTransport(lambda _request: httpx.Response(503))
    async with AsyncClient("http://test", transport=busy, sleep=forever) as client:
        task = asyncio.create_task(client.plan({}))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_work_on_files_is_an_action() -> None:
    """So that an event loop goes on while a large file is read."""
    machine = Machine(do(lambda: 3))
    assert isinstance(machine.action, Do)
    machine.done(3)
    assert machine.result == 3


def test_methods_keep_their_documentation_and_signature() -> None:
    assert "Plan a graph" in (Client.plan.__doc__ or "")
    assert Client().plan.__name__ == "plan"
