"""The users of one application: what knows them, and the part of the database that it needs."""

from __future__ import annotations

import asyncio
import contextlib

from service.auth.gate import Gate
from service.auth.quotas import Quotas
from service.auth.registry import Registry
from service.problems import Problem
from service.settings import Settings
from service.store import Store

__all__ = ["Users"]


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
