"""A scripted service, and clients of both kinds behind one interface."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx

from clients import AsyncClient, Client, Job, Jobs, Retry

__all__ = [
    "Broken",
    "Open",
    "Reply",
    "Service",
    "asynchronous",
    "blocking",
    "event",
    "ok",
    "problem",
    "stream",
]

Reply = httpx.Response | httpx.TransportError


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that breaks off."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._data
        raise httpx.ReadError("broken off")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


class Service:
    """Replies in the order given, the last one for ever; remembers requests and pauses.

    Replies by name are those of a method and the last part of a path, as ``get_events``, where the id ``1f``
    stands for ``job`` and a digest for ``graph``.
    """

    def __init__(self, *replies: Reply, **named: Reply | list[Reply]) -> None:
        self._replies = list(replies)
        self._named = {name: reply if isinstance(reply, list) else [reply] for name, reply in named.items()}
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        self.transport = httpx.MockTransport(self._reply)

    def _reply(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        last = request.url.path.rpartition("/")[2]
        name = "job" if last == "1f" else "graph" if len(last) == 64 else last
        waiting = self._replies or self._named[f"{request.method.lower()}_{name}"]
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(reply, httpx.TransportError):
            raise reply
        if isinstance(reply.stream, Broken):
            return reply
        return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)

    @property
    def body(self) -> Any:
        """The JSON value of the last request."""
        return json.loads(self.requests[-1].content)

    def sent(self, end: str) -> list[httpx.Request]:
        """The requests whose path ends so."""
        return [request for request in self.requests if request.url.path.endswith(end)]


def ok(document: Any, **headers: str) -> httpx.Response:
    return httpx.Response(200, json=document, headers={k.replace("_", "-"): v for k, v in headers.items()})


def problem(document: dict[str, Any]) -> httpx.Response:
    headers = {"Content-Type": "application/problem+json"}
    return httpx.Response(document["status"], json=document, headers=headers)


def event(kind: str, number: int, document: dict[str, Any]) -> bytes:
    return f"event: {kind}\nid: {number}\ndata: {json.dumps(document)}\n\n".encode()


def stream(*pieces: bytes) -> httpx.Response:
    return httpx.Response(200, content=b"".join(pieces), headers={"Content-Type": "text/event-stream"})


#: Opens a client of a service; its methods, and those of its jobs, have to be awaited.
Open = Callable[[Service], AbstractAsyncContextManager[Any]]

_RETRY = Retry(base=1.0, chance=lambda: 1.0)


class _Awaited:
    """A blocking client, its `jobs`, or one of these, behind the interface of the other kind."""

    def __init__(self, blocking: Client | Jobs | Job[Any]) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._blocking, name)
        if isinstance(value, Jobs):
            return _Awaited(value)
        if not inspect.ismethod(value):
            return value

        async def awaited(*arguments: Any, **more: Any) -> Any:
            result = value(*arguments, **more)
            return _Awaited(result) if isinstance(result, Job) else result

        async def iterated(*arguments: Any, **more: Any) -> AsyncIterator[Any]:
            for result in value(*arguments, **more):
                yield result

        return iterated if name in {"events", "list"} else awaited

    def __repr__(self) -> str:
        return repr(self._blocking)


@asynccontextmanager
async def blocking(service: Service) -> AsyncIterator[Any]:
    transport, sleep = service.transport, service.pauses.append
    with Client("http://test/base/", retry=_RETRY, transport=transport, sleep=sleep) as client:
        yield _Awaited(client)


@asynccontextmanager
async def asynchronous(service: Service) -> AsyncIterator[Any]:
    async def sleep(seconds: float) -> None:
        service.pauses.append(seconds)

    transport = service.transport
    async with AsyncClient("http://test/base/", retry=_RETRY, transport=transport, sleep=sleep) as client:
        yield client
