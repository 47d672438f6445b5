"""Keys and tenants as a process knows them: from memory, a few seconds behind the database."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from service.auth import table
from service.auth.quotas import Quotas, hour_of
from service.auth.registry import Gate, Registry
from service.auth.table import Key, Tenant, digest_of, new_key, read_key
from service.problems import Problem
from service.store import Store, schema


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Counted:
    """A store that counts what it is asked, or does not answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, work: Any) -> Any:
        return await self._ask(self._store.read, work)

    async def write(self, work: Any) -> Any:
        return await self._ask(self._store.write, work)

    async def _ask(self, how: Any, work: Any) -> Any:
        self.asked += 1
        if self.away:
            raise Problem("database-unavailable", "It is away.")
        return await how(work)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counted(store: Store) -> Counted:
    return Counted(store)


@pytest.fixture
def registry(counted: Counted, clock: Clock) -> Registry:
    return Registry(counted, Quotas(requests_per_minute=10), clock=clock, ticks=clock)  # type: ignore[arg-type]


def add(store: Store, **more: Any) -> tuple[Key, str]:
    made = new_key()
    values = {"tenant": "acme", "name": "farm", "scopes": frozenset({"plan"}), "created": time.time()}
    key = Key(**{"id": made.id, "digest": made.digest, **values, **more})
    with store.transaction() as connection:
        table.add_key(connection, key)
    return key, made.text


def test_keys_are_long_and_random() -> None:
    texts = {new_key().text for _ in range(1000)}
    assert len(texts) == 1000
    for text in texts:
        key_id, secret = read_key(text) or ("", "")
        assert (len(key_id), len(secret)) == (16, 64)
    for bad in ("", "ap_", f"{text} ", f"{text}\n", text.upper(), f"x{text}", text.replace("ap_", "sk_")):
        assert read_key(bad) is None


def test_the_database_does_not_hold_the_secret(store: Store) -> None:
    _, text = add(store)
    _, secret = read_key(text) or ("", "")
    with store.transaction(reads=True) as connection:
        rows = connection.exec_driver_sql("select * from api_keys").all()
        (key,) = table.list_keys(connection)
    assert secret not in str(rows)
    assert bytes.fromhex(secret) not in [bytes(v) for row in rows for v in row if isinstance(v, bytes)]
    assert key.digest == digest_of(secret)
    assert key.opens(secret)
    assert not key.opens("0" * 64)


async def test_no_request_waits_for_the_database(store: Store, counted: Counted, registry: Registry) -> None:
    _, text = add(store)
    await registry.sync()
    gate, asked = Gate(registry, True, None), counted.asked
    for _ in range(100):
        assert (await gate.recognise(f"Bearer {text}")).tenant == "acme"
    assert counted.asked == asked


async def test_keys_that_are_made_up_do_not_flood_the_database(counted: Counted, registry: Registry) -> None:
    """All who wait are answered by one look."""
    await registry.sync()
    gate, asked = Gate(registry, True, None), counted.asked
    answers = await asyncio.gather(
        *(gate.recognise(f"Bearer {new_key().text}") for _ in range(100)), return_exceptions=True
    )
    assert {str(answer) for answer in answers} == {"The API key is not known."}
    assert counted.asked - asked == 1


async def test_a_new_key_is_found_at_once(store: Store, registry: Registry) -> None:
    await registry.sync()
    key, _ = add(store)
    found = await registry.key(key.id)
    assert found is not None
    assert found.scopes == {"plan"}


async def test_a_key_that_ends(store: Store, registry: Registry, clock: Clock) -> None:
    _, text = add(store, expires=time.time() + 100)
    gate = Gate(registry, True, None)
    await gate.recognise(f"Bearer {text}")
    clock.ahead = 100
    with pytest.raises(Problem, match="has expired"):
        await gate.recognise(f"Bearer {text}")


async def test_keys_are_read_again_when_they_have_changed(store: Store, registry: Registry) -> None:
    first, _ = add(store)
    await registry.sync()
    known = await registry.key(first.id)
    await registry.sync()
    assert await registry.key(first.id) is known
    second, _ = add(store)
    await registry.sync()
    assert await registry.key(second.id) is not None
    with store.transaction() as connection:
        table.revoke_key(connection, first.id, 1.0)  # by a clock that is slow
    await registry.sync()
    revoked = await registry.key(first.id)
    assert revoked is not None
    assert revoked.revoked == 1.0


async def test_without_the_database(store: Store, counted: Counted, registry: Registry, clock: Clock) -> None:
    """Keys that are known stay good for a while; then nobody can be recognised."""
    key, text = add(store)
    gate = Gate(registry, True, None)
    await gate.recognise(f"Bearer {text}")
    registry.meter.spend("acme", 1.5)
    counted.away = True
    with pytest.raises(Problem, match="away"):
        await registry.sync()
    await gate.recognise(f"Bearer {text}")
    clock.ahead = registry.outage_seconds + 1
    with pytest.raises(Problem) as caught:
        await gate.recognise(f"Bearer {text}")
    assert caught.value.kind.code == "database-unavailable"
    counted.away = False
    await registry.sync()
    with store.transaction(reads=True) as connection:
        (usage,) = table.usage_since(connection, 0)
        (known,) = table.list_keys(connection)
    assert (usage.tenant, usage.cpu_seconds, known.used is not None) == ("acme", 1.5, True)
    assert known.id == key.id


async def test_quotas_of_tenants(store: Store, registry: Registry) -> None:
    with store.transaction() as connection:
        table.set_tenant(connection, Tenant("acme", quotas={"requests_per_minute": None, "stored_bytes": 5}))
        table.set_tenant(connection, Tenant("gone", disabled=True))
        table.set_tenant(connection, Tenant("gone", disabled=True, quotas={"requests_per_minute": 1}))
    await registry.sync()
    assert registry.quotas_of("acme") == Quotas(None, None, 5, None)
    assert registry.quotas_of("other") == Quotas(requests_per_minute=10)
    assert registry.tenant("gone") == Tenant("gone", True, {"requests_per_minute": 1})


async def test_usage_adds_up(store: Store, registry: Registry) -> None:
    for _ in range(2):
        for tenant, seconds in (("a", 1.25), ("b", 2.0)):
            with registry.meter.admitted(tenant):
                registry.meter.spend(tenant, seconds)
        await registry.sync()
    with store.transaction(reads=True) as connection:
        usage = {one.tenant: (one.requests, one.cpu_seconds) for one in table.usage_since(connection, 0)}
    assert usage == {"a": (2, 2.5), "b": (2, 4.0)}


async def test_old_usage_is_removed(store: Store, clock: Clock) -> None:
    with store.transaction() as connection:
        table.add_usage(connection, 3, {"a": (1, 1.0)})
        table.add_usage(connection, hour_of(clock()), {"b": (1, 1.0)})
    await Registry(store, Quotas(), usage_days=1, clock=clock).sync()
    with store.transaction(reads=True) as connection:
        assert [usage.tenant for usage in table.usage_since(connection, 0)] == ["b"]


async def test_what_is_stored_for_a_tenant(store: Store, registry: Registry) -> None:
    """Its graphs; and not what others have stored, or what is only kept to be found again."""
    with store.transaction() as connection:
        for tenant, digest, size in (("a", "1", 10), ("a", "2", 5), ("b", "1", 7)):
            blob = {"tenant": tenant, "digest": digest, "size": size, "touched": 1.0, "body": b""}
            connection.execute(schema.blobs.insert(), [blob])
        for tenant in "ab":
            graph = {"tenant": tenant, "digest": "1", "media_type": "x", "created": 1.0}
            connection.execute(schema.graphs.insert(), [graph])
    assert await registry.stored_bytes("a") == 10
    assert await registry.stored_bytes("b") == 7
    assert await registry.stored_bytes("c") == 0


async def test_what_was_written_is_not_written_again(store: Store, registry: Registry) -> None:
    """Also where the exchange is cancelled while it is under way."""
    registry.meter.spend("acme", 1.0)
    exchange = asyncio.create_task(registry.sync())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    await registry.close()
    with store.transaction(reads=True) as connection:
        assert [one.cpu_seconds for one in table.usage_since(connection, 0)] == [1.0]
