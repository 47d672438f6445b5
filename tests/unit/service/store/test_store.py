"""The database: its tables as the code reads them, up and down, on SQLite and on PostgreSQL."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, select, text

from service.problems import Problem
from service.store import Store, check_schema, downgrade, open_store, upgrade
from service.store.schema import METADATA, graphs
from tests.support.postgres import Postgres

ROW = {"tenant": "t", "digest": "d", "media_type": "application/json", "created": 1.0}


def tables(store: Store) -> set[str]:
    with store.transaction(reads=True) as connection:
        return set(inspect(connection).get_table_names())


def test_migrations_make_the_tables_that_the_code_reads(empty_store: Store) -> None:
    assert "database upgrade" in (check_schema(empty_store) or "")
    upgrade(empty_store)
    assert check_schema(empty_store) is None
    with empty_store.transaction() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_migrations_leave_nothing_behind(empty_store: Store) -> None:
    for _ in range(2):
        upgrade(empty_store)
        assert set(METADATA.tables) <= tables(empty_store)
        downgrade(empty_store, "base")
        assert tables(empty_store) == {"alembic_version"}


def test_each_step_of_the_migrations_can_be_taken_back(empty_store: Store) -> None:
    upgrade(empty_store)
    while check_schema(empty_store) != "The database is empty: run `arenaplan database upgrade`.":
        downgrade(empty_store, "-1")
    upgrade(empty_store)
    assert check_schema(empty_store) is None


@pytest.mark.parametrize("revision", ["9999", "nonsense", "-7"])
def test_there_is_no_way_back_to_a_revision_that_is_not_older(store: Store, revision: str) -> None:
    with pytest.raises(
        ValueError, match=r"is at revision 0006, .*: choose .* base, 0001, 0002, 0003, 0004, 0005"
    ):
        downgrade(store, revision)


def test_a_database_of_a_newer_version(store: Store) -> None:
    with store.transaction() as connection:
        connection.exec_driver_sql("update alembic_version set version_num = '9999'")
    assert "newer version" in (check_schema(store) or "")


async def test_a_transaction_happens_as_a_whole(store: Store) -> None:
    def half(connection: object) -> None:
        del connection
        raise KeyError("half way")

    async def count() -> int:
        return len(await store.read(lambda connection: connection.execute(select(graphs)).all()))

    await store.write(lambda connection: connection.execute(graphs.insert(), [ROW]))
    assert await count() == 1

    def insert_and_fail(connection: object) -> None:
        connection.execute(graphs.insert(), [{**ROW, "digest": "e"}])  # type: ignore[attr-defined]
        half(connection)

    with pytest.raises(KeyError):
        await store.write(insert_and_fail)
    assert await count() == 1


def test_an_sqlite_file_is_for_its_user_alone(tmp_path: Path) -> None:
    place = tmp_path / "state" / "arenaplan"
    upgrade(open_store(f"sqlite:///{place}/jobs.db"))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in place.iterdir()] == [0o600] * 3


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    store = open_store(f"postgresql://nobody@/none?host={tmp_path}")
    with pytest.raises(Problem) as caught:
        check_schema(store)
    assert caught.value.kind.code == "database-unavailable"
    assert caught.value.headers["Retry-After"]


async def test_a_machine_that_has_gone_keeps_no_lock(postgres: Postgres) -> None:
    """PostgreSQL ends a transaction that hears nothing more; what the URL says of options still holds."""
    store = open_store(f"{postgres.new_database()}&options=-c%20search_path%3Dpublic")
    asked = "select current_setting('idle_in_transaction_session_timeout'), current_setting('search_path')"
    try:
        row = await store.read(lambda connection: connection.execute(text(asked)).one())
    finally:
        store.close()
    assert tuple(row) == ("20s", "public")


@pytest.mark.parametrize("url", ["mysql://somewhere/db", "sqlite://", "sqlite:///:memory:", "no url"])
def test_what_is_no_database_for_this(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite:///|not the URL|SQLite"):
        open_store(url)
