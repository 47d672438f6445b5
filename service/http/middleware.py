"""Around every request: an id, one access line, and an answer even to a bug."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import uuid
from types import TracebackType
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.responses import path_of, problem_response
from service.problems import Problem
from service.telemetry import tracing
from service.telemetry.metrics import Metrics

__all__ = ["DRAIN_BYTES", "HeadAsGet", "RequestContext"]

_log = structlog.get_logger("service.access")

_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
#: Most bytes of a request that are read and dropped behind an answer that came before its end, and how long.
DRAIN_BYTES: Final = 128 << 20
_DRAIN_SECONDS: Final = 60.0
_QUIET: Final = frozenset({"/healthz", "/metrics", "/readyz"})
_TRACE_HEADERS: Final = {b"traceparent": "traceparent", b"tracestate": "tracestate"}

#: On every answer: nobody guesses its type, frames it, learns from where it is left, or reads it from another
#: site. Pages have a policy of their own; what is no page may load nothing.
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
#: For two years, browsers come back by HTTPS only.
_HTTPS_ONLY: Final = (b"strict-transport-security", b"max-age=63072000")


class RequestContext:
    """Takes a well-formed X-Request-ID from the caller or makes one; logs, counts; turns bugs into 500.

    A W3C trace context of the caller goes on from here; where spans are recorded, ``traceresponse`` names
    ours.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics | None = None) -> None:
        self._app = app
        self._metrics = metrics or Metrics()
        self._log = structlog.get_logger("service.access").bind()  # once, as it costs as much as a line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._metrics, self._log)
        with exchange:
            try:
                await self._app(scope, exchange.receive, exchange.send)
            except Exception:  # noqa: BLE001 - the last line of defence: log it, answer 500, stay up
                _log.exception("request failed")
                await exchange.fail(receive)
            except asyncio.CancelledError:
                # Only the server cancels requests: when it stops, those that were not finished in time.
                await exchange.cut_off(receive)


class HeadAsGet:
    """Answers HEAD as GET without its body, wherever there is a GET; its headers are the same (RFC 9110)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        scope["state"]["head"] = True
        inner = {**scope, "method": "GET"}
        await self._app(inner, receive, send_head)
        scope["route"] = inner.get("route")


class _Exchange:
    """One request and what was answered, from ``with`` to its end."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, metrics: Metrics, log: Any) -> None:
        self.request_id = ""
        carried = {}
        for name, value in scope["headers"]:
            if name == b"x-request-id" and not self.request_id and _WELL_FORMED.fullmatch(value):
                self.request_id = str(value, "ascii")
            elif name in _TRACE_HEADERS:
                carried[_TRACE_HEADERS[name]] = value.decode("latin-1")
        self.request_id = self.request_id or uuid.uuid4().hex
        self._scope = scope
        self._receive = receive
        self._send = send
        #: Whether more of the body comes, and whether the connection is closed behind the answer.
        self._unread = True
        self._closes = False
        self._metrics = metrics
        self._log = log
        self._began = time.perf_counter()
        self._status: int | None = None
        self._state = scope.setdefault("state", {})
        self._state.update(request_id=self.request_id, facts={})
        self._tracing = tracing.span(scope["method"], carried, kind="SERVER")

    def __enter__(self) -> None:
        self._metrics.in_flight += 1
        self._span = self._tracing.__enter__()
        known = {"request_id": self.request_id}
        if self._span.trace_id:
            known["trace_id"] = self._span.trace_id
        self._tokens = structlog.contextvars.bind_contextvars(**known)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what was held for the request (the room of its body), and tell of it."""
        if "held" in self._state:
            self._state["held"].close()
        self._metrics.in_flight -= 1
        self._tell()
        structlog.contextvars.reset_contextvars(**self._tokens)
        self._tracing.__exit__(kind, error, trace)

    async def receive(self) -> Message:
        message = await self._receive()
        self._unread = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._closes = (b"connection", b"close") in message["headers"]
            headers = [*message["headers"], (b"x-request-id", self.request_id.encode()), *_ALWAYS]
            if b"content-security-policy" not in dict(message["headers"]):
                headers.append(_POLICY)
            if self._scope.get("scheme") == "https":
                headers.append(_HTTPS_ONLY)
            if self._span.recorded:
                headers.append((b"traceresponse", tracing.carrier()["traceparent"].encode()))
            message = {**message, "headers": headers}
        elif self._closes and self._unread and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _drain(self) -> None:
        """Read and drop the rest of the body behind an answer that closes the connection.

        To close a socket with unread bytes resets the connection, and the answer is lost to a client that
        first sends all of its request.
        """
        dropped = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while self._unread and dropped <= DRAIN_BYTES:
                    dropped += len((await self.receive()).get("body", b""))

    async def fail(self, receive: Receive) -> None:
        if self._status is None:
            bug = Problem("internal-error", "The request could not be handled; that is a bug in the service.")
            await problem_response(self._scope, bug)(self._scope, receive, self.send)

    async def cut_off(self, receive: Receive) -> None:
        if self._status is None:
            stopped = Problem(
                "stopping",
                "The service stops, and this request was not finished in time.",
                remedy="Send it again.",
                headers={"Retry-After": "2", "Connection": "close"},
            )
            await problem_response(self._scope, stopped)(self._scope, receive, self.send)

    def _tell(self) -> None:
        """The access line, the metrics, and what the span is called."""
        scope, facts, status = self._scope, self._scope["state"]["facts"], self._status or 0
        seconds = time.perf_counter() - self._began
        route = getattr(scope.get("route"), "path", None)
        self._metrics.answered(route, scope["method"], status, seconds)
        if "problem" in facts:
            self._metrics.problem(facts["problem"])
        if self._span.recorded:
            self._span.name = f"{scope['method']} {route}" if route else scope["method"]
            self._span.failed = str(status) if status >= 500 else None
            self._span.attributes |= {
                "http.request.method": scope["method"],
                "http.response.status_code": status,
                "url.path": scope["path"],
                "url.scheme": scope.get("scheme", "http"),
                "arenaplan.request_id": self.request_id,
                **({"http.route": route} if route else {}),
                **{f"arenaplan.{name}": fact for name, fact in facts.items() if name != "detail"},
            }
        level = self._log.debug if path_of(scope) in _QUIET else self._log.info
        level(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=self._status,
            milliseconds=round(seconds * 1000, 1),
            client=(scope.get("client") or ("",))[0],
            **facts,
        )
