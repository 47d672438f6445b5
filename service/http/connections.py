"""Which connections and which hosts are served; a proxy in front bounds slow clients and long headers."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.http.responses import note, problem_response
from service.problems import Problem

__all__ = ["BoundedProtocol", "CheckHost", "Hosts"]


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which closes connections far beyond its `limit_concurrency`.

    uvicorn answers requests beyond that limit 503. A connection without a request takes an open file as
    well, so those beyond the limit and a tenth of it are closed at once.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) > limit + limit // 10:
            transport.close()


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


class CheckHost:
    """Answers 421 where the Host header is none of `hosts`, and 400 where a proxy may read another request.

    Request smuggling needs two Host headers, two kinds of lengths, or a transfer coding that one side skips.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
            return
        note(scope, problem=problem.kind.code, detail=problem.detail)
        await problem_response(scope, problem)(scope, receive, send)

    def _problem(self, scope: Scope) -> Problem | None:
        hosts: list[bytes] = []
        codings: list[bytes] = []
        has_length = False
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"transfer-encoding":
                codings.append(value)
            elif name == b"content-length":
                has_length = True
        close = {"Connection": "close"}
        if len(hosts) > 1 or (not hosts and scope.get("http_version") == "1.1"):
            return Problem("bad-request", "There is not exactly one Host header.", headers=close)
        if codings and (has_length or b",".join(codings).strip().lower() != b"chunked"):
            return Problem(
                "bad-request",
                "The length of the body must be given once, or be chunked alone.",
                headers=close,
            )
        host = hosts[0].decode("latin-1") if hosts else ""
        if host and not self._hosts.include(host):  # no browser sends none
            return Problem(
                "unknown-host", f"The host {host!r:.80} is not one of this service.", headers=close
            )
        return None
