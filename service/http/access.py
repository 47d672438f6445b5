"""Authentication, authorisation and quotas before every route, and the audit line of the log after it.

`needed_scope` says what a path needs. No body is read before the caller is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.auth.principal import Principal, needed_scope
from service.auth.quotas import Quotas
from service.auth.registry import Gate, Registry
from service.http.cache import PLAN_SECONDS
from service.http.responses import header_of, note, path_of, problem_response
from service.problems import Problem
from service.settings import Settings
from service.store import Store

__all__ = ["Access", "Users"]

#: A refused request with a longer body is not read to its end: the connection is closed.
UNREAD_BYTES: Final = 1 << 16
#: Requests that only read are audited where they were refused.
_REFUSED: Final = frozenset({401, 403, 429})
#: Writes audit lines whatever the least severe event of the log is.
_audit: Any = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


class Access:
    """Lets requests through that `gate` knows, each with its principal in ``request.state``."""

    def __init__(self, app: ASGIApp, gate: Gate, settings: Settings) -> None:
        self._app = app
        self._gate = gate
        self._registry = gate.registry
        self._audit = settings.audit
        self._longest = settings.body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        needed = needed_scope(path_of(scope)) if scope["type"] == "http" else None
        if needed is None:
            await self._app(scope, receive, send)
            return
        principal: Principal | None = None
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if principal is not None and (limits := self._registry.meter.headers(principal.tenant)):
                    more = [(name.lower().encode(), value.encode()) for name, value in limits]
                    message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            with contextlib.ExitStack() as held:
                try:
                    principal = await self._gate.recognise(_authorization(scope))
                    scope["state"]["principal"] = principal
                    note(scope, tenant=principal.tenant, subject=principal.subject)
                    structlog.contextvars.bind_contextvars(tenant=principal.tenant)
                    if principal.key_id is not None:
                        note(scope, key=principal.key_id)
                    _check_scope(principal, needed)
                    held.enter_context(await self._admitted(scope, principal.tenant, needed))
                except Problem as problem:
                    await self._refuse(problem, scope, receive, send_on)
                else:
                    await self._app(scope, receive, send_on)
        finally:
            self._write_down(scope, principal, status)

    async def _admitted(
        self, scope: Scope, tenant: str, needed: str
    ) -> contextlib.AbstractContextManager[None]:
        """The request counted against the quotas; what it stores is known only by its length."""
        meter = self._registry.meter
        if path_of(scope).endswith("/events"):  # open for as long as a job takes, and costs nothing
            return contextlib.nullcontext()
        if meter.quotas_of(tenant).stored_bytes is None or not _stores(scope):
            return meter.admitted(tenant)
        try:
            async with asyncio.timeout(None if needed == "jobs" else PLAN_SECONDS):
                stored = await self._registry.stored_bytes(tenant)
        except (Problem, TimeoutError):
            if needed == "jobs":
                raise
            # The plan is made but not stored: the bytes that the tenant stores cannot be counted now.
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"prefer"]
            return meter.admitted(tenant)
        length = header_of(scope, b"content-length")
        more = int(length) if length is not None and length.isdecimal() else self._longest
        return meter.admitted(tenant, stored=stored, more=more)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        note(scope, problem=problem.kind.code, detail=problem.detail)
        response = problem_response(scope, problem)
        length = header_of(scope, b"content-length") or "0"
        if header_of(scope, b"transfer-encoding") or not length.isdecimal() or int(length) > UNREAD_BYTES:
            response.headers["Connection"] = "close"
        await response(scope, receive, send)

    def _write_down(self, scope: Scope, principal: Principal | None, status: int) -> None:
        only_read = scope["method"] in ("GET", "HEAD") and status not in _REFUSED
        if self._audit == "off" or (self._audit == "changes" and only_read):
            return
        _audit.info(
            "audit",
            action=scope["method"],
            target=scope["path"][:500],
            result=str(status or "none"),
            tenant=principal.tenant if principal else None,
            subject=principal.subject if principal else None,
            key=principal.key_id if principal else None,
            client=(scope.get("client") or (None,))[0],
        )


def _check_scope(principal: Principal, needed: str) -> None:
    if needed not in principal.scopes:
        has = ", ".join(sorted(principal.scopes)) or "none"
        raise Problem(
            "forbidden",
            f"This needs the scope {needed!r}; the key or token has {has}.",
            remedy="Use another key, or ask for one with this scope.",
            headers={
                "WWW-Authenticate": f'Bearer realm="arenaplan", error="insufficient_scope", scope="{needed}"'
            },
        )


def _stores(scope: Scope) -> bool:
    """Whether a request leaves something in the database."""
    path = path_of(scope)
    if scope["method"] == "PUT" or (scope["method"] == "POST" and path == "/v1/jobs"):
        return True
    return "respond-async" in (header_of(scope, b"prefer") or "")


def _authorization(scope: Scope) -> str | None:
    """The Authorization header. Several are refused: a proxy may have checked another one of them."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) > 1:
        raise Problem("bad-request", "There is more than one Authorization header.")
    return found[0].decode("latin-1") if found else None


class Users:
    """`gate` recognises callers; `registry` knows tenants and their quotas."""

    def __init__(self, settings: Settings, store: Store) -> None:
        quotas = Quotas(
            settings.quota_requests_per_minute,
            settings.quota_cpu_seconds_per_hour,
            settings.quota_stored_bytes,
            settings.quota_concurrent_requests,
        )
        self.registry = Registry(store, quotas, settings.usage_days, settings.auth_outage_seconds)
        verifier = None
        if "oidc" in settings.auth:
            from service.auth.oidc import Claims, Verifier  # needs an extra

            verifier = Verifier(
                settings.oidc_issuer or "",
                settings.oidc_audience or "",
                frozenset(settings.oidc_algorithms.split(",")),
                Claims(settings.oidc_tenant_claim, settings.oidc_scope_claim, settings.oidc_scope_prefix),
            )
        self.gate = Gate(self.registry, "keys" in settings.auth, verifier)
        self._exchange: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read the known keys and users. There are none until the database can be used."""
        with contextlib.suppress(Problem):
            await self.registry.sync()
        self._exchange = asyncio.create_task(self.registry.run())

    async def close(self) -> None:
        """Tell the database of use that it has not heard of."""
        if self._exchange is not None:
            self._exchange.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._exchange
            await self.registry.close()
