"""Connections to one service: a request is sent again where that may help, and answers can go to files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import httpx

from clients.errors import ConnectionFailed, WrongArgument
from clients.retry import Retry
from clients.tasks import Request, address

#: Connecting succeeds soon or not at all; a solve may use the service's whole time limit of a minute, and
#: wait for a worker before that. Calls beyond `DEFAULT_LIMITS` wait for their turn as long as it takes.
DEFAULT_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0, read=120.0, pool=None)

#: Fewer connections than requests may wait at the service, so that one client alone cannot overload it.
DEFAULT_LIMITS: Final = httpx.Limits(max_connections=32, max_keepalive_connections=32)

#: Where `arenaplan serve` listens unless it is told otherwise.
DEFAULT_SERVER: Final = "http://127.0.0.1:8080"


def http_arguments(
    server: str | None,
    timeout: httpx.Timeout | float | None,
    limits: httpx.Limits | None,
    headers: Mapping[str, str] | None,
    api_key: str | None,
    auth: httpx.Auth | None,
) -> dict[str, Any]:
    """The arguments of `httpx.Client` and `httpx.AsyncClient`.

    The environment's `ARENAPLAN_SERVER` and `ARENAPLAN_API_KEY` take the place of a missing server and key. A
    key is sent as a bearer token, unless `auth` or a header says who asks.
    """
    sent = httpx.Headers(headers)
    key = os.environ.get("ARENAPLAN_API_KEY") if api_key is None else api_key
    if key and auth is None:
        sent.setdefault("Authorization", f"Bearer {key}")
    if not isinstance(server, str | None):
        raise WrongArgument(
            f"The address of a service is of type {type(server).__name__}. Give text, as {DEFAULT_SERVER!r}."
        )
    # A number bounds each wait for the service, but not the wait for one of the client's own connections.
    bounded = timeout if isinstance(timeout, httpx.Timeout) else httpx.Timeout(timeout, pool=None)
    return {
        "base_url": server or os.environ.get("ARENAPLAN_SERVER") or DEFAULT_SERVER,
        "timeout": bounded,
        "limits": limits or DEFAULT_LIMITS,
        "headers": sent,
        "auth": auth,
    }


def _trace_context() -> dict[str, str]:
    """The headers of W3C Trace Context that name the active span; empty where the program traces nothing.

    OpenTelemetry is used where the program has loaded it, and is never loaded here.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def _built(http: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    return http.build_request(
        request.method,
        request.path,
        content=request.body,
        headers={**_trace_context(), **request.headers},
        timeout=httpx.USE_CLIENT_DEFAULT if request.timeout is None else request.timeout,
    )


def _pause_after_error(
    retry: Retry, attempt: int, error: httpx.TransportError, base: httpx.URL, request: Request
) -> float:
    """Seconds to wait before the next try. Raises ConnectionFailed where there is none."""
    pause = retry.after_error(attempt, error)
    if pause is None:
        place = address(base, request.path.partition("?")[0])
        raise ConnectionFailed(f"{place}: no answer ({str(error) or type(error).__name__})") from error
    return pause


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` once it is whole; a failure leaves `path` as it was."""
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class Deadline:
    """The time that a call may take in all. Raises `late` once it is over."""

    def __init__(self, seconds: float, late: Exception, clock: Callable[[], float] = time.monotonic) -> None:
        self._until = clock() + seconds
        self._late = late
        self._clock = clock

    def left(self) -> float:
        """Seconds that are left, more than 0."""
        left = self._until - self._clock()
        if left <= 0:
            raise self._late
        return left

    def check_pause(self, seconds: float) -> None:
        """Raise at once where a pause would end too late."""
        if seconds >= self.left():
            raise self._late

    def longest_read(self) -> float:
        """The longest time without news after which a stream is opened again, in seconds.

        The timeout of a stream's reads cannot be changed once it is open, so it is opened again when half of
        the time is over, but not in the last half second.
        """
        left = self.left()
        return left if left <= 0.5 else left / 2


class Connection:
    """Sends requests with a `httpx.Client`. `sleep` and `clock` are those of the caller, for tests."""

    def __init__(
        self,
        http: httpx.Client,
        retry: Retry,
        sleep: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.http = http
        self.retry = retry
        self.sleep = sleep
        self.clock = clock

    def ask(
        self,
        request: Request,
        *,
        save: Path | None = None,
        stream: bool = False,
        deadline: Deadline | None = None,
    ) -> httpx.Response:
        """The first answer that is not a passing failure, or the last of all tries.

        The body of a success goes to the file `save`, if there is one; with `stream` it is not read yet, and
        the response has to be closed. Raises ConnectionFailed where no answer comes.
        """
        attempt = 1
        while True:
            try:
                response = self.send(request, save, stream, deadline)
            except httpx.TransportError as error:
                if deadline is not None and isinstance(error, httpx.TimeoutException):
                    deadline.left()
                    if stream and isinstance(error, httpx.ReadTimeout):
                        continue
                pause = _pause_after_error(self.retry, attempt, error, self.http.base_url, request)
            else:
                later = self.retry.after_answer(attempt, response)
                if later is None:
                    return response
                response.close()
                pause = later
            if deadline is not None:
                deadline.check_pause(pause)
            self.sleep(pause)
            attempt += 1

    def send(
        self,
        request: Request,
        save: Path | None = None,
        stream: bool = False,
        deadline: Deadline | None = None,
    ) -> httpx.Response:
        """The answer to one try, as of `ask`. Raises httpx.TransportError."""
        built = _built(self.http, request)
        if deadline is not None:
            longest = deadline.longest_read() if stream else deadline.left()
            waits: dict[str, float | None] = built.extensions["timeout"]
            built.extensions["timeout"] = {
                name: longest if wait is None else min(wait, longest) for name, wait in waits.items()
            }
        response = self.http.send(built, stream=stream or save is not None)
        if not response.is_success:
            response.read()
        elif save is not None:
            with contextlib.closing(response), _replacing(save) as file:
                for piece in response.iter_bytes():
                    file.write(piece)
        return response


class AsyncConnection:
    """`Connection` with ``await``, by a `httpx.AsyncClient`; a deadline is that of `asyncio.timeout`."""

    def __init__(
        self, http: httpx.AsyncClient, retry: Retry, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self.http = http
        self.retry = retry
        self.sleep = sleep

    async def ask(
        self, request: Request, *, save: Path | None = None, stream: bool = False
    ) -> httpx.Response:
        """See `Connection.ask`."""
        attempt = 1
        while True:
            try:
                response = await self.send(request, save, stream)
            except httpx.TransportError as error:
                pause = _pause_after_error(self.retry, attempt, error, self.http.base_url, request)
            else:
                later = self.retry.after_answer(attempt, response)
                if later is None:
                    return response
                await response.aclose()
                pause = later
            await self.sleep(pause)
            attempt += 1

    async def send(self, request: Request, save: Path | None = None, stream: bool = False) -> httpx.Response:
        """See `Connection.send`."""
        response = await self.http.send(_built(self.http, request), stream=stream or save is not None)
        if not response.is_success:
            await response.aread()
        elif save is not None:
            async with contextlib.aclosing(response):
                with _replacing(save) as file:
                    async for piece in response.aiter_bytes():
                        await asyncio.to_thread(file.write, piece)
        return response
