"""Work for a caller ends when the caller hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from fastapi import Request

__all__ = ["GONE", "unless_disconnected"]

T = TypeVar("T")

#: Status for a caller that has left; only the log ever sees it.
GONE: Final = 499


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T | None:
    """Result of `work`; ``None``, with `work` cancelled, once the caller has hung up.

    The request body must have been read to its end.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for other in (task, gone):
            other.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
