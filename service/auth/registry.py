"""Keys and tenants as this process knows them, their use that is not in the database yet, and who sends what.

Requests are judged by a copy in memory that is read again every few seconds, so that none of them waits for
the database: a key that is revoked, or a quota that is changed, counts after `SYNC_SECONDS`. On the same
occasion the database is told what was used; a process that is killed in between takes the last seconds of
that with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy import Connection

from service.auth import table
from service.auth.principal import Principal
from service.auth.quotas import Meter, Quotas, hour_of
from service.auth.table import Key, Tenant, read_key
from service.problems import Problem
from service.store import Store
from service.store.trouble import Reason

if TYPE_CHECKING:  # needs an extra
    from service.auth.oidc import Verifier

__all__ = ["SYNC_SECONDS", "Gate", "Registry"]

_log = structlog.get_logger("service.auth")

#: How long it takes until what was changed in the database counts here.
SYNC_SECONDS: Final = 3.0
#: A key that is not in the copy may be new: the database is asked again, at most this often, and the caller
#: waits for it.
LOOK_AGAIN_SECONDS: Final = 0.5
#: How often old usage is removed.
FORGET_SECONDS: Final = 3600.0

_CHALLENGE: Final = 'Bearer realm="arenaplan"'


@dataclass(frozen=True, slots=True)
class _Copy:
    at: float  # by `Registry.ticks`
    keys: Mapping[str, Key]
    tenants: Mapping[str, Tenant]
    # Of the keys in the database, when they were read.
    state: tuple[int, int, float] | None = None


@dataclass(slots=True)
class Registry:
    """`usual` quotas hold where nothing else is said of a tenant; usage is kept for `usage_days`.

    While the database does not answer, the copy is used for `outage_seconds`; then all callers are refused.
    `ticks` is a monotonic clock: setting the time of day does not change it.
    """

    store: Store
    usual: Quotas
    usage_days: float = 90.0
    outage_seconds: float = 3600.0
    clock: Callable[[], float] = time.time
    ticks: Callable[[], float] = time.monotonic
    meter: Meter = field(init=False)
    _copy: _Copy = field(default_factory=lambda: _Copy(-math.inf, {}, {}))
    _used: dict[str, float] = field(default_factory=dict)
    _forgot: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.meter = Meter(self.quotas_of, self.clock)

    # ------------------------------------------------------------------------------------- asking

    async def key(self, key_id: str) -> Key | None:
        """The key with this id. Raises `Problem` ``database-unavailable`` where that cannot be known."""
        key, asked = self._copy.keys.get(key_id), self.ticks()
        if key is not None and asked - self._copy.at <= self.outage_seconds:
            return key
        async with self._turn:
            if self._copy.at < asked:  # else somebody has looked meanwhile, for all who wait
                await asyncio.sleep(max(0.0, self._copy.at + LOOK_AGAIN_SECONDS - self.ticks()))
                await self._exchange(tells=False)
        return self._copy.keys.get(key_id)

    def tenant(self, name: str) -> Tenant:
        return self._copy.tenants.get(name) or Tenant(name)

    def quotas_of(self, tenant: str) -> Quotas:
        """The present settings of a tenant."""
        known = self._copy.tenants.get(tenant)
        return self.usual if known is None else known.quotas_over(self.usual)

    async def stored_bytes(self, tenant: str) -> int:
        """As the database has it; one query."""
        return await self.store.read(lambda connection: table.stored_bytes(connection, tenant))

    # ------------------------------------------------------------------------------------- telling

    def note_use(self, key: Key) -> None:
        self._used[key.id] = self.clock()

    # ----------------------------------------------------------------------------------- exchanging

    async def run(self) -> None:
        """Exchange with the database for ever. What it did not hear it is told the next time."""
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            try:
                await self.sync()
            except Problem:  # said in the log by the store
                continue
            except Exception:  # noqa: BLE001 - without this task, no key that was revoked would be noticed
                _log.exception("keys and usage could not be exchanged with the database")

    async def sync(self) -> None:
        """Exchange now. Raises `Problem` ``database-unavailable``."""
        async with self._turn:
            try:
                await self._exchange()
            except Problem as problem:
                if problem.extensions.get("reason") in (Reason.FULL, Reason.READ_ONLY):
                    await self._exchange(tells=False)
                raise

    async def _exchange(self, *, tells: bool = True) -> None:
        """Read keys, tenants and usage; `tells`: after the database was told what it has not heard."""
        now, looked = self.clock(), self.ticks()
        used, taken = dict[str, float](), dict[str, tuple[int, float]]()
        if tells:
            used, self._used = self._used, {}
            taken = self.meter.take_fresh()
        forget = tells and now - self._forgot > FORGET_SECONDS
        hour = hour_of(now)

        before = self._copy

        def exchange(connection: Connection) -> tuple[_Copy, dict[str, float]]:
            table.note_use(connection, used)
            table.add_usage(connection, hour, taken)
            if forget:
                table.forget_before(connection, now - self.usage_days * 86400)
            state, keys = table.state_of_keys(connection), before.keys
            if state != before.state:
                keys = {one.id: one for one in table.list_keys(connection)}
            tenants = {one.name: one for one in table.list_tenants(connection)}
            return _Copy(looked, keys, tenants, state), table.cpu_seconds_in(connection, hour)

        writes = bool(used or taken or forget)
        work = asyncio.ensure_future((self.store.write if writes else self.store.read)(exchange))
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError as error:  # what has begun happens: to tell it again would be a lie
                cancelled = error
        if work.exception() is not None:
            self.meter.give_back(taken)
            self._used = used | self._used
        copy, cpu = work.result()
        if forget:
            self._forgot = now
        self.meter.learn(hour, cpu)
        self._copy = copy
        if cancelled is not None:
            raise cancelled

    async def close(self) -> None:
        """Tell the database what it has not heard yet, if it answers."""
        with contextlib.suppress(Problem):
            await self.sync()


@dataclass(frozen=True, slots=True)
class Gate:
    """Recognises callers by API keys, by tokens of an identity provider, or by either."""

    registry: Registry
    keys: bool
    verifier: Verifier | None

    async def recognise(self, authorization: str | None) -> Principal:
        """The principal that sent this header. Raises `Problem`, mostly ``unauthorized`` or ``forbidden``."""
        if authorization is None:
            raise _unauthorized("The request has no Authorization header.", _CHALLENGE)
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized("The Authorization header is not `Bearer` and a key or token.", _CHALLENGE)
        if self.keys and token.startswith("ap_"):
            principal = await self._by_key(token)
        elif self.verifier is not None:
            principal = await self.verifier.principal(token)
        else:
            raise _wrong("What was sent is not an API key.")
        if self.registry.tenant(principal.tenant).disabled:
            raise Problem("forbidden", "The tenant is disabled.", remedy="Ask who runs the service.")
        return principal

    async def _by_key(self, token: str) -> Principal:
        parts = read_key(token)
        if parts is None:
            raise _wrong("What was sent is not an API key: it may have been cut off.")
        key_id, secret = parts
        key = await self.registry.key(key_id)
        # One answer for both, so that nobody learns which keys there are.
        if key is None or not key.opens(secret):
            raise _wrong("The API key is not known.")
        if refusal := key.refusal(self.registry.clock()):
            raise _wrong(f"The API key ap_{key_id} {refusal}.")
        self.registry.note_use(key)
        return Principal(key.tenant, key.name, key.scopes, key_id)


def _wrong(detail: str) -> Problem:
    return _unauthorized(detail, f'{_CHALLENGE}, error="invalid_token"')


def _unauthorized(detail: str, challenge: str) -> Problem:
    return Problem(
        "unauthorized",
        detail,
        remedy="Send a key that `arenaplan keys create` has made, or a token of the identity provider.",
        headers={"WWW-Authenticate": challenge},
    )
