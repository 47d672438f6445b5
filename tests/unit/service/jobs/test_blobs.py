"""Large results outside of the database: put there, found again, removed, and done without."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, select, update

from service.jobs.blobs import Blobs, Graphs, Results, StoredGraph
from service.jobs.model import State
from service.problems import Problem
from service.store import Store
from service.store.objects import Objects, open_objects
from service.store.schema import blobs, jobs, removals, results
from tests.support.engines import finished, new_job, running_engine, table_of
from tests.support.storage import Storage

Keys = Callable[[], list[str]]


@pytest.fixture
def objects(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Objects:
    for name, value in storage.variables.items():
        monkeypatch.setenv(name, value)
    return open_objects(f"{storage.url}/{secrets.token_hex(8)}")


@pytest.fixture
def away(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """The storage, where nobody listens."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return open_objects(objects.url)


@pytest.fixture
def keys(storage: Storage, objects: Objects) -> Keys:
    """All objects of this test."""
    return lambda: storage.keys(objects.url.removeprefix("s3://results/"))


async def elsewhere(store: Store) -> dict[str, str | None]:
    """By digest, the object that has the bytes."""
    wanted = select(blobs.c.digest, blobs.c.object)
    rows = await store.read(lambda connection: connection.execute(wanted).all())
    return {row.digest: row.object for row in rows}


async def test_only_what_is_large(store: Store, objects: Objects, keys: Keys) -> None:
    answers = Results(Blobs(store, objects, 100))
    await answers.keep("large", "plans/small", b"s" * 99, "small")
    await answers.keep("large", "plans/large", b"l" * 100, "large", "the same")
    (key,) = keys()
    assert hashlib.sha256(b"l" * 100).hexdigest() in key
    assert await answers.by_key("large", "small") == ("plans/small", b"s" * 99)
    assert await answers.by_key("large", "the same") == ("plans/large", b"l" * 100)
    await answers.keep("large", "plans/again", b"l" * 100, "again")
    assert keys() == [key]


@pytest.mark.parametrize("name", ["../acme", "a/b", "ü", "a b", "%2e"])
async def test_tenants_are_apart(
    store: Store, storage: Storage, objects: Objects, keys: Keys, name: str
) -> None:
    answers = Results(Blobs(store, objects))
    for tenant in (name, "other"):
        await answers.keep(tenant, "plans/one", name.encode(), "one")
    mine, other = sorted(keys(), key=lambda key: "/tenant=other/" in key)
    assert mine.count("/") == other.count("/") == 3
    assert "/tenant=" in mine
    assert await answers.by_name(name, "plans/one") == name.encode()
    storage.remove(mine)
    assert await answers.by_name(name, "plans/one") is None
    assert await answers.by_name("other", "plans/one") == name.encode()


async def test_a_result_that_was_changed_is_not_given_out(
    store: Store, storage: Storage, objects: Objects, keys: Keys
) -> None:
    answers = Results(Blobs(store, objects))
    await answers.keep("changed", "plans/one", b"right", "one")
    (key,) = keys()
    storage.overwrite(key, b"wrong")
    assert await answers.by_name("changed", "plans/one") is None


async def test_what_has_expired_is_removed(store: Store, objects: Objects, keys: Keys) -> None:
    async with running_engine(store, objects) as engine:
        job, _ = await engine.submit(new_job("echo\nold", tenant="expired"))
        await finished(engine, job)
    (key,) = keys()

    async def tidy_later() -> None:
        """As if everything had happened long ago."""

        def age(connection: Connection) -> None:
            connection.execute(update(jobs).values(expires=0.0))
            connection.execute(update(results).values(touched=-1e12))
            connection.execute(update(blobs).values(touched=0.0))
            connection.execute(update(removals).values(due=0.0))

        await store.write(age)
        await table_of(store, objects, ttl_seconds=1e11).tidy()

    await table_of(store, objects).tidy()
    assert keys() == [key]
    await tidy_later()
    with pytest.raises(Problem) as caught:
        await table_of(store, objects).answer("expired", job.id)
    assert caught.value.kind.code == "job-expired"
    assert keys() == [key]  # somebody may still be reading it
    await tidy_later()
    assert keys() == []


async def test_objects_that_were_never_referred_to_are_removed(
    store: Store, objects: Objects, keys: Keys
) -> None:
    """Of a process that died between storage and database."""
    await Blobs(store, objects).place("orphan", b"lost")
    assert len(keys()) == 1
    await Blobs(store, objects).remove_objects()
    assert len(keys()) == 1
    await store.write(lambda connection: connection.execute(update(removals).values(due=0.0)))
    await Blobs(store, objects).remove_objects()
    assert keys() == []


async def test_a_graph_is_in_the_database(store: Store, objects: Objects) -> None:
    """Also one whose bytes were a result before: a job needs nothing but the database to be begun."""
    body = b'{"format": "arenaplan.graph"}'
    digest = hashlib.sha256(body).hexdigest()
    await Results(Blobs(store, objects)).keep("default", "graphs/one", body, "one")
    assert (await elsewhere(store))[digest] is not None
    await Graphs(store).put("default", digest, StoredGraph("application/json", body))
    assert (await elsewhere(store))[digest] is None
    assert await Results(Blobs(store)).by_name("default", "graphs/one") == body


async def test_while_the_storage_is_away_the_database_takes_all(store: Store, away: Objects) -> None:
    async with running_engine(store, away) as engine:
        for k in range(2):
            done = await finished(engine, (await engine.submit(new_job(f"echo\n{k}")))[0])
            assert done.state is State.SUCCEEDED
            assert (await engine.answer("default", done.id)).body == b"%d" % k
    assert away.available is False
    assert away.failures["put"] == 1  # the second did not wait for it


async def test_what_is_in_a_storage_that_is_away_waits(store: Store, objects: Objects, away: Objects) -> None:
    async with running_engine(store, objects) as engine:
        done = await finished(engine, (await engine.submit(new_job("echo\nhere")))[0])
    for without in (away, None):
        with pytest.raises(Problem) as caught:
            await table_of(store, without).answer("default", done.id)
        assert caught.value.kind.code == "storage-unavailable"
    assert (await table_of(store, objects).answer("default", done.id)).body == b"here"


def test_a_storage_that_cannot_be_used_is_refused(
    storage: Storage, objects: Objects, away: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.check()
    with pytest.raises(Problem, match="does not answer"):
        away.check()
    monkeypatch.setenv("AWS_ENDPOINT_URL", storage.variables["AWS_ENDPOINT_URL"])
    with pytest.raises(ValueError, match="NoSuchBucket"):
        open_objects("s3://nothing/here").check()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ValueError, match="SignatureDoesNotMatch"):
        open_objects(storage.url).check()


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "http://localhost/bucket", "bucket"])
def test_what_is_no_bucket(url: str) -> None:
    with pytest.raises(ValueError, match="s3://BUCKET/PREFIX"):
        open_objects(url)
