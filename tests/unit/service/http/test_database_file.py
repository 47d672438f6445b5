"""States of an SQLite file, at the start and under the running service: jobs are off, plans are made."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from service.http.app import create_app
from service.settings import Settings
from service.store import open_database, open_store
from service.store.repair import examine
from tests.unit.service.conftest import started

JSON = {"Content-Type": "application/json"}
JOB = {"task": "plan", "request": {"graph": {}}}


def overwrite(file: Path, start: int, content: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(start)
        handle.write(content)


def not_utf8(name: bytes, at: int) -> Callable[[Path], None]:
    """A byte of the schema, `at` bytes behind the beginning of `name`."""
    return lambda file: overwrite(file, file.read_bytes().index(name) + at, b"\xff")


def sql(script: str) -> Callable[[Path], None]:
    def run(file: Path) -> None:
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.executescript(script)

    return run


def in_its_place(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        file.unlink()
        make(file)

    return replace


#: What is done to the file, the reason that is told, and a part of what `arenaplan database check` says.
AT_THE_START: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "byte of a statement": (not_utf8(b"CREATE INDEX", 11), "damaged", "database recover"),
    "byte of a name": (not_utf8(b"tablejobs", 8), "damaged", "database recover"),
    "byte of a type": (not_utf8(b"CREATE TABLE jobs", 30), "damaged", "database recover"),
    "byte of the revision": (not_utf8(b"0006", 1), "damaged", "database recover"),
    "truncated": (lambda file: os.truncate(file, 8192), "damaged", "database recover"),
    "zeroed header": (lambda file: overwrite(file, 0, bytes(100)), "damaged", "database recover"),
    "directory": (in_its_place(Path.mkdir), "unreachable", "not a regular file"),
    "pipe": (in_its_place(os.mkfifo), "unreachable", "not a regular file"),
    "directory for the log": (lambda file: Path(f"{file}-wal").mkdir(), "unreachable", "Let this user write"),
    "link to nowhere": (in_its_place(lambda file: file.symlink_to("/nowhere/at/all")), "replaced", "no file"),
    "a newer version": (
        sql("update alembic_version set version_num = '9999'"), "tables", "newer version",
    ),
    "overwritten tables": (
        lambda file: overwrite(file, 4096, bytes(file.stat().st_size - 4096)), "damaged", "database recover",
    ),
    "two revisions": (sql("insert into alembic_version values ('0001')"), "tables", "0001 and 0006"),
}  # fmt: skip


@asynccontextmanager
async def serving(file: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(workers=1, database_url=f"sqlite:///{file}", database_seconds=2.0)
    async with started(create_app(settings, tasks="tests.support.fake_tasks")) as http:
        await assert_plans(http)
        yield http


async def assert_plans(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/plan", content=b"echo\n{}", headers=JSON)).status_code == 200


async def assert_refuses(http: httpx.AsyncClient, reason: str) -> None:
    for answer in (await http.post("/v1/jobs", json=JOB), await http.get("/v1/jobs")):
        assert answer.status_code == 503, answer.text
        problem = answer.json()
        assert (problem["type"], problem["reason"]) == ("/problems/database-unavailable", reason)
        assert "`arenaplan database check`" in problem["remedy"]
    assert (await http.get("/readyz")).json()["jobs"] == reason


@pytest.mark.parametrize("state", AT_THE_START)
async def test_a_file_that_cannot_be_used_at_the_start(state: str, tmp_path: Path) -> None:
    damage, reason, sentence = AT_THE_START[state]
    file = tmp_path / "jobs.db"
    open_database(f"sqlite:///{file}").close()
    damage(file)
    with capture_logs() as log:
        async with serving(file) as http:
            await assert_refuses(http, reason)
    told = [entry for entry in log if entry["event"] == "the database cannot be used"]
    assert [entry["reason"] for entry in told] == [reason]
    assert len(json.dumps(told)) < 1000
    with contextlib.closing(open_store(f"sqlite:///{file}")) as store:
        assert sentence in str(examine(store))


def restore(file: Path) -> None:
    """Another database under the same name, by renaming."""
    other = file.with_name("backup.db")
    open_database(f"sqlite:///{other}").close()
    other.replace(file)


#: What happens to the file of a service that runs.
UNDER_THE_SERVICE: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "deleted with its log": lambda file: subprocess.run(["rm", *file.parent.iterdir()], check=True),
    "moved": lambda file: file.rename(file.with_name("away.db")),
    "a backup is restored": restore,
    "a directory in its place": in_its_place(Path.mkdir),
    "its directory is deleted": lambda file: shutil.rmtree(file.parent),
    "its directory is moved": lambda file: file.parent.rename(file.parent.with_name("away")),
    "its log is deleted": lambda file: Path(f"{file}-wal").unlink(),
}


@pytest.mark.parametrize("event", UNDER_THE_SERVICE)
async def test_a_file_that_is_gone_or_replaced(event: str, tmp_path: Path) -> None:
    """No job is accepted that nobody would know after a restart. No empty file takes its place."""
    file = tmp_path / "state" / "jobs.db"
    async with serving(file) as http:
        accepted = await http.post("/v1/jobs", json=JOB)
        assert accepted.status_code == 202
        with capture_logs() as log:
            UNDER_THE_SERVICE[event](file)
            before = sorted(file.parent.glob("*"))
            for _ in range(3):
                await assert_refuses(http, "replaced")
            await assert_plans(http)
            assert sorted(file.parent.glob("*")) == before
        told = [entry for entry in log if entry["event"] == "the database cannot be used"]
        assert [entry["reason"] for entry in told] == ["replaced"]
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "database-replaced")
        assert (await http.get("/healthz")).status_code == 200
        metrics = (await http.get("/metrics")).text
        assert "arenaplan_database_usable 0.0" in metrics
        assert "arenaplan_ready 0.0" in metrics
        if "moved" in event:
            moved, place = (file.with_name("away.db"), file) if event == "moved" else (
                file.parent.with_name("away"), file.parent
            )  # fmt: skip
            moved.rename(place)
            assert (await http.post("/v1/jobs", json=JOB)).status_code == 202
            assert (await http.get(accepted.headers["location"])).status_code == 200
            assert (await http.get("/readyz")).status_code == 200


async def test_a_file_that_is_cut_off_under_the_service(tmp_path: Path) -> None:
    """Pages that connections have in memory do not hide it."""
    file = tmp_path / "jobs.db"
    open_database(f"sqlite:///{file}").close()  # with all pages in the file, none in its log
    sql("vacuum")(file)  # migrations have left free pages: to cut these off damages nothing
    async with serving(file) as http:
        assert (await http.post("/v1/jobs", json=JOB)).status_code == 202
        os.truncate(file, file.stat().st_size // 2)
        await assert_refuses(http, "damaged")
        await assert_plans(http)
