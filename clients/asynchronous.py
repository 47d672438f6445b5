"""The client for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

import httpx

from clients.calls import Calls
from clients.jobs import AsyncJobs
from clients.requests import DEFAULT_TIMEOUT
from clients.retry import Retry
from clients.settings import exchange_with, http_arguments
from clients.shells import Asynchronous, AsyncShell

__all__ = ["AsyncClient"]


class AsyncClient(Calls, Asynchronous):
    """`Client` with ``await``. Safe to share between tasks; close it, or use it in an ``async with``.

    What a signature calls `Steps[T]` is awaited, and is a T then.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        auth: httpx.Auth | None = None,
        timeout: httpx.Timeout | float | None = DEFAULT_TIMEOUT,
        limits: httpx.Limits | None = None,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        arguments = http_arguments(base_url, timeout, limits, headers, api_key, auth)
        self.shell = AsyncShell(httpx.AsyncClient(transport=transport, **arguments), sleep)
        self.exchange = exchange_with(self.shell.http, retry)
        self.jobs = AsyncJobs(self.shell, self.exchange)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.shell.http.aclose()
