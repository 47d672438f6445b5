"""Results under the keys of their requests: found again, apart by tenant, removed."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, func, select, update

from service.jobs.table import Results
from service.problems import Problem
from service.store import Store
from service.store.schema import blobs, jobs, results
from tests.support.engines import finished, new_job, running_engine, table_of


async def blob_count(store: Store) -> int:
    query = select(func.count()).select_from(blobs)
    return int(await store.read(lambda connection: connection.execute(query).scalar_one()))


async def test_the_same_bytes_are_stored_once(store: Store) -> None:
    answers = Results(store)
    await answers.keep("acme", "plans/a", b"a plan", "first", "second")
    await answers.keep("acme", "plans/b", b"a plan", "third")
    assert await answers.by_key("acme", "second") == ("plans/a", b"a plan")
    assert await answers.by_key("acme", "third") == ("plans/b", b"a plan")
    assert await blob_count(store) == 1


@pytest.mark.parametrize("name", ["../acme", "a/b", "ü", "a b", "%2e"])
async def test_tenants_are_apart(store: Store, name: str) -> None:
    answers = Results(store)
    for tenant in (name, "other"):
        await answers.keep(tenant, "plans/mine", tenant.encode(), "key")
    assert await answers.by_name(name, "plans/mine") == name.encode()
    assert await answers.by_key("other", "key") == ("plans/mine", b"other")
    assert await answers.by_name("third", "plans/mine") is None


async def test_what_has_expired_is_removed(store: Store) -> None:
    """The result of a job stays as long as its job, and its bytes as long as they may be referred to."""
    async with running_engine(store) as engine:
        job, _ = await engine.submit(new_job("echo\nold", tenant="acme"))
        await finished(engine, job)
    assert await blob_count(store) == 2  # request and result
    await table_of(store).tidy()
    assert await blob_count(store) == 2

    def age(connection: Connection) -> None:
        connection.execute(update(jobs).values(expires=0.0))
        connection.execute(update(results).values(touched=-1e12))
        connection.execute(update(blobs).values(touched=0.0))

    await store.write(age)
    await table_of(store, ttl_seconds=1e11).tidy()
    with pytest.raises(Problem) as caught:
        await table_of(store).answer("acme", job.id)
    assert caught.value.kind.code == "job-expired"
    assert await blob_count(store) == 0
