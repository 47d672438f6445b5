"""Tenants, keys and usage in the database: each function is a unit of work of the store."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, union, update

from service.auth.quotas import Quotas
from service.store import schema
from service.store.database import upsert

__all__ = [
    "Key",
    "NewKey",
    "Tenant",
    "Usage",
    "add_key",
    "add_usage",
    "cpu_seconds_in",
    "digest_of",
    "forget_before",
    "list_keys",
    "list_tenants",
    "new_key",
    "note_use",
    "read_key",
    "revoke_key",
    "set_tenant",
    "state_of_keys",
    "stored_bytes",
    "usage_since",
]

_FORM: Final = re.compile(r"ap_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored. Times are seconds since 1970; `digest` is the SHA-256 of the secret."""

    id: str
    tenant: str
    name: str
    scopes: frozenset[str]
    digest: bytes
    created: float
    expires: float | None = None
    revoked: float | None = None
    used: float | None = None

    def opens(self, secret: str) -> bool:
        """Whether this is its secret. Takes the same time for every wrong one."""
        return hmac.compare_digest(self.digest, digest_of(secret))

    def refusal(self, now: float) -> str | None:
        """Why the key is not taken any more; None where it is."""
        if self.revoked is not None:
            return "was revoked"
        return "has expired" if self.expires is not None and self.expires <= now else None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as only its owner sees it: `text` is to be sent, `id` and `digest` are to be stored."""

    id: str
    digest: bytes
    text: str


def new_key() -> NewKey:
    key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    return NewKey(key_id, digest_of(secret), f"ap_{key_id}_{secret}")


def read_key(token: str) -> tuple[str, str] | None:
    """Id and secret; None for what has another form."""
    match = _FORM.fullmatch(token)
    return (match[1], match[2]) if match else None


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class Tenant:
    """The settings of one tenant that differ from the common ones: `quotas` by the names of `Quotas`."""

    name: str
    disabled: bool = False
    quotas: Mapping[str, int | None] = field(default_factory=dict)

    def quotas_over(self, usual: Quotas) -> Quotas:
        return dataclasses.replace(usual, **self.quotas)


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a tenant."""

    tenant: str
    requests: int
    cpu_seconds: float
    stored_bytes: int


# -------------------------------------------------------------------------------------------- keys


def add_key(connection: Connection, key: Key) -> None:
    """A key of a tenant, which need not be known before."""
    row = {**dataclasses.asdict(key), "scopes": " ".join(sorted(key.scopes))}
    connection.execute(insert(schema.api_keys), [row])


def list_keys(connection: Connection, tenant: str | None = None) -> list[Key]:
    """The keys of a tenant or of all, the newest first."""
    query = select(schema.api_keys).order_by(schema.api_keys.c.created.desc(), schema.api_keys.c.id)
    if tenant is not None:
        query = query.where(schema.api_keys.c.tenant == tenant)
    return [
        Key(**{**row, "scopes": frozenset(row["scopes"].split()), "digest": bytes(row["digest"])})
        for row in connection.execute(query).mappings()
    ]


def state_of_keys(connection: Connection) -> tuple[int, int, float]:
    """Another one after each change: keys are added and revoked, and nothing else ever happens to them."""
    keys = schema.api_keys.c
    row = connection.execute(
        select(func.count(), func.count(keys.revoked), func.coalesce(func.max(keys.created), 0.0))
    ).one()
    return row[0], row[1], row[2]


def revoke_key(connection: Connection, key_id: str, now: float) -> Key | None:
    """The key as it was; None if no key has this name. A key that was revoked before stays as it was."""
    before = next((key for key in list_keys(connection) if key.id == key_id), None)
    if before is not None and before.revoked is None:
        table = schema.api_keys
        connection.execute(update(table).where(table.c.id == key_id).values(revoked=now))
    return before


def note_use(connection: Connection, used: Mapping[str, float]) -> None:
    """When keys were used last."""
    table = schema.api_keys
    for key_id, at in used.items():
        newer = and_(table.c.id == key_id, or_(table.c.used.is_(None), table.c.used < at))
        connection.execute(update(table).where(newer).values(used=at))


# ----------------------------------------------------------------------------------------- tenants


def set_tenant(connection: Connection, tenant: Tenant) -> None:
    """Say of a tenant what differs from the settings; replaces what was said before."""
    table = schema.tenants
    values = {"disabled": tenant.disabled, "quotas": dict(tenant.quotas)}
    done = connection.execute(update(table).where(table.c.name == tenant.name).values(**values))
    if done.rowcount == 0:
        connection.execute(insert(table).values(name=tenant.name, created=time.time(), **values))


def list_tenants(connection: Connection) -> list[Tenant]:
    """Those of whom something was said, by name."""
    table = schema.tenants
    rows = connection.execute(select(table.c.name, table.c.disabled, table.c.quotas).order_by(table.c.name))
    names = {one.name for one in dataclasses.fields(Quotas)}
    # A quota that another version knows is not for this one.
    return [Tenant(name, off, {k: v for k, v in quotas.items() if k in names}) for name, off, quotas in rows]


# ------------------------------------------------------------------------------------------- usage


def add_usage(connection: Connection, hour: int, taken: Mapping[str, tuple[int, float]]) -> None:
    """Requests and seconds of processor time of tenants in an hour, on top of what is there."""
    table = schema.usage
    for tenant, (requests, cpu) in taken.items():
        row = upsert(connection, table).values(tenant=tenant, hour=hour, requests=requests, cpu_seconds=cpu)
        more = {
            "requests": table.c.requests + row.excluded.requests,
            "cpu_seconds": table.c.cpu_seconds + row.excluded.cpu_seconds,
        }
        connection.execute(row.on_conflict_do_update(index_elements=["tenant", "hour"], set_=more))


def cpu_seconds_in(connection: Connection, hour: int) -> dict[str, float]:
    """Processor time of every tenant in an hour."""
    table = schema.usage
    rows = connection.execute(select(table.c.tenant, table.c.cpu_seconds).where(table.c.hour == hour))
    return {tenant: float(cpu) for tenant, cpu in rows}


def usage_since(connection: Connection, hour: int) -> list[Usage]:
    """The usage of tenants since an hour, by name; and the bytes that are stored for them now."""
    table, blobs = schema.usage, schema.blobs
    spent = {
        tenant: (int(requests), float(cpu))
        for tenant, requests, cpu in connection.execute(
            select(table.c.tenant, func.sum(table.c.requests), func.sum(table.c.cpu_seconds))
            .where(table.c.hour >= hour)
            .group_by(table.c.tenant)
        )
    }
    query = select(blobs.c.tenant, func.sum(blobs.c.size)).group_by(blobs.c.tenant)
    stored = {tenant: int(size) for tenant, size in connection.execute(query)}
    return [
        Usage(tenant, *spent.get(tenant, (0, 0.0)), stored.get(tenant, 0))
        for tenant in sorted(spent.keys() | stored.keys())
    ]


def stored_bytes(connection: Connection, tenant: str) -> int:
    """The bytes stored for a tenant: its graphs, and requests and results of its jobs. One query."""
    blobs, jobs, graphs = schema.blobs, schema.jobs, schema.graphs
    named = union(
        select(graphs.c.digest).where(graphs.c.tenant == tenant),
        *(
            select(one).where(jobs.c.tenant == tenant)
            for one in (jobs.c.request, jobs.c.graph, jobs.c.result)
        ),
    )
    query = select(func.sum(blobs.c.size)).where(blobs.c.tenant == tenant, blobs.c.digest.in_(named))
    return int(connection.execute(query).scalar() or 0)


def forget_before(connection: Connection, moment: float) -> None:
    """Remove usage that is older."""
    connection.execute(delete(schema.usage).where(schema.usage.c.hour < int(moment // 3600)))
