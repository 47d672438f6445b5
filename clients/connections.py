"""Connections to one service: a request is sent again where that may help, and answers can go to files.

All of it is written once, with ``await``. Over a `BlockingNetwork` nothing ever suspends, so that `finished`
gets the result of a coroutine in one step: without an event loop, and in any thread, that of a running loop
as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import httpx

from clients.errors import ConnectionFailed, WrongArgument

T = TypeVar("T")

#: Of one call, in the place of the client's; None keeps that.
Timeout = httpx.Timeout | float | None

#: Connecting succeeds soon or not at all; a solve may use the service's whole time limit of a minute, and
#: wait for a worker before that. Calls beyond `DEFAULT_LIMITS` wait for their turn as long as it takes.
DEFAULT_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0, read=120.0, pool=None)

#: Fewer connections than requests may wait at the service, so that one client alone cannot overload it.
DEFAULT_LIMITS: Final = httpx.Limits(max_connections=32, max_keepalive_connections=32)

#: Where `arenaplan serve` listens unless it is told otherwise.
DEFAULT_SERVER: Final = "http://127.0.0.1:8080"

#: The service, or something in between, asks for patience: the request did not arrive in time (408), there
#: are too many of them (429), or the service behind it does not answer (502, 503, 504). A 500 of something in
#: between may pass.
_TRANSIENT_STATUS: Final = frozenset({408, 429, 500, 502, 503, 504})
#: No answer came, and none of these says that a second try would have to fail too. A read that
#: took too long is not among them: it has cost the caller's whole patience already.
_TRANSIENT_ERRORS: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.RemoteProtocolError,
    httpx.ReadError,
)


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `path` follows the address of the client. Without a `timeout`: the client's.

    The body of a success goes to the file `save`, if there is one; with `stream` it is not read yet.
    """

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: Timeout = None
    save: Path | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `attempts` tries. Pauses double from `base` up to `longest` seconds, of which a random
    half is kept, so that many clients do not come back at once. A Retry-After beyond `longest`
    ends the tries.

    With the defaults they last for 45 seconds at least: longer than the service takes to start again on a
    machine that has other work as well. Planning is idempotent: the same request has the same answer, so
    sending it twice does no harm.
    """

    attempts: int = 10
    base: float = 0.25
    longest: float = 30.0
    chance: Callable[[], float] = field(default=random.random, repr=False)

    def after_error(self, attempt: int, error: httpx.TransportError) -> float | None:
        """Seconds to wait after try number `attempt` (from 1), ``None`` to give up."""
        return self._pause(attempt) if isinstance(error, _TRANSIENT_ERRORS) else None

    def after_answer(self, attempt: int, response: httpx.Response) -> float | None:
        """As `after_error`; ``None`` also when the answer stands.

        A 500 of the service itself stands, as it would fail on the same request again, and so does a request
        that the machine has no memory for.
        """
        if response.status_code not in _TRANSIENT_STATUS:
            return None
        if response.headers.get("Content-Type", "").startswith("application/problem+json") and (
            response.status_code == 500 or (document_of(response) or {}).get("reason") == "memory"
        ):
            return None
        asked = _retry_after(response.headers.get("Retry-After"))
        pause = self._pause(attempt)
        if pause is None or asked is None:
            return pause
        return max(asked, pause) if asked <= self.longest else None

    def _pause(self, attempt: int) -> float | None:
        if attempt >= self.attempts:
            return None
        bound = min(self.base * 2.0 ** (attempt - 1), self.longest)
        return bound * (0.5 + 0.5 * self.chance())


def document_of(response: httpx.Response) -> dict[str, Any] | None:
    """The JSON object of an answer, None for anything else."""
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _retry_after(value: str | None) -> float | None:
    """Seconds, from either form that RFC 9110 allows; ``None`` for neither."""
    if value is None:
        return None
    if value.isdecimal():
        return float(value)
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    zone = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (zone - datetime.now(UTC)).total_seconds())


class Deadline:
    """The time that a call may take in all."""

    def __init__(self, seconds: float, late: Exception, clock: Callable[[], float]) -> None:
        self._until = clock() + seconds
        self._late = late
        self._clock = clock

    def left(self, pause: float = 0.0) -> float:
        """Seconds that are left. Raises `late` unless there are more than those of a pause."""
        seconds = self._until - self._clock()
        if seconds <= pause:
            raise self._late
        return seconds


class BlockingNetwork:
    """A `httpx.Client`. `sleep` and `clock` are those of the caller, for tests."""

    def __init__(
        self, http: httpx.Client, sleep: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self.http = http
        self.clock = clock
        self._sleep = sleep

    async def send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """The answer; with `stream`, the body of a success is not read yet."""
        response = self.http.send(request, stream=stream)
        if not response.is_success:
            response.read()
        return response

    @contextlib.asynccontextmanager
    async def body(self, response: httpx.Response) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body in pieces, of a response that is closed behind the block."""

        async def pieces() -> AsyncGenerator[bytes, None]:
            for piece in response.iter_bytes():
                yield piece

        with contextlib.closing(response):
            async with contextlib.aclosing(pieces()) as body:
                yield body

    async def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that may take long: files, hashes, large documents."""
        return function(*arguments)


class AsyncNetwork:
    """A `httpx.AsyncClient`, as `BlockingNetwork`."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        sleep: Callable[[float], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self.http = http
        self.clock = clock
        self.sleep = sleep

    async def send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        response = await self.http.send(request, stream=stream)
        if not response.is_success:
            await response.aread()
        return response

    @contextlib.asynccontextmanager
    async def body(self, response: httpx.Response) -> AsyncIterator[AsyncIterator[bytes]]:
        async with contextlib.aclosing(response):
            yield response.aiter_bytes()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(function, *arguments)


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that uses a `BlockingNetwork`, and so never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise RuntimeError("A call of the blocking client waits for something else than its network.")


def iterated(stream: AsyncGenerator[T, None]) -> Iterator[T]:
    """The values of a generator that uses a `BlockingNetwork`."""
    try:
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield finished(stream.__anext__())
    finally:
        finished(stream.aclose())


class Connection:
    """Sends requests over either kind of network."""

    def __init__(self, network: BlockingNetwork | AsyncNetwork, retry: Retry) -> None:
        self.network = network
        self.retry = retry

    async def ask(self, request: Request, deadline: Deadline | None = None) -> httpx.Response:
        """The first answer that is not a passing failure, or the last of all tries.

        Raises ConnectionFailed if no answer comes.
        """
        attempt = 1
        while True:
            try:
                response = await self.send(request, deadline)
            except httpx.TransportError as error:
                if deadline is not None and isinstance(error, httpx.TimeoutException):
                    deadline.left()
                    if request.stream and isinstance(error, httpx.ReadTimeout):
                        continue
                pause = self.retry.after_error(attempt, error)
                if pause is None:
                    place = address(self.network.http.base_url, request.path.partition("?")[0])
                    reason = str(error) or type(error).__name__
                    raise ConnectionFailed(f"{place}: no answer ({reason})") from error
            else:
                pause = self.retry.after_answer(attempt, response)
                if pause is None:
                    return response
            await self.pause(pause, deadline)
            attempt += 1

    async def send(self, request: Request, deadline: Deadline | None = None) -> httpx.Response:
        """The answer to one try, as of `ask`. Raises httpx.TransportError."""
        built = self.network.http.build_request(
            request.method,
            request.path,
            content=request.body,
            headers={**_trace_context(), **request.headers},
            timeout=httpx.USE_CLIENT_DEFAULT if request.timeout is None else request.timeout,
        )
        if deadline is not None:
            # The timeout of a stream's reads cannot be changed once it is open. It is opened again when half
            # of the time is over, but not in the last half second.
            seconds = deadline.left()
            longest = seconds / 2 if request.stream and seconds > 0.5 else seconds
            waits: dict[str, float | None] = built.extensions["timeout"]
            built.extensions["timeout"] = {
                name: longest if wait is None else min(wait, longest) for name, wait in waits.items()
            }
        response = await self.network.send(built, stream=request.stream or request.save is not None)
        if request.save is not None and response.is_success:
            async with self.network.body(response) as pieces:
                with _replacing(request.save) as file:
                    async for piece in pieces:
                        await self.network.call(file.write, piece)
        return response

    async def pause(self, seconds: float, deadline: Deadline | None) -> None:
        """Wait before the next try. Raises at once where that would be too late."""
        if deadline is not None:
            deadline.left(seconds)
        await self.network.sleep(seconds)


def address(base: httpx.URL, path: str) -> str:
    """The address of a request as a person may read it: without a password."""
    return f"{str(base.copy_with(username=None, password=None)).rstrip('/')}{path}"


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
