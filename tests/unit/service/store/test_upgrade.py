"""Databases of earlier revisions, from dumps of them: brought to this version, their jobs run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from service.auth import table as users
from service.jobs.model import State
from service.jobs.table import Graphs, Results
from service.problems import Problem
from service.store import Store, check_schema, open_store, upgrade
from service.store.repair import examine, recover
from service.store.schema import METADATA
from tests.support.engines import finished, running_engine, table_of

_DUMPS = Path(__file__).resolve().parents[3] / "support"
#: Jobs of the dump: one waits and has a webhook, one has ended and its webhook has not arrived, and the
#: result of one is in a bucket.
WAITING, ENDED, FAR = (f"019ab5a0c000{number:020}" for number in (1, 2, 3))


@pytest.fixture
def store_of_0003(empty_store: Store) -> Store:
    """The dump, and on PostgreSQL the queue, whose tables are those of Procrastinate."""
    sql = (_DUMPS / f"revision_0003_{empty_store.engine.dialect.name}.sql").read_text(encoding="utf-8")
    if empty_store.is_sqlite:
        empty_store.file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(empty_store.file)) as connection:
            connection.executescript(sql)
        return empty_store
    from procrastinate.schema import SchemaManager

    with empty_store.transaction() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(sql)
        cursor.execute("create schema procrastinate")
        cursor.execute("set local search_path to procrastinate")
        cursor.execute(SchemaManager.get_schema())
        cursor.close()
    return empty_store


def test_the_tables_are_those_of_this_version(store_of_0003: Store) -> None:
    assert "revision 0003" in (check_schema(store_of_0003) or "")
    upgrade(store_of_0003)
    assert check_schema(store_of_0003) is None
    with store_of_0003.transaction() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


async def test_jobs_with_a_webhook_run_without_it(store_of_0003: Store) -> None:
    upgrade(store_of_0003)
    async with running_engine(store_of_0003) as engine:
        done = await finished(engine, await engine.table.get("acme", WAITING))
        assert (done.state, done.attempts) == (State.SUCCEEDED, 1)
        assert (await engine.table.answer("acme", WAITING)).body == b"waits"
        assert (await engine.table.answer("acme", ENDED)).body == b"ended"


async def test_results_in_a_bucket_have_expired(store_of_0003: Store) -> None:
    upgrade(store_of_0003)
    with pytest.raises(Problem) as caught:
        await table_of(store_of_0003).answer("acme", FAR)
    assert caught.value.kind.code == "job-expired"
    answers = Results(store_of_0003)
    assert await answers.by_key("acme", "far") is None
    await answers.keep("acme", "plans/far", b"made again", "far")
    assert await answers.by_name("acme", "plans/far") == b"made again"


async def test_a_damaged_file_is_recovered_and_upgraded(tmp_path: Path) -> None:
    """The index of jobs by state is overwritten; what the dump holds can be read."""
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((_DUMPS / "revision_0003_sqlite.sql").read_text(encoding="utf-8"))
        query = "select rootpage from sqlite_master where name = 'jobs_by_state'"
        ((page,),) = connection.execute(query)
        ((page_bytes,),) = connection.execute("pragma page_size")
    with file.open("r+b") as handle:
        handle.seek(page_bytes * (page - 1))
        handle.write(b"\xff" * page_bytes)
    assert "jobs: 3 rows." in list(recover(file))
    with closing(open_store(f"sqlite:///{file}")) as store:
        assert examine(store) is None
        claim = await table_of(store).claim("owner")
    assert claim is not None
    assert (claim.job.id, claim.request) == (WAITING, b"echo\nwaits")


async def test_graphs_results_and_users_are_still_there(store_of_0003: Store) -> None:
    upgrade(store_of_0003)
    digest = "86b0c5a1e2b73b08fd54c727f4458649ed9fe3ad1b6e8ac9460c070113509a1e"
    assert (await Graphs(store_of_0003).get("acme", digest)).body == b"echo\n"
    assert await Results(store_of_0003).by_key("acme", "near") == ("plans/near", b"ended")
    with store_of_0003.transaction(reads=True) as connection:
        (key,), (tenant,) = users.list_keys(connection), users.list_tenants(connection)
        (usage,) = users.usage_since(connection, 0)
    assert (key.name, sorted(key.scopes)) == ("farm", ["jobs", "plan"])
    assert (tenant.name, tenant.quotas) == ("acme", {"stored_bytes": 1000})
    assert (usage.requests, usage.cpu_seconds) == (2, 1.5)
