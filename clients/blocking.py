"""The client for ordinary programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import httpx

from clients.calls import Calls
from clients.jobs import Jobs
from clients.requests import DEFAULT_TIMEOUT
from clients.retry import Retry
from clients.settings import exchange_with, http_arguments
from clients.shells import Blocking, BlockingShell

__all__ = ["Client"]


class Client(Calls, Blocking):
    """Talks to one service. Safe to share between threads; close it, or use it in a ``with``.

    `base_url` is `ARENAPLAN_SERVER` of the environment unless given, else port 8080 of this machine. The key
    is `api_key`, else `ARENAPLAN_API_KEY`; `auth` is for other ways to say who asks. `timeout` and `limits`
    have the meaning they have in httpx, but a call may wait for one of the client's connections as long as
    it takes, unless a `httpx.Timeout` says otherwise; `transport` replaces the network in tests. `jobs` gives
    away work that takes long. What a signature calls `Steps[T]` is a T.
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
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        arguments = http_arguments(base_url, timeout, limits, headers, api_key, auth)
        self.shell = BlockingShell(httpx.Client(transport=transport, **arguments), sleep)
        self.exchange = exchange_with(self.shell.http, retry)
        self.jobs = Jobs(self.shell, self.exchange)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.shell.http.close()
