"""Work goes on while the caller is there, and ends when the caller has left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from fastapi import Request

from service.http.computation import unless_disconnected


def request(messages: Iterable[dict[str, object]], left: asyncio.Event) -> Request:
    """A request whose connection gives `messages`, and a disconnect once `left` is set."""
    waiting = iter(messages)

    async def receive() -> dict[str, object]:
        for message in waiting:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


async def test_the_result_or_the_error_of_the_work() -> None:
    async def work(divisor: int) -> int:
        return 7 // divisor

    assert await unless_disconnected(request([], asyncio.Event()), work(1)) == 7
    with pytest.raises(ZeroDivisionError):
        await unless_disconnected(request([], asyncio.Event()), work(0))


async def test_a_caller_that_leaves() -> None:
    left, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        left.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 0

    assert await unless_disconnected(request([], left), work()) is None
    assert cancelled.is_set()


async def test_other_messages_are_no_goodbye() -> None:
    trailing = {"type": "http.request", "body": b"", "more_body": False}
    done = asyncio.Event()

    async def work() -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.set()
        return 1

    assert await unless_disconnected(request([trailing], asyncio.Event()), work()) == 1
    assert done.is_set()


async def test_cancelled_from_outside() -> None:
    """As at shutdown: the work is cancelled with the request, and nothing is left running."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 0

    outer = asyncio.create_task(unless_disconnected(request([], asyncio.Event()), work()))
    await started.wait()
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert cancelled.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}
