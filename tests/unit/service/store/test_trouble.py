"""Errors of the database in words, and calls that a silent database does not hold up."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, select, text

from service.problems import Problem
from service.store import Store, open_store, upgrade
from service.store.schema import graphs
from tests.support.postgres import Postgres

ROW = {"tenant": "t", "digest": "d", "media_type": "x", "created": 1.0}


def insert(connection: Connection) -> None:
    connection.execute(graphs.insert(), [{**ROW, "media_type": "x" * 1_000_000}])


def ask(connection: Connection) -> int:
    return int(connection.execute(text("select 1")).scalar_one())


async def reason(call: object) -> str:
    with pytest.raises(Problem) as caught:
        await call  # type: ignore[misc]
    assert caught.value.kind.code == "database-unavailable"
    assert caught.value.remedy
    assert caught.value.headers["Retry-After"]
    return str(caught.value.extensions["reason"])


async def test_a_full_sqlite_file(tmp_path: Path) -> None:
    """What SQLite says of a disk without room, it says of a file that may not grow. Others still read it."""
    with contextlib.closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as store:
        upgrade(store)
        store.engine.dispose()
        event.listen(store.engine, "connect", lambda one, _: one.execute("pragma max_page_count=40").close())
        assert await reason(store.write(insert)) == "full"
        assert await store.read(ask) == 1
        assert await store.write(ask) == 1
        trouble = store.trouble
        assert trouble is not None
        assert trouble.extensions == {"reason": "full"}, "a call that writes nothing says nothing of room"
        assert store.failures["full"] == 1


async def test_a_silent_database_is_asked_by_one_caller_at_a_time(store: Store) -> None:
    """The others are refused at once, until it has answered one."""
    go_on, asked = threading.Event(), list[str]()

    def wait() -> None:
        asked.append("waits")
        go_on.wait()

    try:
        for _ in range(20):
            assert await reason(store.run(wait, reads=True, seconds=0.2)) == "silent"
        assert asked == ["waits"]
        assert store.failures["silent"] == 1
    finally:
        go_on.set()
    answers = list[int]()
    while not answers:
        with contextlib.suppress(Problem):
            answers.append(await store.read(ask))
    assert store.trouble is None


async def test_a_request_that_is_refused_ends_the_silence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database has answered, whatever it says of the request."""
    monkeypatch.setattr("service.store.database.PAUSE_SECONDS", 0.0)
    go_on = threading.Event()

    def refused(_connection: Connection) -> None:
        raise Problem("idempotency-conflict", "It was another request.")

    try:
        assert await reason(store.run(go_on.wait, seconds=0.2)) == "silent"
    finally:
        go_on.set()
    with pytest.raises(Problem, match="another request"):
        await store.write(refused)
    assert (store.trouble, await store.write(ask)) == (None, 1)


async def test_writing_is_apart_from_reading(store: Store) -> None:
    go_on = threading.Event()
    try:
        assert await reason(store.run(go_on.wait, seconds=0.2)) == "silent"
        assert await store.read(ask) == 1
        assert store.trouble is not None
    finally:
        go_on.set()


async def test_a_call_that_nobody_waits_for_ends(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is cut, so that the thread is there for the next caller."""
    monkeypatch.setattr("service.store.database.PAUSE_SECONDS", 0.0)
    with contextlib.closing(open_store(postgres.new_database(), connections=2)) as store:

        def sleep() -> None:
            with store.transaction() as connection:
                connection.exec_driver_sql("set local statement_timeout = 0")
                connection.exec_driver_sql("select pg_sleep(3600)")

        for _ in range(3):
            assert await reason(store.run(sleep, reads=True, seconds=0.5)) == "silent"
        assert await store.read(ask) == 1


async def test_timeouts_and_names_of_postgresql(postgres: Postgres) -> None:
    url = postgres.new_database()
    with contextlib.closing(open_store(url, seconds=5.0, role="api")) as store:

        def settings(connection: Connection) -> list[str]:
            names = ("statement_timeout", "lock_timeout", "application_name")
            return [str(connection.execute(text(f"show {name}")).scalar()) for name in names]

        assert await store.read(settings) == ["4s", "3s", "arenaplan api"]
        assert await store.write(settings, seconds=60.0) == ["48s", "3s", "arenaplan api"]
    with contextlib.closing(open_store(f"{url}&application_name=mine")) as store:
        assert (await store.read(settings))[2] == "mine"


async def test_connections_that_were_forgotten_are_made_again(postgres: Postgres) -> None:
    """A database that was restarted, or that cuts idle connections."""
    with contextlib.closing(open_store(postgres.new_database(), role="cut")) as store:
        assert await store.read(ask) == 1
        with postgres.connect() as other:
            cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"
            other.execute(cut, ["arenaplan cut"])
        assert await store.read(ask) == 1
        assert store.failures.total() == 0


async def test_a_mistake_is_no_trouble(store: Store) -> None:
    """It is raised as it is, to be seen, and does not keep others from the database."""
    await store.write(lambda connection: connection.execute(graphs.insert(), [ROW]))
    with pytest.raises(Exception, match=r"(?i)unique"):
        await store.write(lambda connection: connection.execute(graphs.insert(), [ROW]))
    assert len(await store.read(lambda connection: connection.execute(select(graphs)).all())) == 1
    assert store.trouble is None


async def test_tables_that_are_not_there(empty_store: Store) -> None:
    assert (
        await reason(empty_store.read(lambda connection: connection.execute(select(graphs)).all()))
        == "tables"
    )
