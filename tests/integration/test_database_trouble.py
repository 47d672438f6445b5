"""A database that refuses, stalls, is cut off, damaged, full or read-only, and a clock that is set.

Each costs jobs, and no plan: the real server process, with known and unknown keys, on both databases.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from service.auth import table
from service.auth.principal import ALL_SCOPES
from service.auth.table import Key, new_key
from service.store import open_store, upgrade
from tests.support.postgres import Postgres, missing_programs, running_postgres
from tests.support.server import PATIENCE, ROOT, Server, running_server

Graph = dict[str, Any]

_NUMBERS = itertools.count(1)


class Service:
    """A running service with API keys, and a client with a key that it knows."""

    def __init__(self, server: Server, url: str, http: httpx.Client, tiny: Graph) -> None:
        self.server = server
        self.url = url
        self._tiny = tiny
        self.http = http
        self.plan()  # the key is in memory from now on

    def graph(self) -> Graph:
        """Another one each time: no cache knows its plan."""
        return {**self._tiny, "name": f"graph-{next(_NUMBERS)}"}

    def plan(self, **headers: str) -> httpx.Response:
        answer = self.http.post("/v1/plan", json={"graph": self.graph()}, headers=headers)
        assert answer.status_code in (200, 202), answer.text
        return answer

    def submit(self) -> httpx.Response:
        return self.http.post("/v1/jobs", json={"task": "plan", "request": {"graph": self.graph()}})

    def jobs(self) -> list[str]:
        """Once they can be read again."""
        while (answer := self.http.get("/v1/jobs?limit=1000")).status_code != 200:
            assert_refused(answer, "silent")
        return [job["id"] for job in answer.json()["jobs"]]

    def assert_only_jobs_suffer(self, *reasons: str, reads: bool = False) -> None:
        """Jobs are answered 503 with one of the reasons; all else goes on. `reads` can still be answered."""
        for _ in range(2):
            assert_refused(self.submit(), *reasons)
            made = self.plan()
            assert made.status_code == 200
            assert self.http.get(made.headers["content-location"]).content == made.content
            assert self.plan(Prefer="respond-async").status_code == 200
            listed = self.http.get("/v1/jobs")
            assert listed.status_code == 200 if reads else assert_refused(listed, *reasons)
        unknown = self.http.post(
            "/v1/plan", json={"graph": self.graph()}, headers={"Authorization": f"Bearer {new_key().text}"}
        )
        assert unknown.status_code == 401 if reads else assert_refused(unknown, *reasons)
        assert self.http.get("/healthz").status_code == 200
        ready = self.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert ready.json()["jobs"] in reasons
        metrics = self.http.get("/metrics").text
        assert "arenaplan_database_usable 0.0" in metrics
        assert any(f'arenaplan_database_failures_total{{reason="{reason}"}}' in metrics for reason in reasons)
        self.assert_no_bug()

    def assert_no_bug(self) -> None:
        assert [event for event in self.server.log if event.get("status") == 500] == []
        assert [event for event in self.server.log if "exception" in event or "Traceback" in str(event)] == []

    def assert_recovers(self) -> None:
        """Nobody starts it again: the next jobs are accepted."""
        while (answer := self.submit()).status_code != 202:
            assert answer.status_code == 503, answer.text
        assert answer.json()["id"] in self.jobs()
        self.plan()


def assert_refused(answer: httpx.Response, *reasons: str) -> bool:
    """The answer of what needs the database."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "/problems/database-unavailable"
    assert problem["reason"] in reasons, problem
    assert problem["remedy"]
    assert int(answer.headers["retry-after"]) > 0
    return True


def with_new_key(url: str) -> dict[str, str]:
    """The header with a key of a database, which has the tables of this version from now on."""
    made = new_key()
    with contextlib.closing(open_store(url)) as store:
        upgrade(store)
        with store.transaction() as connection:
            table.add_key(connection, Key(made.id, "acme", "farm", ALL_SCOPES, made.digest, 1.0, None))
    return {"Authorization": f"Bearer {made.text}"}


@contextlib.contextmanager
def serving(url: str, tiny: Graph, **settings: object) -> Iterator[Service]:
    bearer = with_new_key(url)
    settings = {
        "workers": 2, "auth": "keys", "database_url": url, "database_seconds": 2,
        "quota_stored_bytes": "1GiB", **settings,
    }  # fmt: skip
    with running_server(**settings) as server, server.client(headers=bearer) as http:
        service = Service(server, url, http, tiny)
        yield service
        service.assert_no_bug()


@pytest.fixture(scope="module")
def small() -> Graph:
    graph: Graph = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())["graph"]
    return graph


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """A server that is stopped and damaged: nobody else's."""
    if reason := missing_programs():
        pytest.skip(reason)
    with running_postgres("fsync=off") as server:
        yield server


@pytest.fixture(scope="module")
def clustered(own_postgres: Postgres, small: Graph) -> Iterator[Service]:
    with serving(own_postgres.new_database(), small) as service:
        yield service


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory, small: Graph) -> Iterator[Service]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('single')}/jobs.db", small) as service:
        yield service


def run(url: str, *commands: str) -> list[Any]:
    """Rows of the last command, outside of the service."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.cursor()
        for command in commands:
            cursor.execute(command.encode())
        return cursor.fetchall() if cursor.description else []


# ------------------------------------------------------------------------------------------ PostgreSQL


def test_postgresql_refuses(own_postgres: Postgres, clustered: Service) -> None:
    own_postgres.kill()
    clustered.assert_only_jobs_suffer("unreachable")
    own_postgres.start()
    clustered.assert_recovers()


def test_postgresql_stands_still(own_postgres: Postgres, clustered: Service) -> None:
    """All of it is stopped for as long as the service is asked: nothing waits for it to go on."""
    own_postgres.pause()
    try:
        clustered.assert_only_jobs_suffer("silent")
    finally:
        own_postgres.resume()
    clustered.assert_recovers()


def test_a_table_of_postgresql_is_locked(clustered: Service) -> None:
    with psycopg.connect(clustered.url) as other:
        for name in ("jobs", "results", "api_keys"):
            other.execute(f"lock table {name} in access exclusive mode".encode())
        clustered.assert_only_jobs_suffer("silent")
    clustered.assert_recovers()


def test_postgresql_is_cut_off_within_a_transaction(clustered: Service) -> None:
    """The job is not half there: it was refused, and no row is of it."""
    before, answers = clustered.jobs(), list[httpx.Response]()
    waiting = (
        "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like 'INSERT INTO jobs%'"
    )
    with psycopg.connect(clustered.url) as other:
        other.execute("lock table jobs in exclusive mode")
        thread = threading.Thread(target=lambda: answers.append(clustered.submit()))
        thread.start()
        while not (pids := run(clustered.url, waiting)):
            assert thread.is_alive(), answers[0].text
        run(clustered.url, f"select pg_terminate_backend({pids[0][0]})")
        thread.join(PATIENCE)
    assert_refused(answers[0], "unreachable")
    assert clustered.jobs() == before
    clustered.assert_recovers()


def test_postgresql_is_full(clustered: Service) -> None:
    """What PostgreSQL says then, said by it: SQLSTATE 53100."""
    run(
        clustered.url,
        "create function full_disk() returns trigger language plpgsql as "
        "$$ begin raise exception 'could not extend file' using errcode = '53100'; end $$",
        "create trigger full_disk before insert on jobs execute function full_disk()",
    )
    clustered.assert_only_jobs_suffer("full", reads=True)
    run(clustered.url, "drop function full_disk cascade")
    clustered.assert_recovers()


def test_postgresql_is_read_only(clustered: Service) -> None:
    """As a standby is; connections are made again as they are after a failover."""
    name = clustered.url.partition("@/")[2].partition("?")[0]
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'arenaplan%'"
    run(clustered.url, f"alter database {name} set default_transaction_read_only = on", cut)
    clustered.assert_only_jobs_suffer("read-only", reads=True)
    run(
        clustered.url,
        "set default_transaction_read_only = off",
        f"alter database {name} reset default_transaction_read_only",
        cut,
    )
    clustered.assert_recovers()


def test_postgresql_is_damaged(own_postgres: Postgres, clustered: Service) -> None:
    """The last one: nothing mends it."""
    (row,) = run(clustered.url, "select pg_relation_filepath('jobs'), pg_relation_filepath('api_keys')")
    own_postgres.stop()
    for path in row:
        overwrite(own_postgres.data / path, 0)
    own_postgres.start()
    clustered.assert_only_jobs_suffer("damaged")


# ------------------------------------------------------------------------------------------ SQLite


def overwrite(file: Path, start: int, size: int | None = None) -> None:
    """Random bytes from `start` on, by default up to the end."""
    with file.open("r+b") as handle:
        size = handle.seek(0, os.SEEK_END) - start if size is None else size
        handle.seek(start)
        handle.write(random.Random(0).randbytes(size))


def path_of(service: Service) -> Path:
    return Path(service.url.removeprefix("sqlite:///"))


def test_another_process_holds_the_lock_of_sqlite(single: Service) -> None:
    with contextlib.closing(sqlite3.connect(path_of(single), isolation_level=None)) as other:
        other.execute("begin immediate")
        single.assert_only_jobs_suffer("silent", reads=True)
        other.execute("rollback")
    single.assert_recovers()


def test_sqlite_can_write_no_further(single: Service) -> None:
    """The process may write no byte more to any file (EFBIG; a full disk: `tests/unit/service/store`)."""
    limits = resource.prlimit(single.server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(single.server.process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    single.assert_only_jobs_suffer("read-only", reads=True)
    resource.prlimit(single.server.process.pid, resource.RLIMIT_FSIZE, limits)
    single.assert_recovers()


def test_sqlite_is_damaged_and_recovered(single: Service) -> None:
    """Under the running service, which goes on: with the new file it has jobs again, and the key."""
    file = path_of(single)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        of_jobs = "select rootpage from sqlite_master where tbl_name in ('jobs', 'blobs', 'results')"
        pages = connection.execute(of_jobs).fetchall()
        # A change makes others read again, and from the file alone.
        connection.execute("update alembic_version set version_num = version_num")
        while connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
            pass
        for (page,) in pages:
            overwrite(file, 4096 * (page - 1), 4096)
    single.assert_only_jobs_suffer("damaged")
    (told,) = (
        event for event in single.server.log
        if event["event"] == "the database cannot be used" and event["reason"] == "damaged"
    )  # fmt: skip
    assert "`arenaplan database recover`" in told["remedy"]
    environment = {**os.environ, "ARENAPLAN_DATABASE_URL": single.url}

    def database(command: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "service.cli", "database", command],
            capture_output=True, text=True, env=environment, cwd=ROOT, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    code, output = database("check")
    assert code == 1
    assert "is damaged" in output
    assert "arenaplan database recover" in output
    assert output.count("\n") == 1
    code, output = database("recover")
    while "is in use" in output:  # a call that began before the damage was met ends within its time
        code, output = database("recover")
    assert code == 0, output
    assert "The damaged file is kept as" in output
    assert database("check")[0] == 0
    single.assert_recovers()


def test_sqlite_that_may_only_be_read(tmp_path: Path, small: Graph) -> None:
    file = tmp_path / "jobs.db"
    bearer = with_new_key(f"sqlite:///{file}")
    url = f"sqlite:///file:{file}?mode=ro&uri=true"
    with (
        running_server(workers=1, auth="keys", database_url=url) as server,
        server.client(headers=bearer) as http,
    ):
        Service(server, url, http, small).assert_only_jobs_suffer("read-only", reads=True)


def test_postgresql_comes_later_than_the_service(own_postgres: Postgres, tiny: Graph) -> None:
    """An address where nobody listens yet, and then somebody does."""
    url = own_postgres.new_database()
    with contextlib.closing(open_store(url)) as store:
        upgrade(store)
    own_postgres.kill()
    with running_server(workers=1, database_url=url) as server, server.client() as http:
        assert http.post("/v1/plan", json={"graph": tiny}).status_code == 200
        own_postgres.start()
        server.wait_for(lambda event: event["event"] == "the database answers again")
        while (answer := http.post("/v1/jobs", json={"task": "plan", "request": {"graph": tiny}})).is_error:
            assert answer.status_code == 503
        assert answer.status_code == 202


# ------------------------------------------------------------------------------------------ the clock


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_clock_is_set(kind: str, tmp_path: Path, small: Graph, postgres: Postgres) -> None:
    """An hour on, then two back: a job that runs is not begun again, and nobody is turned away."""
    url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else postgres.new_database()
    clock = tmp_path / "clock"

    def set_clock(hours: int) -> None:
        fresh = clock.with_suffix(".new")
        fresh.write_text(str(3600 * hours), encoding="utf-8")
        fresh.rename(clock)

    set_clock(0)
    limits = {"validate_max_steps": 100_000, "quota_requests_per_minute": 1_000}
    with serving(url, small, clock=clock, **limits) as service:
        graph = service.graph()
        plan = service.http.post("/v1/plan", json={"graph": graph}).json()
        validation = {"graph": graph, "plan": plan, "steps": 100_000}
        order = {"task": "validate", "request": validation}
        accepted = service.http.post("/v1/jobs", json=order)
        assert accepted.status_code == 202, accepted.text
        running = accepted.json()
        for hours in (1, -1):
            set_clock(hours)
            service.plan()
            service.assert_recovers()
            new = service.http.post("/v1/plan", json={"graph": service.graph()}, headers=with_new_key(url))
            assert new.status_code == 200, new.text
            assert service.http.get(running["links"]["self"]).json()["attempts"] <= 1
        ended = service.http.delete(running["links"]["self"])
        assert ended.status_code in (200, 202)
