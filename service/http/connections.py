"""Limits on connections: their number, the time in which a request must arrive, and how they are refused.

uvicorn's protocol over httptools parses and answers; these checks come before a request is admitted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, Final

import httptools
import structlog
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.problems import MEDIA_TYPE, Problem

__all__ = [
    "PARTS_AT_A_TIME",
    "Admission",
    "GuardedProtocol",
    "Hosts",
    "Pace",
    "PacedFlow",
    "guarded",
    "holder_of",
]

_log = structlog.get_logger("service.access")

#: Most bytes of a request line and its headers, and of trailers or the framing of chunks in a row.
HEAD_BYTES: Final = 1 << 16
#: Most bytes of a request that are read and dropped behind an answer that came before its end.
DRAIN_BYTES: Final = 128 << 20
#: Connections with bodies of more bytes than this are read in turns.
PACED_BYTES: Final = 1 << 16
#: Connections that are resumed in one turn of the event loop; each may bring 256 KiB.
PARTS_AT_A_TIME: Final = 4


class Pace:
    """Resumes paused connections with large bodies a few at a time, in the order in which they were paused.

    So each turn of the event loop has time for everything else. A resumed connection does not hold back the
    others while it waits for its client.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[PacedFlow, None] = OrderedDict()

    def add(self, flow: PacedFlow) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._resume_some)
        self._waiting[flow] = None

    def remove(self, flow: PacedFlow) -> None:
        self._waiting.pop(flow, None)

    def _resume_some(self) -> None:
        for _ in range(min(PARTS_AT_A_TIME, len(self._waiting))):
            self._waiting.popitem(last=False)[0].resume_now()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._resume_some)


class PacedFlow(FlowControl):
    """Pauses reading at once, and resumes it when `Pace` says so."""

    def __init__(self, transport: asyncio.Transport, pace: Pace) -> None:
        super().__init__(transport)
        self._pace = pace

    def pause_reading(self) -> None:
        self._pace.remove(self)
        super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self._pace.add(self)

    def resume_now(self) -> None:
        if not self._transport.is_closing():
            super().resume_reading()


def holder_of(address: str) -> str:
    """The network whose connections count together: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a socket in the file system
    if parsed.version == 4:
        return address
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.ip_network((parsed, 64), strict=False))


class Hosts:
    """Names that a Host header may have, separated by commas; ``local`` for those of this machine.

    Against DNS rebinding: a page of another site may point its own name here, but the browser then sends that
    name. Addresses cannot be rebound, so ``local`` includes all of them.
    """

    def __init__(self, names: str) -> None:
        self._names = {name.strip().lower().rstrip(".") for name in names.split(",")} - {""}
        #: Whether a Host header names one of them; the same few come again and again.
        self.include: Callable[[str], bool] = lru_cache(maxsize=64)(self._include)

    def _include(self, host: str) -> bool:
        if "*" in self._names:
            return True
        bracketed, _, _ = host.lower().rpartition("]")
        name = bracketed.lstrip("[") or host.lower().partition(":")[0].rstrip(".")
        if name in self._names or any(
            name.endswith(one[1:]) and name != one[2:] for one in self._names if one.startswith("*.")
        ):
            return True
        if "local" not in self._names:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == "localhost" or name.endswith(".localhost")
        return True


@dataclass(slots=True)
class Admission:
    """The limits that all connections share, and the connections that wait for a request, oldest first.

    At most `connections` are open, and `each` of one holder (see `holder_of`), for `hosts`. The headers of a
    request must arrive within `header_seconds` of its first byte, the body within `body_seconds` after them.
    `refused` is called with the code of each problem that is answered here, `open` counts connections.
    """

    connections: int
    header_seconds: float
    body_seconds: float
    hosts: Hosts = field(default_factory=lambda: Hosts("*"))
    refused: Callable[[str], None] = lambda _problem: None
    pace: Pace = field(default_factory=Pace)
    each: int | None = None
    waiting: dict[GuardedProtocol, None] = field(default_factory=dict)
    holders: Counter[str] = field(default_factory=Counter)
    open: int = 0


class _Drained(asyncio.Transport):
    """The transport as the cycle of one request sees it: to close it first drains the connection."""

    def __init__(self, protocol: GuardedProtocol) -> None:
        super().__init__()
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._protocol.transport.write(data)

    def is_closing(self) -> bool:
        return self._protocol.draining or self._protocol.transport.is_closing()

    def close(self) -> None:
        self._protocol.close_drained()


class GuardedProtocol(HttpToolsProtocol):
    """One connection. Slow requests are answered 408, malformed ones 400, and too many connections 503.

    An answer may come before the end of the request, as 401 and 413 do. What the client still sends is then
    read and dropped: to close a socket with unread bytes resets the connection, and the answer is lost to a
    client that first sends all of its request. The rest may take `DRAIN_BYTES` and `body_seconds`, and its
    connection is the first that has to make room for others.
    """

    def __init__(self, admission: Admission, **more: Any) -> None:
        super().__init__(**more)
        self._admission = admission
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._begun = False
        self._body_bytes = 0
        #: Bytes since the last complete head, part of a body, or request.
        self._framing_bytes = 0
        self._refused = False
        self._holder = ""
        #: Whether the last answer was given, and what still comes is dropped.
        self.draining = False

    # ---------------------------------------------------------------------------------- connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self.flow = self._flow = PacedFlow(transport, self._admission.pace)
        self._admission.open += 1
        self._wait()
        self._set_timer(self._admission.header_seconds, self._late_headers)
        self._holder = holder_of((self.client or ("",))[0])
        admission = self._admission
        admission.holders[self._holder] += 1
        if len(self.connections) > admission.connections:
            self._take_place(iter(admission.waiting), f"There are {admission.connections:,} connections")
        elif admission.each is not None and admission.holders[self._holder] > admission.each:
            own = (one for one in admission.waiting if one._holder == self._holder)
            self._take_place(own, f"There are {admission.each:,} connections from this address")

    def _take_place(self, waiting: Iterator[GuardedProtocol], many: str) -> None:
        """Close the connection that has waited longest; if it is this one, refuse it."""
        longest = next(waiting)
        if longest is self:
            self._refuse("overloaded", f"{many} already, all at work.", {"Retry-After": "2"})
        else:
            longest.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._admission.open -= 1
        self._admission.holders[self._holder] -= 1
        if not self._admission.holders[self._holder]:
            del self._admission.holders[self._holder]
        self._admission.pace.remove(self._flow)
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Close an idle connection to make room for another one."""
        if self._in_head and not self.draining:
            self._refuse("request-timeout", "The headers were not complete when connections ran short.")
        else:
            self.transport.close()

    def close_drained(self) -> None:
        """Close the connection once its client has read the last answer, or sends no more of its request."""
        if self.draining or not (self._in_head or self._in_body) or self.transport.is_closing():
            self.transport.close()
            return
        self.draining = True
        self._body_bytes = 0
        self._wait()
        self._set_timer(self._admission.body_seconds, self.transport.close)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()

    def _drop(self, data: bytes) -> None:
        """Read on, in turns with other connections, unless too much has come."""
        self._body_bytes += len(data)
        if self._body_bytes > DRAIN_BYTES:
            self.transport.close()
        else:
            self.flow.pause_reading()
            self.flow.resume_reading()

    def shutdown(self) -> None:
        if self.draining:
            self.transport.close()
        else:
            super().shutdown()

    # ------------------------------------------------------------------------------------- requests

    def data_received(self, data: bytes) -> None:
        if self.draining:
            self._drop(data)
            return
        if self._refused:
            return
        self._framing_bytes += len(data)
        super().data_received(data)
        # Timers are set for what is missing now: most requests arrive whole, and need none.
        begun, self._begun = self._begun, False
        if (self._in_head or self._in_body) and self._framing_bytes > HEAD_BYTES:
            part = "headers" if self._in_head else "trailers, or the extensions of a chunk,"
            self._refuse("headers-too-large", f"The {part} take more than {HEAD_BYTES:,} bytes.")
        elif self in self._admission.waiting:
            if begun or self._timer is None:
                self._set_timer(self._admission.header_seconds, self._late_headers)
        elif self._timer is None and self._at_work and self.cycle.more_body:
            self._set_timer(self._admission.body_seconds, self._late_body)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._begun = True
        if not self._at_work:
            self._wait()

    def on_headers_complete(self) -> None:
        self._framing_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)
        if size > HEAD_BYTES:
            self._refuse(
                "headers-too-large", f"The headers take {size:,} bytes; the limit is {HEAD_BYTES:,}."
            )
            raise httptools.HttpParserError("long headers")
        names = [name for name, _ in self.headers]
        if self.parser.get_http_version() == "1.1" and names.count(b"host") != 1:
            raise httptools.HttpParserError("not exactly one Host")
        if b"transfer-encoding" in names and b"content-length" in names:
            # A proxy in front of this service may use the other of the two: request smuggling.
            raise httptools.HttpParserError("a length in two ways")
        codings = b",".join(value for name, value in self.headers if name == b"transfer-encoding")
        if b"transfer-encoding" in names and codings.strip().lower() != b"chunked":
            self._refuse(
                "bad-request", f"Transfer-Encoding is {codings.decode('latin-1')!r:.80}, not 'chunked'."
            )
            raise httptools.HttpParserError("another transfer coding")
        host = next((value for name, value in self.headers if name == b"host"), b"").decode("latin-1")
        if host and not self._admission.hosts.include(host):  # no browser sends none
            self._refuse("unknown-host", f"The host {host!r:.80} is not one of this service.")
            raise httptools.HttpParserError("another host")
        super().on_headers_complete()
        self.cycle.transport = _Drained(self)
        self._in_head, self._in_body = False, True
        self._body_bytes = 0
        self._stop_waiting()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._framing_bytes = 0
        if self.cycle.response_complete:
            self._drop(body)
            return
        self._body_bytes += len(body)
        if self._body_bytes > PACED_BYTES:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._framing_bytes = 0
        self._in_body = False
        if self._at_work:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        if self.draining:
            return
        super().on_response_complete()
        if not self._at_work and not self.transport.is_closing():
            self._wait()
            if self._in_body:
                self._set_timer(self._admission.body_seconds, self.transport.close)
            elif self._in_head:  # the next request has begun meanwhile
                self._set_timer(self._admission.header_seconds, self._late_headers)

    @property
    def _at_work(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        """Wait for a request. How long an answered connection stays open is the server's decision."""
        self._stop_waiting()
        self._admission.waiting[self] = None

    def _set_timer(self, seconds: float, late: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, late)

    def _stop_waiting(self) -> None:
        self._admission.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late_headers(self) -> None:
        if not self._in_head:  # nothing was asked for
            self.transport.close()
        elif not self._at_work:
            limit = self._admission.header_seconds
            self._refuse("request-timeout", f"The headers were not complete within {limit:g} s.")

    def _late_body(self) -> None:
        if self._at_work and self.cycle.more_body:
            limit = self._admission.body_seconds
            self._refuse("request-timeout", f"The body was not complete within {limit:g} s.")

    # ------------------------------------------------------------------------------------- refusals

    def send_400_response(self, msg: str) -> None:
        self._refuse("bad-request", msg)

    def _refuse(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        """Answer with a problem, unless another answer has begun, and close."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._stop_waiting()
        request_id, problem = uuid.uuid4().hex, Problem(code, detail)
        if not (self._at_work and self.cycle.response_started):
            body = json.dumps(problem.document(f"urn:request:{request_id}")).encode()
            fields = {
                "Content-Type": MEDIA_TYPE,
                "Content-Length": str(len(body)),
                "Connection": "close",
                "X-Request-ID": request_id,
                "X-Content-Type-Options": "nosniff",
                **(headers or {}),
            }
            status = HTTPStatus(problem.kind.status)
            lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in fields.items())]
            dates = [name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers]
            self.transport.write("\r\n".join([*lines, ""]).encode() + b"".join(dates) + b"\r\n" + body)
        if self._at_work:  # wakes the application where it waits for the rest of the request
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if code in ("overloaded", "request-timeout"):  # these are to be gone
            self.transport.close()
        else:
            self.close_drained()
        self._admission.refused(code)
        _log.info(
            "request refused",
            request_id=request_id,
            status=problem.kind.status,
            problem=code,
            detail=detail,
            client=(self.client or ("",))[0],
        )


def guarded(admission: Admission) -> Any:
    """The factory of connections that uvicorn calls."""
    return partial(GuardedProtocol, admission)
